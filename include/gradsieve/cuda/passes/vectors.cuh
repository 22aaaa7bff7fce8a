// Several neighbours in one load or store.
#pragma once

#include <type_traits>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Neighbours in one load or store.
template <class T, unsigned Width>
struct alignas(sizeof(T) * Width) pack {
  T values[Width];
};

/// In one load, past caches that will not need it again.
template <unsigned Width, class T>
[[nodiscard]] __device__ __forceinline__ pack<T, Width> load_once(T const* from) {
  using word = std::conditional_t<sizeof(pack<T, Width>) == load_bytes, uint4, uint2>;
  return __builtin_bit_cast(pack<T, Width>, __ldcs(reinterpret_cast<word const*>(from)));
}

}  // namespace gradsieve::cuda_kernels
