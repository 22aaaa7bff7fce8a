// Reductions over full warps, loads of vectors and at any address, binary searches. One instruction where sm_80 has
// one, else shuffles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Number of leading places, of `count`, with before(place). Binary search.
template <class Before>
[[nodiscard]] __device__ std::uint64_t count_before(std::uint64_t count, Before const& before) {
  std::uint64_t low = 0;
  while (count > 0) {
    std::uint64_t const half = count / 2;
    bool const here = before(low + half);
    low = here ? low + half + 1 : low;
    count = here ? count - half - 1 : half;
  }
  return low;
}

/// Place of the first of `count` rising numbers that is not below `bound`; `count` if there is none.
template <class T>
[[nodiscard]] __device__ std::uint64_t first_not_below(T const* numbers, std::uint64_t count, std::uint64_t bound) {
  return count_before(count, [&](std::uint64_t i) { return numbers[i] < bound; });
}

/// Adjacent elements, for one load or store.
template <class T, unsigned Width>
struct alignas(sizeof(T) * Width) pack {
  T values[Width];
};

/// One load that bypasses caches which will not need the data again.
template <unsigned Width, class T>
[[nodiscard]] __device__ __forceinline__ pack<T, Width> load_once(T const* from) {
  using word = std::conditional_t<sizeof(pack<T, Width>) == load_bytes, uint4, uint2>;
  return __builtin_bit_cast(pack<T, Width>, __ldcs(reinterpret_cast<word const*>(from)));
}

/// Up to eight bytes from any address on, the first lowest; those from `left` on are zero.
[[nodiscard]] __device__ inline std::uint64_t load_word(std::byte const* at, std::uint64_t left) {
  auto const address = reinterpret_cast<std::uintptr_t>(at);
  if (address % 8 == 0 && left >= 8) return *reinterpret_cast<std::uint64_t const*>(at);
  if (left >= 12) {
    auto const* const words = reinterpret_cast<std::uint32_t const*>(address / 4 * 4);
    auto const shift = static_cast<unsigned>(address % 4 * 8);
    std::uint32_t const middle = words[1];
    return __funnelshift_r(words[0], middle, shift) |
           static_cast<std::uint64_t>(__funnelshift_r(middle, words[2], shift)) << 32;
  }
  std::uint64_t word = 0;
  for (unsigned b = 0; b < 8 && b < left; ++b) word |= static_cast<std::uint64_t>(at[b]) << (8 * b);
  return word;
}

template <unsigned Bytes>
using unit_of = std::conditional_t<
    Bytes == 8, std::uint64_t,
    std::conditional_t<Bytes == 4, std::uint32_t, std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>;
/// A value of Bytes bytes at any address.
template <unsigned Bytes>
[[nodiscard]] __device__ std::uint64_t load_value(std::byte const* from) {
  if (reinterpret_cast<std::uintptr_t>(from) % Bytes == 0) return *reinterpret_cast<unit_of<Bytes> const*>(from);
  return load_word(from, Bytes);
}
template <unsigned Bytes>
__device__ void store_value(std::byte* to, std::uint64_t value) {
  if (reinterpret_cast<std::uintptr_t>(to) % Bytes == 0)
    *reinterpret_cast<unit_of<Bytes>*>(to) = static_cast<unit_of<Bytes>>(value);
  else
    for (unsigned b = 0; b < Bytes; ++b) to[b] = static_cast<std::byte>(value >> (8 * b));
}

/// combine(a, b) over all lanes, which all get the result. `combine` is associative and commutative.
template <class T, class Combine>
[[nodiscard]] __device__ T warp_reduce(T own, Combine const& combine) {
  for (unsigned step = 16; step > 0; step /= 2) own = combine(own, __shfl_xor_sync(~0u, own, step));
  return own;
}

/// Sum of the lanes' integers, which all lanes get.
template <class T>
[[nodiscard]] __device__ T warp_sum(T own) {
  static_assert(std::is_unsigned_v<T>, "a sum of floating-point numbers would depend on the order");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 4) return __reduce_add_sync(~0u, own);
#endif
  return warp_reduce(own, [](T a, T b) { return a + b; });
}

/// Inclusive prefix sum of the lanes' integers.
template <class T>
[[nodiscard]] __device__ T warp_prefix_sum(T own) {
  for (unsigned step = 1; step < 32; step *= 2) {
    T const other = __shfl_up_sync(~0u, own, step);
    if (threadIdx.x % 32 >= step) own += other;
  }
  return own;
}

/// The largest of the lanes' integers, which all lanes get.
[[nodiscard]] __device__ inline std::uint32_t warp_max(std::uint32_t own) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(~0u, own);
#else
  return warp_reduce(own, [](std::uint32_t a, std::uint32_t b) { return larger(a, b); });
#endif
}

}  // namespace gradsieve::cuda_kernels
