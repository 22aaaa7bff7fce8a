// Value codecs with one scale per block of entries, on a device; bytes as on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/codec/value/block_scaled.hpp>
#include <gradsieve/codec/value/sign.hpp>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/codec/value_codec.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// Calls body(b) for b < count, one warp each.
template <class Body>
__device__ void for_each_by_warps(thread_team const& team, std::uint64_t count, Body const& body) {
  team.for_each(32 * count, [&](std::uint64_t i) { body(i / 32); });
}

/// A block format that rounds at random, by the random stream stream_of(layout hash, step, rank).
template <class Format>
concept rounds_at_random = requires(Format const f) { f.stream_of(std::uint64_t{}, std::uint64_t{}, std::uint32_t{}); };

/// A list of `count` entries in blocks of `length`, which share a scale.
struct entry_blocks {
  std::uint64_t count;  // entries
  std::uint32_t length;

  [[nodiscard]] __device__ std::uint64_t size() const { return (count + length - 1) / length; }

  /// Calls body(p) for each entry of a block, by one warp.
  template <class Body>
  __device__ void for_each_entry(std::uint64_t block, Body const& body) const {
    std::uint64_t const first = block * length;
    std::uint64_t const end = smaller(count, first + length);
    for (std::uint64_t p = first + threadIdx.x % 32; p < end; p += 32) body(p);
  }
  [[nodiscard]] __device__ std::uint64_t size_of(std::uint64_t block) const {
    return smaller<std::uint64_t>(length, count - block * length);
  }
};

/// Layout in a message: all scales, then a code per entry.
template <class Format>
struct block_values_part {
  static constexpr bool needs_indices = false;

  Format format;
  std::uint32_t* scales;  // of the entries to write
  std::uint64_t most;     // scales of a message

  [[nodiscard]] __device__ block_values_part of_row(std::uint32_t row, std::uint64_t) const {
    return {format, scales + row * most, most};
  }
  [[nodiscard]] __device__ entry_blocks blocks(std::uint64_t count) const { return {count, format.block}; }
  [[nodiscard]] __device__ std::uint64_t scales_bytes(std::uint64_t count) const {
    return Format::scale_bytes * blocks(count).size();
  }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count, std::uint32_t) const {
    return scales_bytes(count) + wire::packed_bytes(count, format.width());
  }
  [[nodiscard]] __device__ std::uint32_t block_of(std::uint64_t p) const {
    return static_cast<std::uint32_t>(p) / format.block;
  }

  __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) const {
    for_each(blocks(count).size(),
             [&](std::uint64_t b) { store_value<Format::scale_bytes>(to + Format::scale_bytes * b, scales[b]); });
    std::byte* const codes = to + scales_bytes(count);
    write_fields(count, format.width(), codes,
                 [&](std::uint64_t p) { return format.code_of(own.values[p], own.indices[p], scales[block_of(p)]); });
  }

  [[nodiscard]] __device__ std::uint32_t scale(std::byte const* part, std::uint64_t block) const {
    return static_cast<std::uint32_t>(load_value<Format::scale_bytes>(part + Format::scale_bytes * block));
  }
  [[nodiscard]] __device__ std::uint32_t code(std::byte const* codes, std::uint64_t p) const {
    return packed_field(codes, p, format.width());
  }

  [[nodiscard]] __device__ bool well_formed(std::byte const* part, std::uint64_t count, std::uint32_t,
                                            thread_team const& team) const {
    std::byte const* const codes = part + scales_bytes(count);
    bool good = true;
    for_each_by_warps(team, blocks(count).size(), [&](std::uint64_t b) {
      auto const scale_here = scale(part, b);
      bool filled = false;
      blocks(count).for_each_entry(
          b, [&](std::uint64_t p) { filled = filled || format.fills(code(codes, p), scale_here); });
      good = __any_sync(~0u, filled ? 1 : 0) != 0 && good;
    });
    if (team.thread == 0) good = padding_is_zero(codes, count, format.width()) && good;
    return good;
  }

  [[nodiscard]] __device__ float value(std::byte const* part, std::uint64_t count, std::uint32_t, std::uint64_t p,
                                       index_type i, bool& good) const {
    auto const scale_here = scale(part, block_of(p));
    auto const code_here = code(part + scales_bytes(count), p);
    good = format.is_code(code_here, i, scale_here);
    return good ? format.value_of(code_here, scale_here) : 0.0f;
  }
};

