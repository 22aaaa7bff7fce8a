// Threads that search together: one block, or a team of the blocks of a launch that run at the same time.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Device memory that a launch's blocks share. Zero at first; a launch leaves the words by which they join zero.
struct launch_state {
  std::uint32_t come;      // blocks so far; highest bit: the group is closed
  std::uint32_t size;      // blocks of the group; 0 until it is closed
  std::uint32_t left;      // blocks that are done
  std::uint32_t teams;     // in this launch, at most
  std::uint32_t of_teams;  // segments
  std::uint32_t of_one;    // segments for one block each
  std::uint32_t weight;    // of all segments
  std::uint64_t words[2][most_blocks];
  tile_sums sums[2][sum_shares];  // of a launch's only team
};

/// The same of a team. A launch leaves the histogram of the next turn zero, and the number of arrivals.
struct team_state {
  std::uint32_t histogram[3][detail::digit_search::bins];
  std::uint32_t turn;
  std::uint32_t arrived;  // blocks at barriers, in all
};

struct group_place {
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t first;  // block of a team, in the group

  [[nodiscard]] __device__ bool is_late() const { return block >= blocks; }
};

/// True if the first block of a group waits on, after `poll` polls, when `come` of `wanted` blocks have come: longer
/// for the first half, as a device may be busy with other work, and a small group takes long.
[[nodiscard]] __device__ inline bool waits_for_others(std::uint32_t come, std::uint32_t wanted, unsigned poll) {
  return come < wanted && poll < (come < wanted / 2 ? most_join_polls : join_polls);
}

/// Joins the group of a launch's blocks that run at the same time. The first block calls prepare(), whose writes the
/// others see, and closes the group when as many have come as that returns, or soon; later blocks are late. So no block
/// waits for one that does not run, whatever else the device does. By all threads of a block. @pre every block of the
/// launch calls leave_group() in the end
template <class Prepare>
[[nodiscard]] __device__ __forceinline__ group_place join_group(launch_state& all, Prepare const& prepare) {
  constexpr std::uint32_t closed = 1u << 31;
  __shared__ group_place mine;
  if (threadIdx.x == 0) mine = {atomicAdd(&all.come, 1u), 0, 0};
  __syncthreads();
  std::uint32_t const block = mine.block;
  if (block == 0) {
    std::uint32_t const wanted = prepare();
    __syncthreads();
    if (threadIdx.x == 0) {
      for (unsigned poll = 0; waits_for_others(as_it_is_now(all.come), wanted, poll); ++poll) __nanosleep(join_pause);
      __threadfence();
      mine.blocks = atomicOr(&all.come, closed);
      atomicExch(&all.size, mine.blocks);
    }
  } else if (threadIdx.x == 0 && block < closed) {
    while ((mine.blocks = as_it_is_now(all.size)) == 0) __nanosleep(join_pause);
    __threadfence();
  }
  __syncthreads();
  return mine;
}

/// True in the last block of the launch to leave. By all threads of a block.
[[nodiscard]] __device__ inline bool leave_group(launch_state& all) {
  if (!is_last_block(&all.left)) return false;
  if (threadIdx.x == 0) all.come = all.size = 0;
  return true;
}

/// Threads of one block, or of a team of blocks. Collective, as block_group. Sums are of integers, or in an
/// order that does not depend on the number of blocks.
template <bool Blocks>
class thread_group : public block_group {
 public:
  __device__ thread_group(launch_state& all, team_state& team, group_place place, block_shared_state& here)
      : block_group{here}, all_{&all}, team_{&team}, place_{place}, turn_{team.turn} {}
  __device__ explicit thread_group(block_shared_state& here)
      : block_group{here}, all_{nullptr}, team_{nullptr}, place_{0, 1, 0}, turn_{0} {
    static_assert(!Blocks);
  }

