// The pass that a step on a device is made of: gradient into residual, candidates out.
#pragma once

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::cuda_kernels {

inline constexpr unsigned accumulate_threads = 256;
inline constexpr unsigned per_vector = 4;  // elements that one thread loads at once
inline constexpr unsigned vectors = cell_size / (accumulate_threads * per_vector);

/// A gradient on its way into the states of its elements. `pending` is removed before.
template <class T, class Residual>
struct incoming {
  T const* gradient;
  stored_t<Residual>* states[Residual::states];
  Residual policy;
  float const* factor;  // what the gradient is multiplied with; null: 1
  entry_list pending;
  bool aligned;  // the gradient, to one load of four
};

/// Four elements in one load; `Once`: past caches that will not need them again.
template <bool Once, class T>
__device__ void load_four(T const* from, float (&to)[per_vector]) {
  auto const load = [](auto const* four) { return Once ? __ldcs(four) : *four; };
  if constexpr (sizeof(T) == 4) {
    auto const four = load(reinterpret_cast<float4 const*>(from));
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
    auto const two = load(reinterpret_cast<uint2 const*>(from));
    unsigned const words[2] = {two.x, two.y};
#pragma unroll
    for (unsigned e = 0; e < per_vector; ++e)
      to[e] = to_float(T{static_cast<std::uint16_t>(words[e / 2] >> (16 * (e % 2)))});
  }
}

/// Four elements, which their format can hold, in one store.
template <class T>
__device__ void store_four(float const (&from)[per_vector], T* to) {
  if constexpr (sizeof(T) == 4) {
    *reinterpret_cast<float4*>(to) = float4{from[0], from[1], from[2], from[3]};
  } else {
    unsigned words[2];
#pragma unroll
    for (unsigned w = 0; w < 2; ++w)
      words[w] = to_stored<T>(from[2 * w]).bits | unsigned{to_stored<T>(from[2 * w + 1]).bits} << 16;
    *reinterpret_cast<uint2*>(to) = uint2{words[0], words[1]};
  }
}

/// As rounding::apply(), of elements `first` to `first` + 3. @pre first is a multiple of four.
template <class Stored, std::size_t States>
__device__ void round_four(rounding const noise, std::uint32_t first, element_state<States> (&now)[per_vector]) {
  if constexpr (sizeof(Stored) < sizeof(float)) {
#pragma unroll
    for (unsigned s = 0; s < States; ++s) {
      std::uint64_t const four = noise.of_four(first / 4, s);
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e)
        now[e][s] = to_float(to_stored<Stored>(now[e][s], static_cast<std::uint16_t>(four >> (16 * e))));
    }
  }
}

/// Whether an element is pending, and what: a search among the few of its cell.
__device__ inline bool find_pending(entry_list const& pending, std::uint32_t i, float& value) {
  std::uint32_t low = pending.cells[i / cell_size];
  std::uint32_t const end = pending.cells[i / cell_size + 1];
  std::uint32_t high = end;
  while (low < high) {
    std::uint32_t const middle = low + (high - low) / 2;
    if (pending.indices[middle] < i)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == end || pending.indices[low] != i) return false;
  value = pending.values[low];
  return true;
}

/// Reads an accumulator as it is.
template <class Stored>
struct from_memory {
  Stored const* accumulator;
  __device__ float operator()(std::uint32_t i) const { return to_float(accumulator[i]); }
};

/// The state of an element as accumulate() will write it, and whether all was finite.
template <class T, class Residual>
__device__ bool entered(incoming<T, Residual> const& in, std::uint64_t step, std::uint32_t i,
                        element_state<Residual::states>& now) {
#pragma unroll
  for (unsigned s = 0; s < Residual::states; ++s) now[s] = to_float(in.states[s][i]);
  if (float sent = 0; find_pending(in.pending, i, sent)) {
    in.policy.remove_sent(sent, now, false);
    rounding{step, rounding::removed}.apply<stored_t<Residual>>(i, now);
  }
  float const factor = in.factor == nullptr ? 1.0f : *in.factor;
  bool const finite = accumulate_element(in.policy, multiply(to_float(in.gradient[i]), factor), now);
  rounding{step, rounding::accumulated}.apply<stored_t<Residual>>(i, now);
  return finite;
}

