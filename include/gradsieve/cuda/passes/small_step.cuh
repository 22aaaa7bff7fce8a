// A whole step on a gradient that one block has in registers: accumulate, select, write the entries.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/choose.cuh>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/kernel_workspace.cuh>
#include <gradsieve/cuda/passes/select.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/tile_registers.cuh>
#include <gradsieve/cuda/passes/tile_run.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::cuda_kernels {

template <class T, class Residual>
using small_registers = tile_registers<T, Residual, small_threads, small_size>;

/// What is pending: a bit for each element that has a value, and how many have one before each 32.
struct pending_of_small {
  static constexpr unsigned words = small_size / 32;
  static_assert(words <= small_threads);
  std::uint32_t is_sent[words];
  std::uint32_t before[words];
  float const* values;  // of the first that is pending

  /// Entries [begin, end) of a list. By all threads of the block.
  __device__ void load(entry_list const& list, std::uint32_t begin, std::uint32_t end,
                       block_group<small_threads>& group) {
    if (threadIdx.x < words) is_sent[threadIdx.x] = 0;
    if (threadIdx.x == 0) values = list.values + begin;
    __syncthreads();
    for (std::uint32_t p = begin + threadIdx.x; p < end; p += small_threads) {
      std::uint32_t const i = list.indices[p];
      atomicOr(&is_sent[i / 32], 1u << (i % 32));
    }
    __syncthreads();
    std::uint64_t up_to = 0;
    (void)group.block_sum(threadIdx.x < words ? __popc(is_sent[threadIdx.x]) : 0u, up_to);
    if (threadIdx.x < words) before[threadIdx.x] = static_cast<std::uint32_t>(up_to);
    __syncthreads();
  }

  [[nodiscard]] __device__ std::uint32_t bits(std::uint32_t i) const { return is_sent[i / 32] >> (i % 32); }
  [[nodiscard]] __device__ float value(std::uint32_t i) const {
    return values[before[i / 32] + __popc(is_sent[i / 32] & ((1u << i % 32) - 1))];
  }
};

/// Shared memory of small_step().
struct small_memory {
  static constexpr unsigned most_vectors = small_size / small_threads;
  union {
    block_shared_state<small_threads> all;
    block_shared_state<group_threads> rest;
  };
  union {
    pending_of_small pending;
    kept_count before[most_vectors * (small_threads / 32)];  // what is kept before each warp's elements of a vector
  };
};

/// The threshold that a segment's candidates are to keep, of those in registers.
template <class Registers>
[[nodiscard]] __device__ __forceinline__ threshold find_threshold(segment_candidates const& mine, Registers const& own,
                                                                  block_group<small_threads>& group) {
  if (!mine.needs_search()) return detail::every(mine.found);
  if (mine.found.count <= most_alone) return search_registers(mine, own, group);
  detail::digit_search search{mine.found.threshold, infinite_key - 1, mine.wanted.rank};  // as search_in_memory()
  while (!search.done()) {
    group.clear_histogram();
    own.each_key([&](key_type key) { group.count(search.bin(key)); });
    __syncthreads();
    group.find(search);
  }
  return search.result();
}

/// The entries among those in registers, in index order, and where each cell's begin.
template <class Registers>
__device__ __forceinline__ void write_kept(Registers const& own, key_type reached, threshold const at,
                                           std::uint32_t capacity, std::uint32_t cells, small_memory& shared,
                                           block_group<small_threads>& group, entry_list const& out) {
  constexpr unsigned vectors = Registers::vectors;
  constexpr unsigned warps = small_threads / 32;
  constexpr unsigned elements = small_threads * Registers::width;  // of a vector, by all threads
  static_assert(cell_size % elements == 0 && vectors * warps <= small_threads);
  auto const is_above = [&](key_type key) { return key >= reached && key > at.key; };
  auto const is_equal = [&](key_type key) { return key >= reached && key == at.key; };
  std::uint32_t before[vectors];  // in the warp: those above, and in the upper half equal ones
#pragma unroll
  for (unsigned v = 0; v < vectors; ++v) {
    std::uint32_t count = 0;
    own.each_of(v, [&](std::uint32_t, bool has, float value) {
      key_type const key = has ? magnitude_key(value) : 0;
      count += (is_above(key) ? 1u : 0u) + (is_equal(key) ? 1u << 16 : 0u);
    });
    std::uint32_t const up_to = warp_prefix_sum(count);
    before[v] = up_to - count;
    if (threadIdx.x % 32 == 31) shared.before[v * warps + threadIdx.x / 32] = {up_to & 0xFFFFu, up_to >> 16};
  }
  __syncthreads();
  bool const has_place = threadIdx.x < vectors * warps;
  std::uint64_t up_to = 0;
  (void)group.block_sum(has_place ? shared.before[threadIdx.x].packed() : 0, up_to);
  if (has_place) shared.before[threadIdx.x] = kept_count::unpacked(up_to);
  __syncthreads();
#pragma unroll
  for (unsigned v = 0; v < vectors; ++v) {
    kept_count kept = shared.before[v * warps + threadIdx.x / 32] + kept_count{before[v] & 0xFFFFu, before[v] >> 16};
    own.each_of(v, [&](std::uint32_t index, bool has, float value) {
      key_type const key = has ? magnitude_key(value) : 0;
      bool const above = is_above(key);
      bool const equal = is_equal(key);
      std::uint32_t const to = kept.entries(at.ties);
      if ((above || (equal && kept.equal < at.ties)) && to < capacity) {
        out.indices[to] = index;
        out.values[to] = value;
      }
      kept = kept + kept_count{above ? 1u : 0u, equal ? 1u : 0u};
    });
  }
  if (threadIdx.x < cells)
    out.cells[threadIdx.x] =
        smaller(shared.before[threadIdx.x * (cell_size / elements) * warps].entries(at.ties), capacity);
}

