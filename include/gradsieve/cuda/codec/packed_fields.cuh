// Bytes and bit fields of messages, written and read by one thread of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

inline constexpr unsigned group_fields = 8;  ///< fields per thread, which begin and end at a byte

/// Number of fields in group `g`, of `count` fields in all.
[[nodiscard]] __device__ inline unsigned fields_of_group(std::uint64_t g, std::uint64_t count) {
  std::uint64_t const first = g * group_fields;
  return first >= count ? 0 : static_cast<unsigned>(smaller<std::uint64_t>(group_fields, count - first));
}

/// Writes field(0) to field(fields - 1) of `width` <= 32 bits as wire::pack() does.
template <class Field>
__device__ void pack_group(unsigned fields, unsigned width, std::byte* to, Field const& field) {
  std::uint64_t pending = 0;
  unsigned bits = 0;
  for (unsigned f = 0; f < fields; ++f) {
    pending |= std::uint64_t{field(f)} << bits;
    for (bits += width; bits >= 8; bits -= 8, pending >>= 8) *to++ = static_cast<std::byte>(pending & 0xFFu);
  }
  if (bits > 0) *to = static_cast<std::byte>(pending);
}

/// Writes the lowest bits of number(0) to number(count - 1) as wire::pack() does. By all threads of a launch.
template <class Number>
__device__ void write_fields(std::uint64_t count, unsigned width, std::byte* to, Number const& number) {
  for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    pack_group(fields_of_group(g, count), width, to + g * width,
               [&](unsigned f) { return number(g * group_fields + f) & wire::low_bits(width); });
  });
}

/// Field `p`, of `width` <= 32 bits.
[[nodiscard]] __device__ inline std::uint32_t packed_field(std::byte const* from, std::uint64_t p, unsigned width) {
  std::uint64_t const bit = p * width;
  auto const shift = static_cast<unsigned>(bit % 8);
  return static_cast<std::uint32_t>(load_word(from + bit / 8, (shift + width + 7) / 8) >> shift) &
         wire::low_bits(width);
}

/// True if the bits behind `count` fields, up to the end of a byte, are zero.
[[nodiscard]] __device__ inline bool padding_is_zero(std::byte const* from, std::uint64_t count, unsigned width) {
  std::uint64_t const bits = count * width;
  return bits % 8 == 0 || static_cast<unsigned>(from[bits / 8]) >> (bits % 8) == 0;
}

/// Place of the set bit before which `rank` others are set. @pre there is one
[[nodiscard]] __device__ inline unsigned place_of_bit(std::uint64_t word, unsigned rank) {
  unsigned place = 0;
#pragma unroll
  for (unsigned half = 32; half > 0; half /= 2) {
    auto const below = static_cast<unsigned>(__popcll(word & ((std::uint64_t{1} << half) - 1)));
    if (rank < below) continue;
    rank -= below;
    word >>= half;
    place += half;
  }
  return place;
}

}  // namespace gradsieve::cuda_kernels