/// Reads an accumulator as accumulate() will write it: 0 in passthrough ranges.
template <class T, class Residual>
struct from_incoming {
  incoming<T, Residual> in;
  tables t;

  __device__ float operator()(std::uint32_t i) const {
    if (t.has_passthrough && t.tiles[tile_of(t, i)].passthrough != 0) return 0;
    element_state<Residual::states> now;
    entered(in, *t.step, i, now);
    return now[0];
  }
};

/// One block a tile: removes what is pending, accumulates the gradient, and keeps, in index order, the elements that
/// reach their segment's key; with `Measure` also the tile's sums. The order in which tiles get their places is any,
/// what stands there and where a tile's begin is written down.
template <bool Collect, bool Measure, class T, class Residual>
__global__ void __launch_bounds__(accumulate_threads) accumulate(incoming<T, Residual> const in, tables const t) {
  constexpr unsigned states = Residual::states;
  using stored = stored_t<Residual>;
  using scan = cub::BlockScan<std::uint64_t, accumulate_threads>;
  using reduce = cub::BlockReduce<tile_sums, accumulate_threads>;
  __shared__ union {
    typename scan::TempStorage scan;
    typename reduce::TempStorage reduce;
  } shared;
  __shared__ float sent[cell_size];
  __shared__ std::uint32_t is_sent[cell_size / 32];
  __shared__ std::uint32_t place_of_tile;

  tile const mine = t.tiles[blockIdx.x];
  std::uint32_t const cell = mine.begin / cell_size;
  std::uint32_t const cell_begin = cell * cell_size;
  auto const in_tile = [&](std::uint32_t i) { return i - mine.begin < mine.size; };
  std::uint32_t const pending_begin = in.pending.cells[cell];
  std::uint32_t const pending_end = in.pending.cells[cell + 1];

  float gradient[vectors][per_vector];
  element_state<states> now[vectors][per_vector];
#pragma unroll
  for (unsigned v = 0; v < vectors; ++v) {
    std::uint32_t const first = cell_begin + (v * accumulate_threads + threadIdx.x) * per_vector;
    bool const full = in_tile(first) && in_tile(first + per_vector - 1);
    if (full && in.aligned)
      load_four<true>(in.gradient + first, gradient[v]);
    else
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e)
        gradient[v][e] = in_tile(first + e) ? to_float(in.gradient[first + e]) : 0.0f;
#pragma unroll
    for (unsigned s = 0; s < states; ++s) {
      float four[per_vector];
      if (full)
        load_four<false>(in.states[s] + first, four);
      else
#pragma unroll
        for (unsigned e = 0; e < per_vector; ++e)
          four[e] = in_tile(first + e) ? to_float(in.states[s][first + e]) : 0.0f;
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e) now[v][e][s] = four[e];
    }
  }

  if (pending_begin != pending_end) {
    for (unsigned w = threadIdx.x; w < cell_size / 32; w += accumulate_threads) is_sent[w] = 0;
    __syncthreads();
    for (std::uint32_t p = pending_begin + threadIdx.x; p < pending_end; p += accumulate_threads) {
      std::uint32_t const i = in.pending.indices[p] - cell_begin;
      sent[i] = in.pending.values[p];
      atomicOr(&is_sent[i / 32], 1u << (i % 32));
    }
    __syncthreads();
    bool const full_layer = mine.segment != no_segment && t.segments[mine.segment].full != 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      std::uint32_t const i = (v * accumulate_threads + threadIdx.x) * per_vector;
      std::uint32_t const bits = is_sent[i / 32] >> (i % 32);
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e)
        if (((bits >> e) & 1u) != 0) in.policy.remove_sent(sent[i + e], now[v][e], full_layer);
      if ((bits & 0xFu) != 0) round_four<stored>({*t.step, rounding::removed}, cell_begin + i, now[v]);
    }
  }

  bool const outside = mine.passthrough != 0 || mine.segment == no_segment;
  key_type const candidate_threshold = Collect && !outside ? t.candidate_thresholds[mine.segment] : 0;
  float const factor = in.factor == nullptr ? 1.0f : *in.factor;
  std::uint32_t bad = 0;
  std::uint64_t counts = 0;     // of candidates, 16 bits a vector
  std::uint32_t candidate = 0;  // a bit an element
