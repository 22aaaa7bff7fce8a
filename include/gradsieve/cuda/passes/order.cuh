// Order of kernels and blocks: kernels that start before the previous one ends, and work for a launch's last block.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// A word that other blocks write meanwhile.
template <class T>
[[nodiscard]] __device__ T as_it_is_now(T const& word) {
  return *const_cast<T const volatile*>(&word);
}

/// True in the last of `blocks` blocks to come here, which then sees what the others wrote before they came. `tickets`
/// is zero before the first and after the last. By all threads of a block.
[[nodiscard]] __device__ inline bool is_last_block(std::uint32_t* tickets, std::uint32_t blocks = gridDim.x) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(tickets, blocks - 1) == blocks - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/// First statement of a kernel that launch_early() launches, by all threads: lets the next kernel start, which waits in
/// the same way, and waits until everything before this kernel has ended and can be read. Empty in code for less than
/// sm_90, which launch_early() launches as any other kernel.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

}  // namespace gradsieve::cuda_kernels
