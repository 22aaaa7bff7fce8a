// Selection among candidates, in kernels without barriers between blocks: what every segment wants of its candidates,
// and the threshold that keeps just that.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/keys.cuh>
#include <gradsieve/cuda/passes/last_block.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::cuda_kernels {

/// A segment with its candidates, and what its selector wants of them: in shared memory, so that registers are left for
/// keys.
struct segment_candidates {
  std::uint32_t id;
  std::uint32_t base;
  std::uint32_t room;
  index_type k;
  candidates found;
  candidate_choice wanted;

  /// By all threads of a block.
  template <class Selector>
  __device__ void look_at(Selector const& chosen, tables const& t, std::uint32_t s) {
    __syncthreads();  // all have read what changes now
    if (threadIdx.x == 0) {
      auto const& about = t.segments[s];
      id = s;
      base = about.base;
      room = about.room;
      k = about.k;
      found = candidates_of(t, s);
      warm_threshold warm = t.warm_thresholds[s];
      wanted = choose_among(chosen, accumulator(t, warm), found, k);
    }
    __syncthreads();
  }

  [[nodiscard]] __device__ accumulator_ref accumulator(tables const& t, warm_threshold& warm) const {
    auto const& about = t.segments[id];
    return {{nullptr, about.size}, about.offset, id, *t.step, &warm};
  }
  [[nodiscard]] __device__ bool needs_search() const { return wanted.made && wanted.rank > 0; }
  [[nodiscard]] __device__ std::uint32_t end() const { return base + static_cast<std::uint32_t>(found.count); }

  /// By one thread, with the threshold that keeps what is wanted.
  template <class Selector>
  __device__ void settle(Selector const& chosen, threshold const at, tables const& t, choice_tables const& c) const {
    warm_threshold warm = t.warm_thresholds[id];
    threshold const kept = settle_choice(chosen, accumulator(t, warm), found, k, at);
    bool const all = kept == every(found);
    if (!all && !(kept == at)) return leave(c);
    t.written[id] =
        static_cast<std::uint32_t>(smaller<std::uint64_t>(all ? found.count : wanted.rank, t.segments[id].out_room));
    c.choices[id] = {entry_source::candidates, all ? threshold{} : kept, warm};
  }

  /// The same: the candidates do not do, so that select_rest() is to look.
  __device__ void leave(choice_tables const& c) const {
    c.choices[id] = {entry_source::list, {}, {}};
    atomicAdd(c.undecided, 1u);
  }
};

/// Whether a segment's candidates are divided among blocks.
[[nodiscard]] __device__ inline bool is_shared_out(std::uint64_t found, choice_tables const& c) {
  return c.shared_count > 0 && found > larger(most_alone, c.chunk);
}

/// The segments that choose_entries() shares out and that have candidates in a chunk: two at most, as each has more
/// candidates than a chunk. By all threads of a block.
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
      if (mine.k > 0 && is_shared_out(found, c) && found <= mine.room && t.candidate_thresholds[s] != 0 &&
          mine.base < begin + c.chunk && mine.base + found > begin)
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

  __device__ chunk_part(segment_candidates const& mine, choice_tables const& c, std::uint32_t chunk)
      : first{mine.base / c.chunk},
        blocks{(mine.end() - 1) / c.chunk - first + 1},
        begin{larger(mine.base, chunk * c.chunk)},
        end{static_cast<std::uint32_t>(smaller<std::uint64_t>(mine.end(), (std::uint64_t{chunk} + 1) * c.chunk))} {}
};

/// What the blocks of a search share, once all have counted: their histogram, in the last of them.
__device__ inline std::uint32_t take_histogram(shared_search& all, block_shared_state<choose_threads>& here) {
  for (unsigned b = threadIdx.x; b < digit_search::bins; b += choose_threads) {
    here.histogram[b] = all.histogram[b];
    all.histogram[b] = 0;
  }
  std::uint32_t const above = all.above;
  __syncthreads();
  if (threadIdx.x == 0) all.above = 0;
  return above;
}

/// First round of a large segment's search: its candidates in an octave above the lowest, by key. The last of its
/// blocks picks the bin; the k-th largest is there, unless the prediction was far off.
template <class Selector>
__device__ void begin_search(Selector const& chosen, segment_candidates const& mine, tables const& t,
                             choice_tables const& c, block_group<choose_threads>& group,
                             block_shared_state<choose_threads>& here) {
  chunk_part const part{mine, c, blockIdx.x};
  auto& all = c.shared[part.first];
  key_type const low = mine.found.threshold;
  key_type const high = smaller<key_type>(low + ((key_type{1} << 23) - 1), infinite_key - 1);
  digit_search search{low, high, mine.wanted.rank};
  group.clear_histogram();
  std::uint32_t above = 0;
  over_keys(t.candidate_values, part.begin, part.end, [&](thread_keys const& keys) {
#pragma unroll
    for (auto const key : keys.values) {
      above += key > high ? 1 : 0;
      group.count(search.bin(key));
    }
  });
  auto const above_here = static_cast<std::uint32_t>(group.block_sum(above));
  for (unsigned b = threadIdx.x; b < digit_search::bins; b += choose_threads)
    if (here.histogram[b] != 0) atomicAdd(&all.histogram[b], here.histogram[b]);
  if (threadIdx.x == 0 && above_here != 0) atomicAdd(&all.above, above_here);
  if (!is_last_block(&all.tickets, part.blocks)) return;

  std::uint32_t const all_above = take_histogram(all, here);
  if (all_above >= mine.wanted.rank) {
    if (threadIdx.x == 0) mine.leave(c);
    return;
  }
  search = {low, high, mine.wanted.rank - all_above};
  std::uint32_t const left = group.find(search);
  if (threadIdx.x != 0) return;
  if (search.done())
    mine.settle(chosen, search.result(), t, c);
  else if (left > room_for_keys(mine.room))
    mine.leave(c);
  else {
    all.search = search;
    all.is_open = 1;
  }
}

