// Selection among candidates, without barriers between blocks: each segment's threshold for what its selector wants.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Keys that a thread has at once; 0 is none, as no candidate is zero.
struct thread_keys {
  static constexpr unsigned width = load_bytes / sizeof(key_type);
  key_type values[choose_loads * width];
};

[[nodiscard]] __device__ inline key_type key_of(float value) { return magnitude_key(value); }
[[nodiscard]] __device__ inline key_type key_of(key_type key) { return key; }

/// Calls body(keys) for [begin, end) of an array of values or keys, equally often in all threads of the block. All
/// loads of a call are issued before the first key is used. @pre the array is aligned to loads, and readable to a
/// load's end
template <class T, class Body>
__device__ __forceinline__ void over_keys(T const* from, std::uint32_t begin, std::uint32_t end, Body const& body) {
  constexpr unsigned width = thread_keys::width;
  std::uint32_t const last = (end + width - 1) / width;
  for (std::uint32_t first = begin / width; first < last; first += choose_loads * choose_threads) {
    pack<T, width> loaded[choose_loads];
#pragma unroll
    for (unsigned v = 0; v < choose_loads; ++v)
      if (std::uint32_t const at = first + v * choose_threads + threadIdx.x; at < last)
        loaded[v] = reinterpret_cast<pack<T, width> const*>(from)[at];
    thread_keys keys;
#pragma unroll
    for (unsigned v = 0; v < choose_loads; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        std::uint32_t const i = width * (first + v * choose_threads + threadIdx.x) + e;
        keys.values[v * width + e] = i - begin < end - begin ? key_of(loaded[v].values[e]) : 0;
      }
    body(keys);
  }
}

/// All keys of [begin, end) of an array of values, in the registers of a block. @pre end - begin <= most_alone
struct block_keys {
  static constexpr unsigned loads = 8;
  static_assert(loads * choose_threads * thread_keys::width >= most_alone + 2 * (thread_keys::width - 1));
  key_type values[loads * thread_keys::width];
  unsigned used;  // loads that have any

  __device__ __forceinline__ block_keys(float const* from, std::uint32_t begin, std::uint32_t end) {
    constexpr unsigned width = thread_keys::width;
    std::uint32_t const first = begin / width;
    std::uint32_t const last = (end + width - 1) / width;
    used = (last - first + choose_threads - 1) / choose_threads;
    pack<float, width> loaded[loads];
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
      if (std::uint32_t const at = first + v * choose_threads + threadIdx.x; at < last)
        loaded[v] = reinterpret_cast<pack<float, width> const*>(from)[at];
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        std::uint32_t const i = width * (first + v * choose_threads + threadIdx.x) + e;
        values[v * width + e] = i - begin < end - begin ? key_of(loaded[v].values[e]) : 0;
      }
  }

  template <class Body>
  __device__ __forceinline__ void each_key(Body const& body) const {  // equally often in all threads
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
      if (v < used) {
#pragma unroll
        for (unsigned e = 0; e < thread_keys::width; ++e) body(values[v * thread_keys::width + e]);
      }
  }
};

/// One round of a search in [begin, end) of an array of values or of keys.
template <class T>
__device__ __forceinline__ std::uint32_t narrow(block_group<choose_threads>& group, detail::digit_search& search,
                                                T const* from, std::uint32_t begin, std::uint32_t end) {
  group.clear_histogram();
  over_keys(from, begin, end, [&](thread_keys const& keys) {
#pragma unroll
    for (auto const key : keys.values) group.count(search.bin(key));
  });
  __syncthreads();
  return group.find(search);
}

/// True if several blocks search a segment with `found` candidates in a list with that capacity.
[[nodiscard]] __device__ inline bool is_shared_out(std::uint64_t found, std::uint32_t capacity,
                                                   choice_tables const& c) {
  return c.shared_count > 0 && found > larger(most_alone, c.chunk) && found <= capacity;
}

/// Segments searched by several blocks that have candidates in a chunk. By all threads of a block.
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

