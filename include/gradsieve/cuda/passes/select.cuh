// Selectors at work on a device: the kernels that run them, segment by segment.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>
#include <type_traits>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/kernel_workspace.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::cuda_kernels {

/// Segments up to this size are one block's work, many at a time; larger ones, and a segment that is alone, that of
/// all blocks.
inline constexpr std::uint32_t most_of_block = 1u << 17;

/// What both kernels need.
struct search_memory {
  grid_shared_state* grid_state;
  sample_room all;  // of the whole grid
  sample_room one;  // of block 0; the others' follow
};

/// Calls body(group, room, segment) for every segment, by all blocks or by one.
template <class Body>
__device__ void each_segment(tables const& t, search_memory const& memory, block_shared_state& here, Body const& body) {
  thread_group<true> all{*memory.grid_state, here};
  auto const for_all = [&](std::uint32_t s) { return t.segment_count == 1 || t.segments[s].size > most_of_block; };
  for (std::uint32_t s = 0; s < t.segment_count; ++s)
    if (for_all(s)) body(all, memory.all, s);
  all.release();
  thread_group<false> alone{*memory.grid_state, here};
  sample_room const room{memory.one.keys + blockIdx.x * memory.one.size, memory.one.size};
  for (std::uint32_t s = blockIdx.x; s < t.segment_count; s += gridDim.x)
    if (!for_all(s)) body(alone, room, s);
}

/// A segment's accumulator as selectors take it.
template <class Stored>
__device__ accumulator_ref accumulator_of(tables const& t, Stored const* accumulator, std::uint32_t s,
                                          warm_threshold& remembered) {
  auto const mine = t.segments[s];
  remembered = t.warm_thresholds[s];
  float const* values = nullptr;
  if constexpr (std::is_same_v<Stored, float>) values = accumulator + mine.offset;
  return {{values, mine.size}, mine.offset, s, *t.step, &remembered};
}

/// Before a step: what this rank selects from a segment, where the owners rotate.
template <int = 0>
__global__ void take_turns(device_segment* segments, std::uint32_t count, std::uint64_t const* step,
                           std::uint32_t world) {
  auto const turn = static_cast<std::uint32_t>(*step % world);
  for (std::uint32_t s = threadIdx.x; s < count; s += blockDim.x)
    segments[s].k = segments[s].turn == turn || segments[s].turn == every_turn ? segments[s].due : 0;
}

/// Before the accumulate pass: the key that it shall collect from, for each segment.
template <class Selector, class Read, class Stored>
__global__ void __launch_bounds__(group_threads)
    predict(Selector const chosen, Read const read, Stored const* accumulator, tables const t,
            search_memory const memory) {
  __shared__ block_shared_state here;
  each_segment(t, memory, here, [&](auto& group, sample_room room, std::uint32_t s) {
    warm_threshold remembered;
    auto const acc = accumulator_of(t, accumulator, s, remembered);
    auto const k = t.segments[s].k;
    key_type candidate_threshold = 0;
    if (k > 0) {
      kernel_workspace work{group, t, read, room, false};
      candidate_threshold = predict_candidate_threshold(chosen, work, acc, k);
    }
    if (group.is_first()) {
      t.candidate_thresholds[s] = candidate_threshold;
      t.found[s] = 0;
    }
  });
}

/// Candidates from memory, for the segments that predict() has named a key for.
template <class Stored>
__global__ void __launch_bounds__(group_threads)
    collect(Stored const* accumulator, tables const t, search_memory const memory) {
  __shared__ block_shared_state here;
  each_segment(t, memory, here, [&](auto& group, sample_room room, std::uint32_t s) {
    group.sync();  // all have read the key before it is written again
    key_type const candidate_threshold = t.candidate_thresholds[s];
    if (candidate_threshold == 0) return;
    from_memory<Stored> const read{accumulator};
    kernel_workspace work{group, t, read, room, false};
    warm_threshold remembered;
    work.collect_again(accumulator_of(t, accumulator, s, remembered), candidate_threshold);
  });
}

/// Where the entries of every cell begin in a list that rises. By all threads of a launch.
__device__ inline void fill_directory(entry_list const& list, std::uint32_t count, std::uint32_t cells,
                                      std::uint32_t thread, std::uint32_t threads) {
  if (count < cells) {
    for (std::uint32_t c = thread; c <= cells; c += threads) {
      std::uint32_t low = 0;
      std::uint32_t high = count;
      while (low < high) {
        std::uint32_t const middle = low + (high - low) / 2;
        if (list.indices[middle] / cell_size < c)
          low = middle + 1;
        else
          high = middle;
      }
      list.cells[c] = low;
    }
    return;
  }
  for (std::uint32_t p = thread; p <= count; p += threads) {
    std::uint32_t const from = p == 0 ? 0 : list.indices[p - 1] / cell_size + 1;
    std::uint32_t const to = p == count ? cells : list.indices[p] / cell_size;
    for (std::uint32_t c = from; c <= to; ++c) list.cells[c] = p;
  }
}

