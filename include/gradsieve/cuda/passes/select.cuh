// Kernels that run selectors, segment by segment, by teams of the blocks that run at the same time or by one block.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cub/block/block_reduce.cuh>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/choose.cuh>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/kernel_workspace.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/prediction.hpp>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Tells segments that keep the candidates of a speculative pass, below `apart`, from others, above it.
struct speculative_candidates {
  device_segment* before = nullptr;         // the last step's segments, by which the speculative pass has collected
  device_segment const* planned = nullptr;  // this step's
  std::uint32_t apart = 0;                  // 0: there are no speculative passes
  std::uint32_t* open = nullptr;            // number of segments that keep nothing, with k > 0

  [[nodiscard]] __device__ bool has(device_segment const& each) const { return each.base < apart; }
  [[nodiscard]] __device__ bool has_all() const { return apart != 0 && *open == 0; }
};

/// One thread per segment: keeps its candidates if the selector would predict the key that they reach.
template <int = 0>
__global__ void keep_candidates(device_segment* segments, tables const t, speculative_candidates const speculative) {
  wait_for_previous();
  std::uint32_t const threads = gridDim.x * blockDim.x;
  for (std::uint32_t s = blockIdx.x * blockDim.x + threadIdx.x; s < t.segment_count; s += threads) {
    device_segment now = speculative.planned[s];
    device_segment const was = speculative.before[s];
    speculative.before[s] = now;
    warm_threshold warm = t.warm_thresholds[s];
    accumulator_ref const acc{{nullptr, now.size}, now.offset, s, *t.step, &warm};
    bool const keeps = now.k > 0 && was.k > 0 && t.candidate_thresholds[s] == warm.key && t.found[s] <= was.capacity &&
                       detail::warm_threshold_fits(acc, now.k);
    if (keeps) {
      now.base = was.base;
      now.capacity = was.capacity;
    } else {
      now.base += speculative.apart;
      t.candidate_thresholds[s] = 0;
      t.found[s] = 0;
      if (now.k > 0) atomicAdd(speculative.open, 1u);
    }
    segments[s] = now;
  }
}

struct search_memory {  // of predict() and select_entries()
  launch_state* launch;
  team_state* teams;
  std::uint32_t team_count;
  std::uint32_t* order;    // of segments: from the beginning those for teams, from the end those for one block
  std::uint32_t* weights;  // blocks of use for the segments in order, summed up; one number more than segments
  sample_buffer all;       // of a launch's only team
  sample_buffer one;       // of its block 0; the others' follow
};

/// By one block: divides the segments by how many blocks are of use: blocks_of(s) is 0, 1, or more for a team;
/// whole_grid for a team of all blocks, which is then the only one. Returns how many are of use for all.
template <class Blocks>
[[nodiscard]] __device__ std::uint32_t divide_segments(tables const& t, search_memory const& memory,
                                                       block_shared_state& here, Blocks const& blocks_of) {
  __shared__ std::uint32_t whole;
  if (threadIdx.x == 0) whole = memory.weights[0] = 0;
  block_group group{here};
  std::uint64_t total = 0;  // segments for teams; in the upper half those for one block
  std::uint64_t weight = 0;
  for (std::uint32_t first = 0; first < t.segment_count; first += group_threads) {
    std::uint32_t const s = first + threadIdx.x;
    std::uint32_t const blocks = s < t.segment_count ? blocks_of(s) : 0;
    std::uint64_t before = 0;
    auto const batch = group.block_sum(blocks > 1 ? 1 : std::uint64_t{blocks} << 32, before);
    std::uint64_t const own = blocks == whole_grid ? gridDim.x : blocks > 1 ? blocks : 0;
    std::uint64_t weight_before = 0;
    auto const heavier = group.block_sum(own, weight_before);
    auto const place = static_cast<std::uint32_t>(total + before);
    if (blocks == whole_grid) whole = 1;
    if (blocks > 1) memory.order[place] = s;
    if (blocks > 1) memory.weights[place + 1] = static_cast<std::uint32_t>(weight + weight_before + own);
    if (blocks == 1) memory.order[t.segment_count - 1 - static_cast<std::uint32_t>((total + before) >> 32)] = s;
    total += batch;
    weight += heavier;
  }
  __syncthreads();
  auto const of_one = static_cast<std::uint32_t>(total >> 32);
  auto const all = static_cast<std::uint32_t>(weight) + (whole == 0 ? of_one : 0);
  if (threadIdx.x == 0) {
    auto& state = *memory.launch;
    state.teams = whole == 0 ? memory.team_count : 1;
    state.of_teams = static_cast<std::uint32_t>(total);
    state.of_one = of_one;
    state.weight = all;
  }
  return whole == 0 ? smaller(all, gridDim.x) : gridDim.x;
}