/// A segment, its candidates, and what its selector wants of them; in shared memory, to leave registers for keys.
struct segment_candidates {
  std::uint32_t id;
  std::uint32_t base;
  std::uint32_t capacity;
  index_type k;
  candidates found;
  candidate_choice wanted;

  /// By all threads of a block: loads segment `s`, and asks its selector what it wants.
  template <class Selector>
  __device__ void load(Selector const& chosen, tables const& t, std::uint32_t s) {
    __syncthreads();  // all have read what changes now
    if (threadIdx.x == 0) {
      auto const& about = t.segments[s];
      id = s;
      base = about.base;
      capacity = about.capacity;
      k = about.k;
      found = candidates_of(t, s);
      warm_threshold warm = t.warm_thresholds[s];
      wanted = detail::choose_among(chosen, accumulator(t, warm), found, k);
    }
    __syncthreads();
  }

  [[nodiscard]] __device__ accumulator_ref accumulator(tables const& t, warm_threshold& warm) const {
    auto const& about = t.segments[id];
    return {{nullptr, about.size}, about.offset, id, *t.step, &warm};
  }
  [[nodiscard]] __device__ bool needs_search() const { return wanted.made && wanted.rank > 0; }
  [[nodiscard]] __device__ std::uint32_t end() const { return base + static_cast<std::uint32_t>(found.count); }

  /// By one thread: records what is kept. `at`: the threshold that keeps what is wanted.
  template <class Selector>
  __device__ void record(Selector const& chosen, threshold const at, tables const& t, choice_tables const& c) const {
    if (k > 0) return wanted.made ? keep_wanted(chosen, at, t, c) : defer(c);
    t.written[id] = 0;
    c.choices[id] = {entry_source::none, 0, {}, {}};
  }

  /// record() for a segment with k > 0 whose selector has made its choice.
  template <class Selector>
  __device__ void keep_wanted(Selector const& chosen, threshold const at, tables const& t,
                              choice_tables const& c) const {
    warm_threshold warm = t.warm_thresholds[id];
    threshold const kept = detail::settle_choice(chosen, accumulator(t, warm), found, k, at);
    bool const all = kept == detail::every(found);
    if (!all && !(kept == at)) return defer(c);
    t.written[id] = static_cast<std::uint32_t>(
        smaller<std::uint64_t>(all ? found.count : wanted.rank, t.segments[id].out_capacity));
    auto const count = static_cast<std::uint32_t>(found.count);
    c.choices[id] = {entry_source::candidates, count, all ? threshold{} : kept, warm};
  }

  /// Defers the segment to select_rest(), as its candidates do not suffice.
  __device__ void defer(choice_tables const& c) const {
    c.choices[id] = {entry_source::list, 0, {}, {}};
    atomicAdd(c.undecided, 1u);
  }
};

/// Range of a search's first round: half an octave above the lowest candidate. The k-th largest is there, unless the
/// prediction was far off; a second round then has single keys.
inline constexpr key_type near_span = (key_type{1} << 2 * detail::digit_search::digit_bits) - 1;

[[nodiscard]] __device__ inline detail::digit_search near_search(segment_candidates const& mine, std::uint64_t above) {
  key_type const low = mine.found.threshold;
  return {low, low + near_span, mine.wanted.rank - static_cast<index_type>(above)};
}

/// By one block that reads the candidates in each round: the threshold of more than most_alone that are not shared out.
[[nodiscard]] __device__ inline threshold search_in_memory(segment_candidates const& mine, tables const& t,
                                                           block_group<choose_threads>& group) {
  detail::digit_search search{mine.found.threshold, infinite_key - 1, mine.wanted.rank};
  while (!search.done()) narrow(group, search, t.candidate_values, mine.base, mine.end());
  return search.result();
}

