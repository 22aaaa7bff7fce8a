// Work for the last block of a launch, in place of a launch of its own.
#pragma once

#include <cstdint>

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

}  // namespace gradsieve::cuda_kernels
