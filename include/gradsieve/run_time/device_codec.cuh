// Codecs that are chosen at run time, on a device: those of which both parts run there.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include <gradsieve/cuda.cuh>
#include <gradsieve/cuda/codec/packed.cuh>
#include <gradsieve/published.cuh>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
namespace detail {

/// True if indices, or values, of packed have a part on a device.
template <class Indices>
struct indices_run_there : std::bool_constant<requires { sizeof(device_indices<Indices>); }> {};
template <class Values>
struct values_run_there : std::bool_constant<requires { sizeof(device_values<Values>); }> {};

template <class Indices, class Values>
struct device_codecs;
template <class... Indices, class... Values>
struct device_codecs<type_list<Indices...>, type_list<Values...>> {
  template <class Each>
  using with = type_list<device_codec<packed<Each, Values>>...>;
  using type = typename decltype((type_list<device_codec<coo>>{} + ... + with<Indices>{}))::variant;
};

}  // namespace detail

/// Memory: that of the chosen codec. @pre it runs on a device, see detail::check_device()
template <class... Indices, class... Values, class Summed>
class device_codec<any_codec<any_indices<Indices...>, any_values<Values...>, Summed>> {
  using codec_type = any_codec<any_indices<Indices...>, any_values<Values...>, Summed>;

 public:
  [[nodiscard]] bool writes_rows() const noexcept {
    return std::visit([](auto const& how) { return how.writes_rows(); }, chosen_);
  }
  void reserve_writing(cuda_workspace const& work, codec_type const& how, layout const& layers, std::uint64_t most,
                       std::uint32_t messages = 1) {
    most_ = most;
    choose(how,
           [&](auto& on_device, auto const& codec) { on_device.reserve_writing(work, codec, layers, most, messages); });
  }
  void reserve_reading(cuda_workspace const& work, codec_type const& how, layout const& layers, std::uint64_t most,
                       std::uint32_t senders) {
    choose(how,
           [&](auto& on_device, auto const& codec) { on_device.reserve_reading(work, codec, layers, most, senders); });
  }

  void quantise(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond, cuda_kernels::message_rows const& rows = {}) const {
    std::visit(
        [&](auto const& how) {
          if constexpr (requires { how.quantise(work, info, own, limit, beyond, rows); })
            how.quantise(work, info, own, limit, beyond, rows);
          else if (rows.count == 1)  // others are clamped already
            detail::saturate_entries(work, own, most_, limit, beyond);
        },
        chosen_);
  }
  void send(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
            float const* passthrough, device_message const& message,
            cuda_kernels::envelope_source const& envelope) const {
    std::visit([&](auto const& how) { how.send(work, info, own, passthrough, message, envelope); }, chosen_);
  }
  bool receive(cuda_workspace const& work, message_info const& info, std::uint64_t capacity, device_messages const& in,
               cuda_kernels::update* updates, cuda_kernels::message_checks const& checks,
               cuda_kernels::exchange_end const& end) const {
    return std::visit(
        [&](auto const& how) { return receive_and_end(how, work, info, capacity, in, updates, checks, end); }, chosen_);
  }

 private:
  using indices_there = detail::those_of<detail::indices_run_there, type_list<Indices...>>;
  using values_there = detail::those_of<detail::values_run_there, type_list<Values...>>;

  /// Replaces the codec by the chosen one and calls body(its device part, the codec).
  template <class Body>
  void choose(codec_type const& how, Body const& body) {
    auto const* const parts = std::get_if<packed<any_indices<Indices...>, any_values<Values...>>>(&how.chosen);
    if (parts == nullptr) return body(chosen_.template emplace<device_codec<coo>>(), coo{});
    std::visit(
        [&]<class Which, class What>(Which const& indices, What const& values) {
          if constexpr (detail::indices_run_there<Which>::value && detail::values_run_there<What>::value)
            body(chosen_.template emplace<device_codec<packed<Which, What>>>(), packed<Which, What>{indices, values});
        },
        parts->indices.chosen, parts->values.chosen);
  }

  std::uint64_t most_ = 0;
  typename detail::device_codecs<indices_there, values_there>::type chosen_;
};
/// @endcond

}  // namespace gradsieve