/// By one block with all keys in registers: the threshold of at most most_alone candidates. Tries near_search() first.
[[nodiscard]] __device__ inline threshold search_alone(segment_candidates const& mine, tables const& t,
                                                       block_group<choose_threads>& group) {
  block_keys const keys{t.candidate_values, mine.base, mine.end()};
  detail::digit_search search = near_search(mine, 0);
  key_type const high = search.high();
  for (bool is_near = true; !search.done(); is_near = false) {
    group.clear_histogram();
    std::uint32_t own = 0;
    keys.each_key([&](key_type key) {
      own += key > high ? 1 : 0;
      group.count(search.bin(key));
    });
    std::uint64_t const above = group.block_sum(own);
    if (is_near && above >= mine.wanted.rank) {
      search = {high + 1, infinite_key - 1, mine.wanted.rank};
      continue;
    }
    if (is_near) search = near_search(mine, above);
    group.find(search);
  }
  return search.result();
}

/// In the last block of a search: moves the blocks' histogram to shared memory; returns the number of keys above it.
__device__ inline std::uint32_t take_histogram(shared_search& all, block_shared_state<choose_threads>& here) {
  for (unsigned b = threadIdx.x; b < detail::digit_search::bins / 4; b += choose_threads) {
    auto& word = reinterpret_cast<uint4*>(all.histogram)[b];
    reinterpret_cast<uint4*>(here.histogram)[b] = word;
    word = {0, 0, 0, 0};
  }
  std::uint32_t const above = all.above;
  __syncthreads();
  if (threadIdx.x == 0) all.above = 0;
  return above;
}

/// First round of a shared search, whose last block picks the bin. True in that block, if it ended the search.
template <class Selector>
[[nodiscard]] __device__ bool begin_search(Selector const& chosen, segment_candidates const& mine, tables const& t,
                                           choice_tables const& c, block_group<choose_threads>& group,
                                           block_shared_state<choose_threads>& here) {
  chunk_part const part{mine.base, mine.end(), c, blockIdx.x};
  auto& all = c.shared[part.first];
  detail::digit_search search = near_search(mine, 0);
  key_type const high = search.high();
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
  for (unsigned b = threadIdx.x; b < detail::digit_search::bins; b += choose_threads)
    if (here.histogram[b] != 0) atomicAdd(&all.histogram[b], here.histogram[b]);
  if (threadIdx.x == 0 && above_here != 0) atomicAdd(&all.above, above_here);
  if (!is_last_block(&all.tickets, part.blocks)) return false;

  std::uint32_t const all_above = take_histogram(all, here);
  bool const is_near = all_above < mine.wanted.rank;
  std::uint32_t left = 0;
  if (is_near) {
    search = near_search(mine, all_above);
    left = group.find(search);
  }
  bool const goes_on = is_near && !search.done() && left <= capacity_of_keys(mine.capacity);
  if (threadIdx.x != 0) return !goes_on;
  all.second = {goes_on ? 1u : 0u, mine.id, mine.base, mine.end(), search};
  if (goes_on) return false;
  if (is_near && search.done())
    mine.keep_wanted(chosen, search.result(), t, c);
  else
    mine.defer(c);
  return true;
}

/// Second round of a shared search: blocks store the bin's keys, and the last one finds the answer. True in that block.
template <class Selector>
[[nodiscard]] __device__ bool end_search(Selector const& chosen, shared_search& all, segment_candidates& mine,
                                         tables const& t, choice_tables const& c, block_group<choose_threads>& group) {
  open_search const here = all.second;
  if (here.is_open == 0) return false;
  detail::digit_search search = here.search;
  chunk_part const part{here.begin, here.end, c, blockIdx.x};
  key_type* const listed = c.keys + keys_begin(here.begin);
  over_keys(t.candidate_values, part.begin, part.end, [&](thread_keys const& keys) {
    std::uint32_t own = 0;
#pragma unroll
    for (auto const key : keys.values) own += search.inside(key) ? 1 : 0;
    if (__all_sync(~0u, own == 0)) return;
    std::uint32_t const up_to = warp_prefix_sum(own);
    std::uint32_t to = 0;
    if (threadIdx.x % 32 == 31) to = atomicAdd(&all.listed, up_to);
    to = __shfl_sync(~0u, to, 31) + up_to - own;
#pragma unroll
    for (auto const key : keys.values)
      if (search.inside(key)) listed[to++] = key;
  });
  if (!is_last_block(&all.tickets, part.blocks)) return false;
  mine.load(chosen, t, here.id);
  std::uint32_t const count = all.listed;
  while (!search.done()) narrow(group, search, listed, 0, count);
  if (threadIdx.x != 0) return true;
  all.listed = all.second.is_open = 0;
  mine.keep_wanted(chosen, search.result(), t, c);
  return true;
}