/// The step where the candidates do not do, as select_rest() has it. By group_threads threads of the block.
template <class Selector, class Stored>
__device__ __forceinline__ void select_small(Selector const& chosen, Stored const* accumulator, tables const& t,
                                             search_memory const& memory, choice_tables const& c, small_memory& shared,
                                             entry_list const& out, list_end const& end) {
  thread_group<true> group{*memory.grid_state, {0, 1}, shared.rest};
  if (key_type const reached = t.candidate_thresholds[0]; reached != 0) {
    from_memory<Stored> const read{accumulator};
    warm_threshold remembered;
    kernel_workspace work{group, t, read, memory.all, false};
    work.collect_again(accumulator_of(t, accumulator, 0, remembered), reached);
  }
  select_segment(chosen, group, accumulator, t, memory.all, c, false, out, 0);
  group.release();
  if (group.is_first()) memory.grid_state->arrived = 0;
  begin_list(group, t, c, end);
  __syncthreads();
  std::uint32_t const count = t.written[0];
  for (std::uint32_t cell = threadIdx.x; cell <= t.cell_count; cell += group_threads)
    out.cells[cell] = static_cast<std::uint32_t>(first_not_below(out.indices, count, std::uint64_t{cell} * cell_size));
}

/// By one block: what accumulate(), choose_entries(), select_rest() and write_entries() do, with the same results, for
/// a single segment of at most small_size elements, which is the whole gradient. `counts`: what a step counts, which is
/// zero before it.
template <class Selector, class T, class Residual>
__global__ void __launch_bounds__(small_threads, 1)
    small_step(Selector const chosen, incoming<T, Residual> const in, tables const t, search_memory const memory,
               choice_tables const c, std::uint32_t* counts, entry_list const out, list_end const end) {
  wait_for_previous();
  __shared__ small_memory shared;
  __shared__ segment_candidates mine;
  block_group<small_threads> group{shared.all};
  key_type const reached = t.candidate_thresholds[0];
  std::uint32_t const pending_begin = in.pending.cells[0];
  std::uint32_t const pending_end = in.pending.cells[t.cell_count];
  small_registers<T, Residual> own{in, {0, static_cast<std::uint32_t>(t.n), 0, 0}};
  own.load();
  if (counts + threadIdx.x < t.found) counts[threadIdx.x] = 0;
  if (pending_begin != pending_end) {
    shared.pending.load(in.pending, pending_begin, pending_end, group);
    own.remove(shared.pending, t.segments[0].full != 0, t);
  }
  std::uint64_t const bad = own.accumulate(t);
  own.store();
  std::uint64_t const found = reached == 0 ? 0 : __popc(own.that_reach(reached));
  std::uint64_t const counted = group.block_sum(found | bad << 32);
  if (threadIdx.x == 0) {
    t.found[0] = static_cast<std::uint32_t>(counted);
    *t.bad = counted >> 32;
  }
  mine.look_at(chosen, t, 0);
  threshold const at = find_threshold(mine, own, group);
  if (threadIdx.x == 0) mine.conclude(chosen, at, t, c);
  __syncthreads();
  auto const choice = c.choices[0];
  if (choice.source == entry_source::list) {
    if (threadIdx.x < group_threads) select_small(chosen, in.states[0], t, memory, c, shared, out, end);
    return;
  }
  bool const any = choice.source == entry_source::candidates;
  write_kept(own, any ? reached : ~key_type{0}, choice.at, t.segments[0].out_capacity, t.cell_count, shared, group,
             out);
  if (threadIdx.x == 0) out.cells[t.cell_count] = t.written[0];
  begin_list(group, t, c, end);
}

}  // namespace gradsieve::cuda_kernels