/// The entries of all segments, one behind the other, from where each segment has written them.
__device__ inline void join_segments(tables const& t, entry_list const& from, entry_list const& to,
                                     thread_group<true>& group, block_shared_state& here) {
  constexpr std::uint32_t few = 4096;  // entries that one block copies alone
  std::uint32_t total = 0;
  for (std::uint32_t first = 0; first < t.segment_count; first += group_threads) {
    std::uint32_t const own = first + threadIdx.x;
    std::uint64_t before = 0;
    auto const batch = group.block_sum(own < t.segment_count ? t.written[own] : 0u, before);
    here.histogram[threadIdx.x] = total + static_cast<std::uint32_t>(before);
    __syncthreads();
    for (std::uint32_t s = first; s < smaller(first + group_threads, t.segment_count); ++s) {
      std::uint32_t const count = t.written[s];
      bool const shared = count > few;
      if (!shared && s % gridDim.x != blockIdx.x) continue;
      std::uint32_t const step = shared ? group.threads() : group_threads;
      for (std::uint32_t i = shared ? group.thread() : threadIdx.x; i < count; i += step) {
        to.indices[here.histogram[s - first] + i] = from.indices[t.segments[s].out + i];
        to.values[here.histogram[s - first] + i] = from.values[t.segments[s].out + i];
      }
    }
    total += static_cast<std::uint32_t>(batch);
    __syncthreads();
  }
  if (group.is_first()) *to.count = total;
}

/// Selects in every segment, into `out`; several segments write into `parts` first. With `leaves` the warm thresholds
/// are what the next accumulate pass collects from; a segment without one had fewer than k that are not zero.
template <class Selector, class Stored>
__global__ void __launch_bounds__(group_threads)
    select_entries(Selector const chosen, Stored const* accumulator, tables const t, search_memory const memory,
                   bool measured, bool leaves, entry_list const parts, entry_list const out) {
  __shared__ block_shared_state here;
  auto const& first_list = t.segment_count == 1 ? out : parts;
  each_segment(t, memory, here, [&](auto& group, sample_room room, std::uint32_t s) {
    warm_threshold remembered;
    auto const acc = accumulator_of(t, accumulator, s, remembered);
    auto const mine = t.segments[s];
    from_memory<Stored> const read{accumulator};
    kernel_workspace work{group, t, read, room, measured};
    index_type count = 0;
    if (mine.k > 0)
      count =
          select(chosen, work, acc, mine.k,
                 {{first_list.indices + mine.out, mine.out_room}, {first_list.values + mine.out, mine.out_room}, {}});
    group.sync();
    if (group.is_first()) {
      t.warm_thresholds[s] = remembered;
      t.written[s] = smaller(count, mine.out_room);
      if (leaves) t.candidate_thresholds[s] = mine.k > 0 ? larger<key_type>(remembered.key, 1) : 0;
    }
  });
  auto const grid = cooperative_groups::this_grid();
  grid.sync();
  if (t.segment_count > 1) {
    thread_group<true> group{*memory.grid_state, here};
    join_segments(t, parts, out, group, here);
    grid.sync();
  } else if (grid.thread_rank() == 0) {
    *out.count = t.segment_count == 0 ? 0 : t.written[0];
  }
  std::uint32_t count = t.segment_count == 0 ? 0 : t.written[0];
  if (t.segment_count > 1) count = *out.count;
  fill_directory(out, count, t.cell_count, static_cast<std::uint32_t>(grid.thread_rank()),
                 static_cast<std::uint32_t>(grid.num_threads()));
  if (grid.thread_rank() == 0) {
    *t.step += 1;
    *t.taken = {1, 0};
  }
}

/// Squared norms of all segments, a block each.
template <int = 0>
__global__ void __launch_bounds__(group_threads) segment_norms(tables const t, double* norms) {
  using reduce = cub::BlockReduce<double, group_threads>;
  __shared__ typename reduce::TempStorage shared;
  auto const mine = t.segments[blockIdx.x];
  double own = 0;
  for (std::uint32_t at = mine.first + threadIdx.x; at < mine.last; at += group_threads) own += t.sums[at].sum_squares;
  double const total = reduce{shared}.Sum(own);
  if (threadIdx.x == 0) norms[blockIdx.x] = total;
}

}  // namespace gradsieve::cuda_kernels