/// Ends the step if all segments' candidates suffice: by the last block of the last kernel that searches or, with a
/// single segment, the block that has `decided`.
__device__ inline void end_choice(bool decided, tables const& t, choice_tables const& c, list_end const& end,
                                  block_group<choose_threads>& group) {
  if (t.segment_count != 1) decided = is_last_block(c.tickets);
  if (!decided) return;
  __syncthreads();
  if (*c.undecided == 0) begin_list(group, t, c, end);
}

template <class Selector>
__device__ __forceinline__ void choose_alone(Selector const& chosen, segment_candidates& mine, tables const& t,
                                             choice_tables const& c, std::uint32_t s,
                                             block_group<choose_threads>& group) {
  mine.load(chosen, t, s);
  threshold at = detail::every(mine.found);
  if (mine.needs_search())
    at = mine.found.count <= most_alone ? search_alone(mine, t, group) : search_in_memory(mine, t, group);
  if (threadIdx.x == 0) mine.record(chosen, at, t, c);
}

/// Chooses among all segments' candidates: one block per small segment or chunk. `ends`: no end_searches() follows.
template <class Selector>
__global__ void __launch_bounds__(choose_threads, choose_blocks)
    choose_entries(Selector const chosen, tables const t, choice_tables const c, bool ends, list_end const end) {
  wait_for_previous();
  __shared__ block_shared_state<choose_threads> here;
  __shared__ segment_candidates mine;
  __shared__ chunk_segments shared_out;
  block_group<choose_threads> group{here};
  bool decided = false;
  for (std::uint32_t s = blockIdx.x; s < t.segment_count; s += gridDim.x) {
    if (is_shared_out(t.found[s], t.segments[s].capacity, c)) continue;
    choose_alone(chosen, mine, t, c, s, group);
    decided = true;
  }
  if (blockIdx.x < c.shared_count) {
    shared_out.find(t, c, blockIdx.x);
    auto& searches = c.chunks[blockIdx.x];
    if (threadIdx.x == 0) searches.count = shared_out.count;
    for (std::uint32_t i = 0; i < shared_out.count; ++i) {
      mine.load(chosen, t, shared_out.ids[i]);
      std::uint32_t const first = mine.base / c.chunk;
      if (threadIdx.x == 0) searches.first[i] = first;
      if (mine.needs_search()) {
        decided = begin_search(chosen, mine, t, c, group, here) || decided;
      } else if (is_last_block(&c.shared[first].tickets, chunk_part{mine.base, mine.end(), c, blockIdx.x}.blocks)) {
        // The last block: no other still reads what the end of the step changes.
        if (threadIdx.x == 0) {
          c.shared[first].second.is_open = 0;
          mine.record(chosen, detail::every(mine.found), t, c);
        }
        decided = true;
      }
    }
  }
  if (ends || (decided && t.segment_count == 1)) end_choice(decided, t, c, end, group);
}

/// One block per chunk: second rounds of the searches that several blocks share.
template <class Selector>
__global__ void __launch_bounds__(choose_threads, choose_blocks)
    end_searches(Selector const chosen, tables const t, choice_tables const c, list_end const end) {
  wait_for_previous();
  __shared__ block_shared_state<choose_threads> here;
  __shared__ segment_candidates mine;
  block_group<choose_threads> group{here};
  auto const& searches = c.chunks[blockIdx.x];
  std::uint32_t const count = searches.count;
  bool decided = false;
  for (std::uint32_t i = 0; i < count; ++i)
    decided = end_search(chosen, c.shared[searches.first[i]], mine, t, c, group) || decided;
  if (t.segment_count != 1 || decided) end_choice(decided, t, c, end, group);
}

}  // namespace gradsieve::cuda_kernels
