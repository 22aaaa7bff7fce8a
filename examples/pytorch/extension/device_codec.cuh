// any_codec on a device: one of those that have a device half, chosen at run time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include <gradsieve/cuda.cuh>
#include <gradsieve/published.cuh>

#include "any_codec.hpp"

namespace example {

/// Whether messages of this codec are written and read on a device; see README of the library.
template <class Codec>
inline constexpr bool runs_on_device = false;
template <>
inline constexpr bool runs_on_device<gs::coo> = true;
template <class Values>
inline constexpr bool runs_on_device<gs::packed<gs::raw32, Values>> = true;
template <class Values>
inline constexpr bool runs_on_device<gs::packed<gs::fixed_width, Values>> = true;
template <>
inline constexpr bool runs_on_device<gs::packed<gs::raw32, gs::sbc>> = false;
template <>
inline constexpr bool runs_on_device<gs::packed<gs::fixed_width, gs::sbc>> = false;
template <>
inline constexpr bool runs_on_device<gs::packed<gs::raw32, gs::automatic_values>> = false;
template <>
inline constexpr bool runs_on_device<gs::packed<gs::fixed_width, gs::automatic_values>> = false;

}  // namespace example

namespace gradsieve {

/// Memory: that of the codec that was chosen.
template <>
class device_codec<example::any_codec> {
 public:
  void reserve_writing(cuda_workspace const& work, example::any_codec const& how, layout const& layers,
                       std::uint64_t most) {
    most_ = most;
    choose(how, [&](auto& on_device, auto const& codec) { on_device.reserve_writing(work, codec, layers, most); });
  }
  void reserve_reading(cuda_workspace const& work, example::any_codec const& how, layout const& layers,
                       std::uint64_t most, std::uint32_t senders) {
    choose(how,
           [&](auto& on_device, auto const& codec) { on_device.reserve_reading(work, codec, layers, most, senders); });
  }

  void quantise(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond) const {
    std::visit(
        [&](auto const& how) {
          if constexpr (requires { how.quantise(work, info, own, limit, beyond); })
            how.quantise(work, info, own, limit, beyond);
          else
            saturate_entries(work, own, most_, limit, beyond);
        },
        chosen_);
  }
  void send(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
            float const* passthrough, device_message const& message,
            cuda_kernels::envelope_source const& envelope) const {
    std::visit([&](auto const& how) { how.send(work, info, own, passthrough, message, envelope); }, chosen_);
  }
  void receive(cuda_workspace const& work, message_info const& info, std::uint64_t capacity, device_messages const& in,
               cuda_kernels::update* updates, cuda_kernels::message_checks const& checks) const {
    std::visit([&](auto const& how) { how.receive(work, info, capacity, in, updates, checks); }, chosen_);
  }

 private:
  template <class Indices>
  using with = std::variant<
      device_codec<packed<Indices, fp32>>, device_codec<packed<Indices, fp16>>, device_codec<packed<Indices, bf16>>,
      device_codec<packed<Indices, int8>>, device_codec<packed<Indices, int4>>, device_codec<packed<Indices, int2>>,
      device_codec<packed<Indices, ternary>>, device_codec<packed<Indices, sign>>, device_codec<packed<Indices, qsgd>>>;
  template <class... A, class... B>
  static auto joined(std::variant<A...>, std::variant<B...>) -> std::variant<device_codec<coo>, A..., B...>;

  /// @pre the codec runs on a device
  template <class Body>
  void choose(example::any_codec const& how, Body const& body) {
    how.visit([&](auto const& codec) {
      using type = std::remove_cvref_t<decltype(codec)>;
      if constexpr (example::runs_on_device<type>) body(chosen_.emplace<device_codec<type>>(), codec);
    });
  }

  std::uint64_t most_ = 0;
  decltype(joined(with<raw32>{}, with<fixed_width>{})) chosen_;
};

}  // namespace gradsieve