  [[nodiscard]] __device__ std::uint32_t block() const { return Blocks ? place_.block : 0; }
  [[nodiscard]] __device__ std::uint32_t blocks() const { return Blocks ? place_.blocks : 1; }
  [[nodiscard]] __device__ std::uint32_t thread() const { return block() * group_threads + threadIdx.x; }
  [[nodiscard]] __device__ std::uint32_t threads() const { return blocks() * group_threads; }
  [[nodiscard]] __device__ bool is_first() const { return thread() == 0; }

  /// Barrier of the team: what was written before can be read after.
  __device__ void sync() {
    __syncthreads();
    if constexpr (Blocks) {
      arrived_ += blocks();
      if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(&team_->arrived, 1u);
        while (as_it_is_now(team_->arrived) < arrived_) {
        }
        __threadfence();
      }
      __syncthreads();
    }
  }

  [[nodiscard]] __device__ std::uint64_t sum(std::uint64_t own) {
    std::uint64_t before = 0;
    return sum_of_blocks(block_sum(own), before);
  }

  /// Sum of the blocks' numbers, which all threads of a block know. `before`: of the blocks before this one.
  [[nodiscard]] __device__ std::uint64_t sum_of_blocks(std::uint64_t of_block, std::uint64_t& before) {
    before = 0;
    if constexpr (!Blocks) {
      return of_block;
    } else {
      auto* const words = all_->words[parity_] + place_.first;
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

  /// Combines what add(i, sums) adds for each i < count, one i a thread at a time.
  template <class Add>
  [[nodiscard]] __device__ tile_sums sum_over(std::uint64_t count, Add const& add) {
    auto const sum_between = [&](std::uint64_t begin, std::uint64_t end) {
      tile_sums own{};
      for (std::uint64_t i = begin + threadIdx.x; i < end; i += group_threads) add(i, own);
      return block_sum(own);
    };
    if constexpr (!Blocks) {
      return sum_between(0, count);
    } else {
      auto* const sums = all_->sums[parity_];
      parity_ ^= 1u;
      for (std::uint32_t share = block(); share < sum_shares; share += blocks()) {
        auto const total = sum_between(count * share / sum_shares, count * (share + 1) / sum_shares);
        if (threadIdx.x == 0) sums[share] = total;
      }
      sync();
      return block_sum(threadIdx.x < sum_shares ? sums[threadIdx.x] : tile_sums{});
    }
  }

  /// One round of a search: `count(add)` calls add(bin) for each of the thread's own keys in the search's range, and
  /// add(bins) for others, so that whole warps stay together. Cost: the reads, and one sync().
  template <class Count>
  __device__ void narrow(detail::digit_search& search, Count const& count) {
    clear_histogram();
    count([&](std::uint32_t bin) { this->count(bin); });
    __syncthreads();
    if constexpr (Blocks) {
      auto* const mine = team_->histogram[turn_];
      turn_ = (turn_ + 1) % 3;
      for (unsigned b = threadIdx.x; b < detail::digit_search::bins; b += group_threads)
        if (here_.histogram[b] != 0) atomicAdd(&mine[b], here_.histogram[b]);
      for (std::uint32_t b = thread(); b < detail::digit_search::bins; b += threads()) team_->histogram[turn_][b] = 0;
      sync();
      for (unsigned b = threadIdx.x; b < detail::digit_search::bins; b += group_threads) here_.histogram[b] = mine[b];
      __syncthreads();
    }
    find(search);
  }

  /// Call before the blocks leave. Writes only what has changed, as it may still be read.
  __device__ void release() {
    if constexpr (Blocks)
      if (is_first() && team_->turn != turn_) team_->turn = turn_;
  }

 private:
  launch_state* all_;  // null for one block, as the next
  team_state* team_;
  group_place place_;
  std::uint32_t turn_;
  std::uint32_t arrived_ = 0;
  std::uint32_t parity_ = 0;
};

}  // namespace gradsieve::cuda_kernels