/// One warp per block: clamps to +-limit, finds the scale, rounds. The step is *steps - 1, or 0 before the first step.
template <class Format>
__global__ void round_blocks(message_rows const rows, message_info const info, entry_list const first,
                             block_values_part<Format> const to, std::uint64_t const* steps, float limit,
                             std::uint64_t* beyond) {
  wait_for_previous();
  auto const own = rows.list(first);
  auto const format = to.format;
  auto* const scales = to.of_row(blockIdx.y, 0).scales;
  entry_blocks const blocks{*own.count, format.block};
  std::uint64_t random = 0;
  if constexpr (rounds_at_random<Format>)
    random = format.stream_of(rows.about(info).layout_hash, *steps - (*steps == 0 ? 0u : 1u), info.rank);
  for_each_by_warps(whole_launch(), blocks.size(), [&](std::uint64_t b) {
    key_type largest = 0;
    blocks.for_each_entry(b, [&](std::uint64_t p) {
      float const x = saturated(own.values[p], limit, beyond);
      own.values[p] = x;
      largest = larger(largest, magnitude_key(x));
    });
    largest = warp_max(largest);
    std::uint32_t scale = 0;
    if constexpr (requires { format.scale_of(largest); }) {
      scale = format.scale_of(largest);
    } else if (largest != 0) {
      unsigned const top = larger(largest >> 23, 1u);
      std::uint64_t units = 0;
      blocks.for_each_entry(b, [&](std::uint64_t p) { units += wire::in_units(magnitude_key(own.values[p]), top); });
      scale = format.mean_scale_of(warp_sum(units), blocks.size_of(b), top);
    }
    auto const code = [&, random](std::uint64_t p) {
      if constexpr (rounds_at_random<Format>)
        return format.code_of(own.values[p], own.indices[p], scale, random);
      else
        return format.code_of(own.values[p], own.indices[p], scale);
    };
    blocks.for_each_entry(b, [&](std::uint64_t p) { own.values[p] = format.value_of(code(p), scale); });
    if (threadIdx.x % 32 == 0) scales[b] = scale;
  });
}

}  // namespace cuda_kernels

/// A value codec with scales and codes. Its block format has: `block` entries share a scale of `scale_bytes` bytes, and
/// each has a code of width() bits;
///   scale_of(largest): scale of a block with this largest key; or mean_scale_of(units, count, top): from the sum of
///     its entries' in_units();
///   code_of(x, i, scale), value_of(code, scale): encode and decode; i is the entry's index. A format that rounds at
///     random has stream_of(layout hash, step, rank), whose result is a fourth argument of code_of() when values are
///     rounded;
///   is_code(code, i, scale): true if code_of() writes this code; fills(code, scale): true if the scale can be that of
///     a block whose largest code this is.
/// Memory: 4 bytes per block to write. quantise() keeps the scales that part().write() puts into the message.
template <class Format>
class device_block_values {
 public:
  void reserve_writing(cuda_workspace const& work, Format const& format, layout const&, std::uint64_t most,
                       std::uint32_t messages = 1) {
    format_ = format;
    blocks_ = (most + format.block - 1) / format.block;
    scales_ = work.zeroed<std::uint32_t>(blocks_ * messages);
  }
  void reserve_reading(cuda_workspace const&, Format const& format, layout const&, std::uint64_t,
                       std::uint32_t) noexcept {
    format_ = format;
  }

  void quantise(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond, cuda_kernels::message_rows const& rows = {}) const {
    work.over_early<cuda_kernels::round_blocks<Format>>({32 * blocks_, rows.count}, rows, info, own, part(),
                                                        work.step().data(), limit, beyond);
  }
  static void prepare(cuda_workspace const&, cuda_kernels::entry_list const&) noexcept {}
  [[nodiscard]] cuda_kernels::block_values_part<Format> part() const noexcept {
    return {format_, scales_.data(), blocks_};
  }

 private:
  Format format_{};
  std::uint64_t blocks_ = 0;
  cuda_buffer<std::uint32_t> scales_;
};

template <unsigned Bits>
class device_values<block_scaled<Bits>> : public device_block_values<block_scaled<Bits>> {};
template <>
class device_values<sign> : public device_block_values<sign> {};

}  // namespace gradsieve