/// Second round of a large segment's search: the keys of the bin are written down, and the last of the segment's blocks
/// finds the answer among them.
template <class Selector>
__device__ void end_search(Selector const& chosen, segment_candidates const& mine, tables const& t,
                           choice_tables const& c, block_group<choose_threads>& group) {
  chunk_part const part{mine, c, blockIdx.x};
  auto& all = c.shared[part.first];
  if (all.is_open == 0) return;
  digit_search search = all.search;
  key_type* const listed = c.keys + keys_begin(mine.base);
  over_keys(t.candidate_values, part.begin, part.end, [&](thread_keys const& keys) {
    std::uint32_t own = 0;
#pragma unroll
    for (auto const key : keys.values) own += search.inside(key) ? 1 : 0;
    std::uint32_t const up_to = warp_prefix_sum(own);
    std::uint32_t to = 0;
    if (threadIdx.x % 32 == 31 && up_to != 0) to = atomicAdd(&all.listed, up_to);
    to = __shfl_sync(~0u, to, 31) + up_to - own;
#pragma unroll
    for (auto const key : keys.values)
      if (search.inside(key)) listed[to++] = key;
  });
  if (!is_last_block(&all.tickets, part.blocks)) return;
  std::uint32_t const count = all.listed;
  while (!search.done()) narrow(group, search, listed, 0, count);
  if (threadIdx.x != 0) return;
  all.listed = all.is_open = 0;
  mine.settle(chosen, search.result(), t, c);
}

/// By the last block of the last kernel that searches: where every segment's candidates do, nothing is left for
/// select_rest().
__device__ inline void end_choice(tables const& t, choice_tables const& c, list_end const& end,
                                  block_group<choose_threads>& group) {
  if (is_last_block(c.tickets) && *c.undecided == 0) begin_list(group, t, c, end);
}

/// What every segment wants of its candidates. A block a segment, where they are few, and a block a chunk. `ends`: no
/// end_searches() follows.
template <class Selector>
__global__ void __launch_bounds__(choose_threads, choose_blocks)
    choose_entries(Selector const chosen, tables const t, choice_tables const c, bool ends, list_end const end) {
  wait_for_previous();
  __shared__ block_shared_state<choose_threads> here;
  __shared__ segment_candidates mine;
  __shared__ chunk_segments shared_out;
  block_group<choose_threads> group{here};
  for (std::uint32_t s = blockIdx.x; s < t.segment_count; s += gridDim.x) {
    mine.look_at(chosen, t, s);
    if (mine.needs_search() && is_shared_out(mine.found.count, c)) continue;
    threshold at = every(mine.found);
    if (mine.needs_search()) {
      digit_search search{mine.found.threshold, infinite_key - 1, mine.wanted.rank};
      while (!search.done()) narrow(group, search, t.candidate_values, mine.base, mine.end());
      at = search.result();
    }
    if (threadIdx.x != 0) continue;
    if (mine.k == 0) {
      t.written[s] = 0;
      c.choices[s] = {entry_source::none, {}, {}};
    } else if (mine.wanted.made) {
      mine.settle(chosen, at, t, c);
    } else {
      mine.leave(c);
    }
  }
  if (blockIdx.x < c.shared_count) {
    shared_out.find(t, c, blockIdx.x);
    for (std::uint32_t i = 0; i < shared_out.count; ++i) {
      mine.look_at(chosen, t, shared_out.ids[i]);
      if (mine.needs_search()) begin_search(chosen, mine, t, c, group, here);
    }
  }
  if (ends) end_choice(t, c, end, group);
}

/// The rest of the searches that several blocks share. A block a chunk.
template <class Selector>
__global__ void __launch_bounds__(choose_threads, choose_blocks)
    end_searches(Selector const chosen, tables const t, choice_tables const c, list_end const end) {
  wait_for_previous();
  __shared__ block_shared_state<choose_threads> here;
  __shared__ segment_candidates mine;
  __shared__ chunk_segments shared_out;
  block_group<choose_threads> group{here};
  shared_out.find(t, c, blockIdx.x);
  for (std::uint32_t i = 0; i < shared_out.count; ++i) {
    mine.look_at(chosen, t, shared_out.ids[i]);
    end_search(chosen, mine, t, c, group);
  }
  end_choice(t, c, end, group);
}

}  // namespace gradsieve::cuda_kernels
