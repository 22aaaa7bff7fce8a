// A selector that is chosen at run time.
#pragma once

#include <cstdint>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// Any workspace or preview, for predict(): it draws samples and nothing else.
struct any_preview {
  void* view;
  key_sample (*draw)(void*, accumulator_ref const&, std::uint64_t, std::uint64_t);

  [[nodiscard]] key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    return draw(view, acc, count, seed);
  }
};

}  // namespace detail

/// A selector chosen at run time, with bins or without. Selects what the chosen one does. Cost: that one's and a branch
/// a segment; in bins a branch a tile.
template <class... Types>
struct any_selector : detail::any_policy<Types...> {
  [[nodiscard]] index_type capacity(index_type k) const {
    return std::visit([&](auto const& it) { return selection_capacity(it, k); }, this->chosen);
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
    return std::visit([&](auto const& it) { return gradsieve::select(it, work, acc, k, out); }, this->chosen);
  }
  friend bool operator==(any_selector const&, any_selector const&) = default;

 private:
  [[nodiscard]] key_type predict_by(detail::any_preview& view, accumulator_ref const acc, index_type k) const {
    return std::visit([&](auto const& it) { return predict_candidate_threshold(it, view, acc, k); }, this->chosen);
  }
};

}  // namespace gradsieve
