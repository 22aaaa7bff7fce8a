// The pass that a step on a device is made of: gradient into residual, candidates out.
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/tile_registers.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// What is pending in one cell: its values, and a bit for each element that has one.
struct pending_of_cell {
  float sent[cell_size];
  std::uint32_t is_sent[cell_size / 32];

  /// Entries [begin, end) of a list. By all threads of the block.
  template <unsigned Threads>
  __device__ __forceinline__ void load(entry_list const& list, std::uint32_t begin, std::uint32_t end) {
    for (unsigned w = threadIdx.x; w < cell_size / 32; w += Threads) is_sent[w] = 0;
    __syncthreads();
    for (std::uint64_t p = std::uint64_t{begin} + threadIdx.x; p < end; p += Threads) {
      std::uint32_t const i = list.indices[p] % cell_size;
      sent[i] = list.values[p];
      atomicOr(&is_sent[i / 32], 1u << (i % 32));
    }
    __syncthreads();
  }

  [[nodiscard]] __device__ std::uint32_t bits(std::uint32_t i) const { return is_sent[i / 32] >> (i % 32); }
  [[nodiscard]] __device__ float value(std::uint32_t i) const { return sent[i]; }
};

/// Shared memory of accumulate_tile().
template <unsigned Threads>
struct accumulate_memory {
  using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, Threads>;
  using reducer = CUB_NS_QUALIFIER::BlockReduce<tile_sums, Threads>;
  union {
    typename scanner::TempStorage scan;
    typename reducer::TempStorage reduce;
  };
  union {
    pending_of_cell pending;
    candidates_of_tile candidates;
  };
  std::uint32_t place;  // of the tile's candidates
};

/// The tile's candidates: places for all of them at once, then the entries, in index order.
template <unsigned Threads, class T, class Residual>
__device__ __forceinline__ void list_candidates(tile_registers<T, Residual, Threads> const& own, tile const& mine,
                                                key_type threshold, tables const& t,
                                                accumulate_memory<Threads>& shared) {
  constexpr unsigned vectors = tile_registers<T, Residual, Threads>::vectors;
  std::uint32_t const candidates = own.that_reach(threshold);
  std::uint64_t before = 0;
  std::uint64_t all = 0;
  typename accumulate_memory<Threads>::scanner{shared.scan}.ExclusiveSum(own.count_by_vector(candidates), before, all);
  std::uint32_t to[vectors];
  std::uint32_t total = 0;
#pragma unroll
  for (unsigned v = 0; v < vectors; ++v) {
    to[v] = total + static_cast<std::uint32_t>((before >> (16 * v)) & 0xFFFFu);
    total += static_cast<std::uint32_t>((all >> (16 * v)) & 0xFFFFu);
  }
  if (threadIdx.x == 0) {
    shared.place = total == 0 ? 0 : atomicAdd(&t.found[mine.segment], total);
    t.places[blockIdx.x] = {shared.place, total};
  }
  if (candidates != 0) own.list(candidates, to, shared.candidates);  // the scan's barriers: pending was read
  std::uint32_t const base = t.segments[mine.segment].base;
  std::uint32_t const capacity = t.segments[mine.segment].capacity;
  __syncthreads();
  if (std::uint64_t{shared.place} + total > capacity) return;
  std::uint32_t const cell = mine.begin / cell_size * cell_size;
  std::uint32_t const first = base + shared.place;
  for (std::uint32_t i = threadIdx.x; i < total; i += Threads) {
    t.candidate_indices[first + i] = cell + shared.candidates.places[i];
    t.candidate_values[first + i] = shared.candidates.values[i];
  }
}

/// By a block, for the tile of its number: removes what is pending, accumulates the gradient, and keeps, in index
/// order, the elements that reach their segment's key; with `Measure` also the tile's sums. Without
/// `Collect` no candidates are known of any segment. The order in which tiles
/// get their places is any, what stands there and where a tile's begin is written down.
template <bool Collect, bool Measure, unsigned Threads, class T, class Residual>
__device__ __forceinline__ void accumulate_tile(incoming<T, Residual> const& in, tables const& t,
                                                accumulate_memory<Threads>& shared) {
  if (blockIdx.x == 0) {
    if (threadIdx.x < t.count_words) t.counts[threadIdx.x] = 0;
    for (std::uint32_t s = threadIdx.x; !Collect && s < t.segment_count; s += Threads) t.candidate_thresholds[s] = 0;
  }
  tile const mine = t.tiles[blockIdx.x];
  bool const outside = mine.excluded != 0 || mine.segment == no_segment;
  tile_registers<T, Residual, Threads> own{in, mine};
  std::uint32_t const* const pending = in.pending.cells + mine.begin / cell_size;
  std::uint32_t const pending_begin = pending[0];  // read before the loads of many elements, not behind them
  std::uint32_t const pending_end = pending[1];
  key_type const threshold = !Collect || outside ? 0 : t.candidate_thresholds[mine.segment];
  own.load();
  if (pending_begin != pending_end) {
    shared.pending.template load<Threads>(in.pending, pending_begin, pending_end);
    own.remove(shared.pending, mine.segment != no_segment && t.segments[mine.segment].full != 0, t);
  }
  std::uint32_t bad = own.accumulate(t);
  own.store();
  if (__any_sync(~0u, bad != 0)) {
    bad = warp_sum(bad);
    if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(t.bad_now), bad);
  }
  if constexpr (Measure) {
    auto const total = typename accumulate_memory<Threads>::reducer{shared.reduce}.Reduce(own.sums(), tile_sums::both);
    if (threadIdx.x == 0) t.sums[blockIdx.x] = outside ? tile_sums{} : total;
    __syncthreads();
  }
  if constexpr (Collect)
    if (threshold != 0) list_candidates(own, mine, threshold, t, shared);
}

/// After accumulate(), where nothing is selected.
template <int = 0>
__global__ void forget_counts(tables const t) {
  end_counts(t);
}

/// A block a tile, as accumulate_tile() has it. Its bandwidth hangs on the blocks that a multiprocessor holds.
template <bool Collect, bool Measure, class T, class Residual>
__global__ void __launch_bounds__(accumulate_threads, accumulate_blocks(Residual::states))
    accumulate(incoming<T, Residual> const in, tables const t) {
  wait_for_previous();
  __shared__ accumulate_memory<accumulate_threads> shared;
  accumulate_tile<Collect, Measure>(in, t, shared);
}

}  // namespace gradsieve::cuda_kernels