#pragma unroll
  for (unsigned v = 0; v < vectors; ++v) {
    std::uint32_t const first = cell_begin + (v * accumulate_threads + threadIdx.x) * per_vector;
    std::uint32_t here = 0;
#pragma unroll
    for (unsigned e = 0; e < per_vector; ++e) {
      bool const finite = accumulate_element(in.policy, multiply(gradient[v][e], factor), now[v][e]);
      bad += in_tile(first + e) && !finite ? 1u : 0u;
    }
    round_four<stored>({*t.step, rounding::accumulated}, first, now[v]);
#pragma unroll
    for (unsigned e = 0; e < per_vector; ++e) {
      bool const wanted = Collect && candidate_threshold != 0 && in_tile(first + e) &&
                          magnitude_key(now[v][e][0]) >= candidate_threshold;
      candidate |= wanted ? 1u << (v * per_vector + e) : 0u;
      here += wanted ? 1u : 0u;
    }
    counts |= std::uint64_t{here} << (16 * v);
    bool const full = in_tile(first) && in_tile(first + per_vector - 1);
#pragma unroll
    for (unsigned s = 0; s < states; ++s) {
      if (full) {
        float const four[per_vector] = {now[v][0][s], now[v][1][s], now[v][2][s], now[v][3][s]};
        store_four(four, in.states[s] + first);
      } else {
#pragma unroll
        for (unsigned e = 0; e < per_vector; ++e)
          if (in_tile(first + e)) in.states[s][first + e] = to_stored<stored>(now[v][e][s]);
      }
    }
  }
  if (__any_sync(~0u, bad != 0)) {
    bad = warp_sum(bad);
    if (threadIdx.x % 32 == 0) atomicAdd(reinterpret_cast<unsigned long long*>(t.bad), bad);
  }

  if constexpr (Measure) {
    tile_sums sums{};
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      std::uint32_t const first = cell_begin + (v * accumulate_threads + threadIdx.x) * per_vector;
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e)
        if (in_tile(first + e)) sums.add(now[v][e][0]);
    }
    auto const total = reduce{shared.reduce}.Reduce(sums, tile_sums::both);
    if (threadIdx.x == 0) t.sums[blockIdx.x] = outside ? tile_sums{} : total;
    __syncthreads();
  }

  if constexpr (Collect) {
    if (outside || candidate_threshold == 0) return;
    std::uint64_t before = 0;
    std::uint64_t all = 0;
    scan{shared.scan}.ExclusiveSum(counts, before, all);
    std::uint32_t of_vector[vectors];
    std::uint32_t total = 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      of_vector[v] = total + static_cast<std::uint32_t>((before >> (16 * v)) & 0xFFFFu);
      total += static_cast<std::uint32_t>((all >> (16 * v)) & 0xFFFFu);
    }
    if (threadIdx.x == 0) {
      place_of_tile = total == 0 ? 0 : atomicAdd(&t.found[mine.segment], total);
      t.places[blockIdx.x] = {place_of_tile, total};
    }
    __syncthreads();
    auto const& segment_here = t.segments[mine.segment];
    std::uint64_t const last = std::uint64_t{place_of_tile} + total;
    if (candidate == 0 || last > segment_here.room) return;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      std::uint32_t const first = cell_begin + (v * accumulate_threads + threadIdx.x) * per_vector;
      std::uint32_t to = segment_here.base + place_of_tile + of_vector[v];
#pragma unroll
      for (unsigned e = 0; e < per_vector; ++e)
        if (((candidate >> (v * per_vector + e)) & 1u) != 0) {
          t.candidate_indices[to] = first + e;
          t.candidate_values[to] = now[v][e][0];
          ++to;
        }
    }
  }
}

/// Elements that accumulate() would find not finite; nothing is changed.
template <class T, class Residual>
__global__ void count_not_finite(incoming<T, Residual> const in, tables const t) {
  std::uint32_t bad = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < t.n;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    element_state<Residual::states> now;
    bad += entered(in, *t.step, static_cast<std::uint32_t>(i), now) ? 0u : 1u;
  }
  if (bad != 0) atomicAdd(reinterpret_cast<unsigned long long*>(t.bad), bad);
}

}  // namespace gradsieve::cuda_kernels
