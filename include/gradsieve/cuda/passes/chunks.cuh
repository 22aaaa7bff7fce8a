// The candidates of large segments in chunks, a block each.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Whether several blocks search a segment with `found` candidates in a list with that capacity.
[[nodiscard]] __device__ inline bool is_shared_out(std::uint64_t found, std::uint32_t capacity,
                                                   choice_tables const& c) {
  return c.shared_count > 0 && found > larger(most_alone, c.chunk) && found <= capacity;
}

/// The segments that several blocks search and that a chunk has candidates of. By all threads of a block.
struct chunk_segments {
  std::uint32_t ids[2];
  std::uint32_t count;

  __device__ void find(tables const& t, choice_tables const& c, std::uint32_t chunk) {
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    std::uint64_t const begin = std::uint64_t{chunk} * c.chunk;
    for (std::uint32_t s = threadIdx.x; s < t.segment_count; s += choose_threads) {
      auto const& mine = t.segments[s];
      std::uint64_t const found = t.found[s];
      if (is_shared_out(found, mine.capacity, c) && mine.base < begin + c.chunk && mine.base + found > begin)
        ids[atomicAdd(&count, 1u)] = s;
    }
    __syncthreads();
  }
};

/// A block's part of a segment's candidates.
struct chunk_part {
  std::uint32_t first;  // chunk
  std::uint32_t blocks;
  std::uint32_t begin;  // of the candidates
  std::uint32_t end;

  __device__ chunk_part(std::uint32_t from, std::uint32_t to, choice_tables const& c, std::uint32_t chunk)
      : first{from / c.chunk},
        blocks{(to - 1) / c.chunk - first + 1},
        begin{larger(from, chunk * c.chunk)},
        end{static_cast<std::uint32_t>(smaller<std::uint64_t>(to, (std::uint64_t{chunk} + 1) * c.chunk))} {}
};

}  // namespace gradsieve::cuda_kernels
