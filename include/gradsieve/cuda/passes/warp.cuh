// Sums and maxima over the lanes of a full warp: one instruction where the architecture has it (sm_80), else shuffles.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

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

/// Sum of the lanes' integers up to and with the own lane's.
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
