// The beginning of a kernel that may start while the kernel before it ends.
#pragma once

#include <cuda_runtime.h>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

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
