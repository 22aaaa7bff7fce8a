// A selector, a partitioner and an exchange that are chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// An exchange chosen at run time. A collective that the communicator lacks throws communication_error.
template <class... Types>
struct any_exchange : detail::any_policy<Types...> {
  static constexpr exchange_traits traits{};  ///< the rules for the chosen one are any_recipe.hpp's

  template <class Workspace>
  class buffers {
   public:
    buffers() = default;
    /// Those of the chosen exchange.
    explicit buffers(any_exchange const& how) { choose(how, std::index_sequence_for<Types...>{}); }

    template <class Codec>
    void reserve(Workspace& work, Codec const& how, message_info const info, int world, std::uint64_t capacity,
                 bool disjoint) {
      std::visit([&](auto& it) { it.reserve(work, how, info, world, capacity, disjoint); }, chosen_);
    }
    [[nodiscard]] std::uint64_t most_sent() const noexcept {
      return std::visit([](auto const& it) { return it.most_sent(); }, chosen_);
    }
    template <class Comm, class Codec>
    exchange_result run(exchange_round<Comm, Workspace, Codec> const& round) {
      return std::visit([&](auto& it) { return it.run(round); }, chosen_);
    }

   private:
    template <std::size_t... Place>
    void choose(any_exchange const& how, std::index_sequence<Place...>) {
      (make<Place>(std::get_if<Place>(&how.chosen)), ...);
    }
    template <std::size_t Place, class Exchange>
    void make(Exchange const* how) {
      using made = typename Exchange::template buffers<Workspace>;
      if (how != nullptr) chosen_.template emplace<Place>(detail::exchange_buffers_of<made>(*how));
    }
    std::variant<typename Types::template buffers<Workspace>...> chosen_;
  };

  friend bool operator==(any_exchange const&, any_exchange const&) = default;
};

/// A partitioner chosen at run time. The recipe names its exchange. Its traits do not tell layers and owners: an
/// exchange or a selector that depends on them checks when it runs. It needs norms if any of its types does, and its
/// owners rotate only if those of all types do.
template <class... Types>
struct any_partitioner : detail::any_policy<Types...> {
  using default_exchange = gather;
  static constexpr partitioner_traits traits{.needs_norms = (Types::traits.needs_norms || ...),
                                             .rotates = (Types::traits.rotates && ...)};  ///< of one, and of all
  void split(std::span<range const> layers, int world, segment_list& list) const {
    this->with_chosen([&](auto const& it) { it.split(layers, world, list); });
  }
  void assign(std::span<segment> segments, std::span<double const> squared_norms, step_budget const budget,
              partition_scratch& scratch) const {
    this->with_chosen([&](auto const& it) { it.assign(segments, squared_norms, budget, scratch); });
  }
  friend bool operator==(any_partitioner const&, any_partitioner const&) = default;
};

namespace detail {

/// Any workspace or preview, for predict(), which only draws samples.
struct any_preview {
  void* view;
  key_sample (*draw)(void*, accumulator_ref const&, std::uint64_t, std::uint64_t);

  [[nodiscard]] key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    return draw(view, acc, count, seed);
  }
};

}  // namespace detail

/// A selector chosen at run time, with bins or without. Selects what the chosen one does. Cost: that one's and a branch
/// per segment; in bins a branch per tile.
template <class... Types>
struct any_selector : detail::any_policy<Types...> {
  [[nodiscard]] index_type capacity(index_type k) const {
    return this->with_chosen([&](auto const& it) { return selection_capacity(it, k); });
  }
  template <class View>
  [[nodiscard]] key_type predict(View& view, accumulator_ref const acc, index_type k) const {
    detail::any_preview any{&view, [](void* of, accumulator_ref const& in, std::uint64_t count, std::uint64_t seed) {
                              return static_cast<View*>(of)->sample(in, count, seed);
                            }};
    return predict_by(any, acc, k);
  }
  template <class Workspace>
  [[nodiscard]] index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    return this->with_chosen([&](auto const& it) { return gradsieve::select(it, work, acc, k, out); });
  }
  friend bool operator==(any_selector const&, any_selector const&) = default;

 private:
  [[nodiscard]] key_type predict_by(detail::any_preview& view, accumulator_ref const acc, index_type k) const {
    return this->with_chosen([&](auto const& it) { return predict_candidate_threshold(it, view, acc, k); });
  }
};

}  // namespace gradsieve
