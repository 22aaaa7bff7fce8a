// Exchanges that are chosen at run time, on a device: those that have a part there.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include <gradsieve/cuda.cuh>
#include <gradsieve/published.cuh>
#include <gradsieve/run_time/any_policies.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
namespace detail {

/// True if an exchange has a part on a device.
template <class Exchange>
struct exchange_runs_there : std::bool_constant<requires { sizeof(device_exchange<Exchange, coo>); }> {};

}  // namespace detail

/// @pre the chosen exchange runs on a device, see detail::check_device()
template <class... Types, class Codec>
class device_exchange<any_exchange<Types...>, Codec> {
 public:
  device_exchange() = default;
  explicit device_exchange(any_exchange<Types...> const& how) {
    std::visit(
        [&]<class E>(E const& it) {
          if constexpr (detail::exchange_runs_there<E>::value)
            chosen_.template emplace<device_exchange<E, Codec>>(
                detail::exchange_buffers_of<device_exchange<E, Codec>>(it));
        },
        how.chosen);
  }

  void reserve(cuda_workspace const& work, Codec const& how, message_info const info, int world, std::uint64_t most,
               bool disjoint) {
    std::visit([&](auto& it) { it.reserve(work, how, info, world, most, disjoint); }, chosen_);
  }
  [[nodiscard]] std::uint64_t most_sent() const noexcept {
    return std::visit([](auto const& it) { return it.most_sent(); }, chosen_);
  }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept {
    return std::visit([](auto const& it) { return it.list(); }, chosen_);
  }

  [[nodiscard]] bool has_places() const noexcept {
    return std::visit([](auto const& it) { return detail::has_places(it); }, chosen_);
  }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    return std::visit([&](auto& it) { return it.run(round); }, chosen_);
  }

 private:
  template <class... Exchanges>
  using one_of = std::variant<device_exchange<Exchanges, Codec>...>;
  detail::any_of<one_of, detail::those_of<detail::exchange_runs_there, type_list<Types...>>> chosen_;
};
/// @endcond

}  // namespace gradsieve
