// Members that a value codec of `packed` needs on a device, and codecs with whole bytes per value.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How a value codec runs on a device; specialise it for your own. reserve_writing(work, how, layers, most) and
/// reserve_reading(work, how, layers, most, senders) allocate; quantise(work, info, own, limit, beyond) is optional, as
/// in device_codec; prepare(work, own) is called before part().write, and prepare(work, in, places) before part().value
/// if that needs_indices. part() returns a small value for kernels, with
///   needs_indices: true if the indices of all entries must be decoded first;
///   of_row(row, n), optional: the part of that message, about n elements, of several that a launch writes; then
///     reserve_writing() and quantise() have a further argument, as in device_codec;
///   bytes(count, sender): size of the part of a message;
///   write(own, count, to): by all threads of a row of blocks;
///   well_formed(part, count, sender, team): by all threads of a thread_team; false in a thread that finds a fault;
///   value(part, count, sender, p, i, good): of entry p, whose index is i; sets good to false if there is none.
/// The caller checks that values are finite.
template <class Values>
class device_values;

namespace cuda_kernels {

/// A value as `width` whole bytes.
template <class Values>
struct value_bytes;
template <>
struct value_bytes<fp32> {
  static constexpr unsigned width = 4;
  [[nodiscard]] static __device__ std::uint32_t write(float x) { return gradsieve::bit_cast<std::uint32_t>(x); }
  [[nodiscard]] static __device__ float read(std::uint32_t bits) { return gradsieve::bit_cast<float>(bits); }
};
template <class Format>
struct value_bytes<half_values<Format>> {
  static constexpr unsigned width = 2;
  [[nodiscard]] static __device__ std::uint32_t write(float x) { return half_values<Format>::rounded(x).bits; }
  [[nodiscard]] static __device__ float read(std::uint32_t bits) {
    return to_float(Format{static_cast<std::uint16_t>(bits)});
  }
};

template <class Values>
struct plain_values_part {
  using format = value_bytes<Values>;
  static constexpr bool needs_indices = false;

  [[nodiscard]] static __device__ plain_values_part of_row(std::uint32_t, std::uint64_t) { return {}; }
  [[nodiscard]] static __device__ std::uint64_t bytes(std::uint64_t count, std::uint32_t) {
    return format::width * count;
  }
  static __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) {
    for_each(count, [&](std::uint64_t p) {
      store_value<format::width>(to + format::width * p, format::write(own.values[p]));
    });
  }
  [[nodiscard]] static __device__ bool well_formed(std::byte const*, std::uint64_t, std::uint32_t, thread_team const&) {
    return true;
  }
  [[nodiscard]] static __device__ float value(std::byte const* part, std::uint64_t, std::uint32_t, std::uint64_t p,
                                              index_type, bool&) {
    return format::read(static_cast<std::uint32_t>(load_value<format::width>(part + format::width * p)));
  }
};

template <class Values>
__global__ void round_values(message_rows const rows, entry_list const first, float limit, std::uint64_t* beyond) {
  wait_for_previous();
  using format = value_bytes<Values>;
  auto const own = rows.list(first);
  for_each(*own.count, [&](std::uint64_t p) {
    own.values[p] = format::read(format::write(saturated(own.values[p], limit, beyond)));
  });
}

}  // namespace cuda_kernels

/// Values of a fixed number of bytes each.
template <class Values>
class device_plain_values {
 public:
  void reserve_writing(cuda_workspace const&, Values const&, layout const&, std::uint64_t most, std::uint32_t = 1) {
    most_ = most;
  }
  static void reserve_reading(cuda_workspace const&, Values const&, layout const&, std::uint64_t,
                              std::uint32_t) noexcept {}

  void quantise(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond, cuda_kernels::message_rows const& rows = {}) const
    requires(cuda_kernels::value_bytes<Values>::width < sizeof(float))
  {
    work.over_early<cuda_kernels::round_values<Values>>({most_, rows.count}, rows, own, limit, beyond);
  }
  static void prepare(cuda_workspace const&, cuda_kernels::entry_list const&) noexcept {}
  [[nodiscard]] static cuda_kernels::plain_values_part<Values> part() noexcept { return {}; }

 private:
  std::uint64_t most_ = 0;
};

template <>
class device_values<fp32> : public device_plain_values<fp32> {};
template <class Format>
class device_values<half_values<Format>> : public device_plain_values<half_values<Format>> {};

}  // namespace gradsieve
