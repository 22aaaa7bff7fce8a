// The order of kernels and of their blocks: a kernel that may start while the one before it ends, and work for the last
// block of a launch, in place of a launch of its own.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Whether this block is the last of `blocks` to come here: it then sees what the others wrote before they came.
/// `tickets` is zero before the first and after the last. By all threads of a block.
[[nodiscard]] __device__ inline bool is_last_block(std::uint32_t* tickets, std::uint32_t blocks = gridDim.x) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(tickets, blocks - 1) == blocks - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

/// First of all in a kernel that launch_early() launches, by all threads: lets the next kernel start, which waits in the
/// same way, and waits until everything before this kernel has ended and can be read. Nothing where there is no such
/// launch: kernel_list::is_for_sm_90() asks for what this was compiled for.
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
  cudaGridDependencySynchronize();
#endif
}

}  // namespace gradsieve::cuda_kernels