struct team_part {
  group_place place;
  std::uint32_t team;
  std::uint32_t first;  // of its segments in order
  std::uint32_t last;
};

/// The team of a block: each has as many segments, and of the blocks a share by their weight, at least one. Blocks
/// that are left over, for segments that one block searches, have a team without segments. By all threads of a block.
[[nodiscard]] __device__ inline team_part team_of(search_memory const& memory, group_place place) {
  __shared__ team_part mine;
  auto const& state = *memory.launch;
  std::uint32_t const count = state.of_teams;
  std::uint32_t const teams = smaller(smaller(count, state.teams), place.blocks);
  if (threadIdx.x == 0) mine = {{0, 1, 0}, 0, 0, 0};
  __syncthreads();
  if (threadIdx.x < teams) {
    auto const segment = [&](std::uint32_t team) {
      return static_cast<std::uint32_t>(std::uint64_t{count} * team / teams);
    };
    auto const block = [&](std::uint32_t team) {
      return static_cast<std::uint32_t>(team + std::uint64_t{place.blocks - teams} * memory.weights[segment(team)] /
                                                   state.weight);
    };
    std::uint32_t const team = threadIdx.x;
    std::uint32_t const first = block(team);
    std::uint32_t const end = block(team + 1);
    if (first <= place.block && place.block < end)
      mine = {{place.block - first, end - first, first}, team, segment(team), segment(team + 1)};
  }
  __syncthreads();
  return mine;
}

/// Calls body(group, samples, segment) for every segment, by a team of blocks or by one block, as divide_segments()
/// says. True in the last block.
template <class Blocks, class Body>
[[nodiscard]] __device__ bool each_segment(tables const& t, search_memory const& memory, block_shared_state& here,
                                           Blocks const& blocks_of, Body const& body) {
  auto& state = *memory.launch;
  auto const place = join_group(state, [&] { return divide_segments(t, memory, here, blocks_of); });
  if (!place.is_late()) {
    if (auto const mine = team_of(memory, place); mine.first < mine.last) {
      thread_group<true> team{state, memory.teams[mine.team], mine.place, here};
      for (std::uint32_t i = mine.first; i < mine.last; ++i) body(team, memory.all, memory.order[i]);
      team.release();
    }
    thread_group<false> alone{here};
    sample_buffer const samples{memory.one.keys + place.block * memory.one.size, memory.one.size};
    for (std::uint32_t i = place.blocks - 1 - place.block; i < state.of_one; i += place.blocks)
      body(alone, samples, memory.order[t.segment_count - 1 - i]);
  }
  if (!leave_group(state)) return false;
  if (threadIdx.x < memory.team_count) memory.teams[threadIdx.x].arrived = 0;
  return true;
}

template <class Stored>
__device__ accumulator_ref accumulator_of(tables const& t, Stored const* accumulator, std::uint32_t s,
                                          warm_threshold& remembered) {
  auto const mine = t.segments[s];
  remembered = t.warm_thresholds[s];
  float const* values = nullptr;
  if constexpr (std::is_same_v<Stored, float>) values = accumulator + mine.offset;
  return {{values, mine.size}, mine.offset, s, *t.step, &remembered};
}

/// By one block, before a step whose owners rotate: sets each segment's k for this rank.
template <int = 0>
__global__ void take_turns(device_segment* segments, std::uint32_t count, std::uint64_t const* step,
                           std::uint32_t world) {
  auto const turn = static_cast<std::uint32_t>(*step % world);
  for (std::uint32_t s = threadIdx.x; s < count; s += blockDim.x)
    segments[s].k = segments[s].turn == turn || segments[s].turn == every_turn ? segments[s].due : 0;
}

