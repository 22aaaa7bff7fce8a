// Bytes and bit fields of messages, written and read by one thread of a kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Writes the lowest `bytes` bytes of a number, little-endian, at any alignment.
__device__ inline void put_bytes(std::byte* to, std::uint64_t number, unsigned bytes) {
  for (; bytes > 0; --bytes, number >>= 8) *to++ = static_cast<std::byte>(number & 0xFFu);
}

[[nodiscard]] __device__ inline std::uint64_t get_bytes(std::byte const* from, unsigned bytes) {
  std::uint64_t number = 0;
  for (unsigned b = 0; b < bytes; ++b) number |= static_cast<std::uint64_t>(from[b]) << (8 * b);
  return number;
}

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

/// Reads what pack_group() wrote: calls take(f, field). Returns true if the bits after the last field are zero.
template <class Take>
__device__ bool unpack_group(unsigned fields, unsigned width, std::byte const* from, Take const& take) {
  std::uint64_t pending = 0;
  unsigned bits = 0;
  for (unsigned f = 0; f < fields; ++f) {
    for (; bits < width; bits += 8) pending |= static_cast<std::uint64_t>(*from++) << bits;
    take(f, static_cast<std::uint32_t>(pending) & wire::low_bits(width));
    pending >>= width;
    bits -= width;
  }
  return pending == 0;
}

/// Reads a field of `width` <= 8 bits that begins at `bit`.
[[nodiscard]] __device__ inline std::uint32_t field_at(std::byte const* from, std::uint64_t bit, unsigned width) {
  std::byte const* const at = from + bit / 8;
  unsigned const shift = bit % 8;
  auto bits = static_cast<std::uint32_t>(at[0]);
  if (shift + width > 8) bits |= static_cast<std::uint32_t>(at[1]) << 8;
  return bits >> shift & wire::low_bits(width);
}

}  // namespace gradsieve::cuda_kernels
