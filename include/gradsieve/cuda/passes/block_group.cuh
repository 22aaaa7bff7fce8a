// Threads of one block that search together.
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

struct block_shared_state {
  using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, group_threads, CUB_NS_QUALIFIER::BLOCK_SCAN_WARP_SCANS>;
  using reducer = CUB_NS_QUALIFIER::BlockReduce<tile_sums, group_threads>;
  union {
    scanner::TempStorage scan;
    reducer::TempStorage reduce;
  };
  alignas(16) std::uint32_t histogram[detail::digit_search::bins];
  tile_sums sums;
  std::uint32_t bin;
  std::uint32_t here;
  std::uint64_t above;
};

/// A block's group_threads threads. All call each member, with equal arguments unless these are a thread's own, for
/// equal results.
class block_group {
 public:
  __device__ explicit block_group(block_shared_state& here) : here_{here} {}

  /// Sum of the threads' own numbers.
  [[nodiscard]] __device__ std::uint64_t block_sum(std::uint64_t own) {
    std::uint64_t before = 0;
    return block_sum(own, before);
  }

  /// Sum of the threads' own numbers. `before`: of the threads before this one.
  [[nodiscard]] __device__ std::uint64_t block_sum(std::uint64_t own, std::uint64_t& before) {
    std::uint64_t total = 0;
    block_shared_state::scanner{here_.scan}.ExclusiveSum(own, before, total);
    __syncthreads();
    return total;
  }

  /// Combines the threads' own sums, in a fixed order.
  [[nodiscard]] __device__ tile_sums block_sum(tile_sums const& own) {
    auto const total = block_shared_state::reducer{here_.reduce}.Reduce(own, tile_sums::both);
    if (threadIdx.x == 0) here_.sums = total;
    __syncthreads();
    tile_sums const result = here_.sums;
    __syncthreads();
    return result;
  }

  __device__ void clear_histogram() {
    for (unsigned b = threadIdx.x; b < detail::digit_search::bins; b += group_threads) here_.histogram[b] = 0;
    __syncthreads();
  }

  /// Counts the thread's own bin, or `bins` for none; once per warp if its bins agree, as with many equal keys.
  __device__ void count(std::uint32_t bin) {
    std::uint32_t const first = __shfl_sync(~0u, bin, 0);
    if (__all_sync(~0u, bin == first)) {
      if (threadIdx.x % 32 == 0 && bin < detail::digit_search::bins) atomicAdd(&here_.histogram[bin], 32u);
    } else if (bin < detail::digit_search::bins) {
      atomicAdd(&here_.histogram[bin], 1u);
    }
  }

  /// Narrows the search to the bin with the wanted rank; returns its number of keys. Thread 0 has the topmost bins.
  __device__ std::uint32_t find(detail::digit_search& search) {
    std::uint32_t const top = detail::digit_search::bins - threadIdx.x * bins_each;
    std::uint64_t own = 0;
    for (unsigned b = 1; b <= bins_each; ++b) own += here_.histogram[top - b];
    std::uint64_t above = 0;
    std::uint64_t const total = block_sum(own, above);
    if (total < search.wanted()) {
      search.keep_everything();
      __syncthreads();
      return 0;
    }
    if (above < search.wanted() && search.wanted() <= above + own) {
      std::uint32_t bin = top - 1;
      while (above + here_.histogram[bin] < search.wanted()) above += here_.histogram[bin--];
      here_.bin = bin;
      here_.above = above;
      here_.here = here_.histogram[bin];
    }
    __syncthreads();
    std::uint32_t const count = here_.here;
    search.narrow(here_.bin, here_.above, count);
    __syncthreads();
    return count;
  }

 protected:
  block_shared_state& here_;

 private:
  static constexpr unsigned bins_each = detail::digit_search::bins / group_threads;
};

}  // namespace gradsieve::cuda_kernels