/// Predicts each segment's candidate key: before the accumulate pass, or after a speculative one that does not serve.
template <class Selector, class Read, class Stored>
__global__ void __launch_bounds__(group_threads, group_blocks)
    predict(Selector const chosen, Read const read, Stored const* accumulator, tables const t,
            search_memory const memory, speculative_candidates const speculative) {
  wait_for_previous();
  __shared__ block_shared_state here;
  if (speculative.has_all()) return;
  auto const blocks_of = [&](std::uint32_t s) -> std::uint32_t {
    if (speculative.has(t.segments[s])) return 0;
    return t.segment_count == 1 || t.segments[s].size > most_of_block ? whole_grid : 1;
  };
  (void)each_segment(t, memory, here, blocks_of, [&](auto& group, sample_buffer samples, std::uint32_t s) {
    warm_threshold remembered;
    auto const acc = accumulator_of(t, accumulator, s, remembered);
    auto const k = t.segments[s].k;
    key_type candidate_threshold = 0;
    if (k > 0) {
      kernel_workspace work{group, t, read, samples, false};
      candidate_threshold = predict_candidate_threshold(chosen, work, acc, k);
    }
    if (group.is_first()) {
      t.candidate_thresholds[s] = candidate_threshold;
      t.found[s] = 0;
      ++t.collections[s];
    }
  });
}

/// One warp per tile: collects candidates from memory, for the segments whose key predict() has just set.
template <class Stored>
__global__ void __launch_bounds__(collect_threads)
    collect(Stored const* accumulator, tables const t, speculative_candidates const speculative) {
  wait_for_previous();
  if (speculative.has_all()) return;
  from_memory<Stored> const read{accumulator};
  std::uint32_t const at = (blockIdx.x * collect_threads + threadIdx.x) / 32;
  std::uint32_t segment = at < t.tile_count ? t.tiles[at].segment : no_segment;
  if (segment != no_segment && speculative.has(t.segments[segment])) segment = no_segment;
  key_type const reached = segment == no_segment ? 0 : t.candidate_thresholds[segment];
  collect_tile<loads_at_once<true>>(t, read, reached == 0 ? no_segment : segment, at, reached);
}

/// Chooses a segment's entries among its candidates or, if they do not suffice, calls the selector, and writes its
/// entries to the segment's place in `lists`.
template <class Selector, class Stored, bool FullGrid>
__device__ __forceinline__ void select_segment(Selector const& chosen, thread_group<FullGrid>& group,
                                               Stored const* accumulator, tables const& t, sample_buffer samples,
                                               choice_tables const& c, bool measured, entry_list const& lists,
                                               std::uint32_t s) {
  from_memory<Stored> const read{accumulator};
  kernel_workspace work{group, t, read, samples, measured};
  if constexpr (detail::uses_candidates<Selector>)
    if (choose_entries(chosen, group, work, t, c, s)) return;
  warm_threshold remembered;
  auto const acc = accumulator_of(t, accumulator, s, remembered);
  auto const mine = t.segments[s];
  index_type found = 0;
  if (mine.k > 0)
    found = select(chosen, work, acc, mine.k,
                   {{lists.indices + mine.out, mine.out_capacity}, {lists.values + mine.out, mine.out_capacity}, {}});
  group.sync();
  if (!group.is_first()) return;
  t.warm_thresholds[s] = remembered;
  t.written[s] = smaller(found, mine.out_capacity);
  c.choices[s] = {mine.k > 0 ? entry_source::list : entry_source::none, t.written[s], {0, ~0u}, {}};
}

/// Calls select_segment() for every segment; the last block then calls begin_list().
template <class Selector, class Stored>
__global__ void __launch_bounds__(group_threads, group_blocks)
    select_entries(Selector const chosen, Stored const* accumulator, tables const t, search_memory const memory,
                   choice_tables const c, bool measured, entry_list const lists, list_end const end) {
  wait_for_previous();
  __shared__ block_shared_state here;
  auto const blocks_of = [&](std::uint32_t s) { return blocks_for(chosen, t, c, s); };
  bool const is_last =
      each_segment(t, memory, here, blocks_of, [&](auto& group, sample_buffer samples, std::uint32_t s) {
        select_segment(chosen, group, accumulator, t, samples, c, measured, lists, s);
      });
  if (!is_last) return;
  block_group group{here};
  begin_list(group, t, c, end);
}

/// One block per segment: its squared norm.
template <int = 0>
__global__ void __launch_bounds__(norm_threads) segment_norms(tables const t, double* norms) {
  wait_for_previous();
  using reduce = CUB_NS_QUALIFIER::BlockReduce<double, norm_threads>;
  __shared__ typename reduce::TempStorage shared;
  auto const mine = t.segments[blockIdx.x];
  double own = 0;
  for (std::uint32_t at = mine.first + threadIdx.x; at < mine.last; at += norm_threads) own += t.sums[at].sum_squares;
  double const total = reduce{shared}.Sum(own);
  if (threadIdx.x == 0) norms[blockIdx.x] = total;
  if (blockIdx.x + threadIdx.x == 0) norms[t.segment_count] = static_cast<double>(*t.step);
}

}  // namespace gradsieve::cuda_kernels
