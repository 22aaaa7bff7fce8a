// Threads that search together: one block, or all blocks of a cooperative launch.
#pragma once

#include <cooperative_groups.h>

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::cuda_kernels {

/// Device memory that the blocks of a launch share. Zero at first; every launch leaves the histogram of the next turn
/// zero.
struct grid_shared_state {
  std::uint32_t histogram[3][digit_search::bins];
  std::uint32_t turn;
  std::uint64_t words[2][most_blocks];
  tile_sums sums[2][most_blocks];
};

/// Shared memory of one block.
struct block_shared_state {
  using scanner = cub::BlockScan<std::uint64_t, group_threads>;
  using reducer = cub::BlockReduce<tile_sums, group_threads>;
  union {
    typename scanner::TempStorage scan;
    typename reducer::TempStorage reduce;
  };
  std::uint32_t histogram[digit_search::bins];
  std::uint64_t word;
  tile_sums sums;
  std::uint32_t bin;
  std::uint32_t here;
  std::uint64_t above;
};

/// A group of threads in step with each other: every thread calls every member, with the same arguments where a
/// comment does not say "own", and gets the same answer. All sums are of integers, or in an order that the launch's
/// number of blocks alone decides.
template <bool FullGrid>
class thread_group {
 public:
  __device__ thread_group(grid_shared_state& all, block_shared_state& here) : all_{&all}, here_{here}, turn_{all.turn} {}
  __device__ explicit thread_group(block_shared_state& here) : all_{nullptr}, here_{here}, turn_{0} {
    static_assert(!FullGrid);
  }

  [[nodiscard]] __device__ std::uint32_t block() const { return FullGrid ? blockIdx.x : 0; }
  [[nodiscard]] __device__ std::uint32_t blocks() const { return FullGrid ? gridDim.x : 1; }
  [[nodiscard]] __device__ std::uint32_t thread() const { return block() * group_threads + threadIdx.x; }
  [[nodiscard]] __device__ std::uint32_t threads() const { return blocks() * group_threads; }
  [[nodiscard]] __device__ bool is_first() const { return thread() == 0; }

  /// Waits for all; what they wrote before can be read after.
  __device__ void sync() const {
    if constexpr (FullGrid)
      cooperative_groups::this_grid().sync();
    else
      __syncthreads();
  }

  /// Sum of the threads' own numbers.
  [[nodiscard]] __device__ std::uint64_t sum(std::uint64_t own) {
    std::uint64_t before = 0;
    return sum_of_blocks(block_sum(own), before);
  }

  /// Sum of what the blocks bring, which all threads of a block know; `before`: of the blocks before this one.
  [[nodiscard]] __device__ std::uint64_t sum_of_blocks(std::uint64_t of_block, std::uint64_t& before) {
    before = 0;
    if constexpr (!FullGrid) {
      return of_block;
    } else {
      auto* const words = all_->words[parity_];
      parity_ ^= 1u;
      if (threadIdx.x == 0) words[block()] = of_block;
      sync();
      std::uint64_t total = 0;
      for (std::uint32_t b = threadIdx.x; b < blocks(); b += group_threads) {
        total += words[b];
        before += b < block() ? words[b] : 0;
      }
      before = block_sum(before);
      return block_sum(total);
    }
  }

  /// Both-sums of the threads' own.
  [[nodiscard]] __device__ tile_sums sum(tile_sums const& own) {
    auto const of_block = block_sum(own);
    if constexpr (!FullGrid) {
      return of_block;
    } else {
      auto* const sums = all_->sums[parity_];
      parity_ ^= 1u;
      if (threadIdx.x == 0) sums[block()] = of_block;
      sync();
      tile_sums total{};
      for (std::uint32_t b = threadIdx.x; b < blocks(); b += group_threads) total = tile_sums::both(total, sums[b]);
      return block_sum(total);
    }
  }

  /// The block's threads' own numbers.
  [[nodiscard]] __device__ std::uint64_t block_sum(std::uint64_t own) {
    std::uint64_t before = 0;
    return block_sum(own, before);
  }

  /// The same; `before`: of the block's threads before this one.
  [[nodiscard]] __device__ std::uint64_t block_sum(std::uint64_t own, std::uint64_t& before) {
    std::uint64_t total = 0;
    block_shared_state::scanner{here_.scan}.ExclusiveSum(own, before, total);
    __syncthreads();
    return total;
  }

  [[nodiscard]] __device__ tile_sums block_sum(tile_sums const& own) {
    auto const total = block_shared_state::reducer{here_.reduce}.Reduce(own, tile_sums::both);
    if (threadIdx.x == 0) here_.sums = total;
    __syncthreads();
    tile_sums const result = here_.sums;
    __syncthreads();
    return result;
  }

  /// One round of a search: `count(add)` calls add(bin) for each key of the thread's own that is in the search's
  /// range, and add(bins) where it has none, so that whole warps stay together. Cost: the reads, and one sync().
  template <class Count>
  __device__ void narrow(digit_search& search, Count const& count) {
    clear_histogram();
    count([&](std::uint32_t bin) { this->count(bin); });
    __syncthreads();
    if constexpr (FullGrid) {
      auto* const mine = all_->histogram[turn_];
      turn_ = (turn_ + 1) % 3;
      for (unsigned b = threadIdx.x; b < digit_search::bins; b += group_threads)
        if (here_.histogram[b] != 0) atomicAdd(&mine[b], here_.histogram[b]);
      for (std::uint32_t b = thread(); b < digit_search::bins; b += threads()) all_->histogram[turn_][b] = 0;
      sync();
      for (unsigned b = threadIdx.x; b < digit_search::bins; b += group_threads) here_.histogram[b] = mine[b];
      __syncthreads();
    }
    find(search);
  }

  // ---- The block's own histogram, by all of its threads

  __device__ void clear_histogram() {
    for (unsigned b = threadIdx.x; b < digit_search::bins; b += group_threads) here_.histogram[b] = 0;
    __syncthreads();
  }

  /// One count, or one for the whole warp where its keys are alike, as they are when most are equal. `bins`: none.
  __device__ void count(std::uint32_t bin) {
    std::uint32_t const first = __shfl_sync(~0u, bin, 0);
    if (__all_sync(~0u, bin == first)) {
      if (threadIdx.x % 32 == 0 && bin < digit_search::bins) atomicAdd(&here_.histogram[bin], 32u);
    } else if (bin < digit_search::bins) {
      atomicAdd(&here_.histogram[bin], 1u);
    }
  }

  /// Narrows the search to the bin that has the wanted rank; returns how many keys are in it. Thread 0 looks at the
  /// topmost bins.
  __device__ std::uint32_t find(digit_search& search) {
    std::uint32_t const top = digit_search::bins - threadIdx.x * bins_each;
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

  /// Before the launch ends: leaves the shared state as the next one needs it. What has not changed may still be read.
  __device__ void release() {
    if constexpr (FullGrid)
      if (is_first() && all_->turn != turn_) all_->turn = turn_;
  }

 private:
  static constexpr unsigned bins_each = digit_search::bins / group_threads;

  grid_shared_state* all_;  // of the whole grid alone
  block_shared_state& here_;
  std::uint32_t turn_;
  std::uint32_t parity_ = 0;
};

}  // namespace gradsieve::cuda_kernels
