// An exchange that is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// An exchange chosen at run time. What the communicator lacks is thrown by its call, as communication_error.
template <class... Types>
struct any_exchange : detail::any_policy<Types...> {
  static constexpr exchange_traits traits{};  ///< the rules for the chosen one are fitting.hpp's

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
      ((how.chosen.index() == Place ? void(chosen_.template emplace<Place>()) : void()), ...);
    }
    std::variant<typename Types::template buffers<Workspace>...> chosen_;
  };

  friend bool operator==(any_exchange const&, any_exchange const&) = default;
};

}  // namespace gradsieve
