// The accumulate pass on a device: adds the gradient to the residual, and collects candidates.
#pragma once

#include <cstdint>

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/look_back.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Candidates of one tile, in index order: their values, and their places in the cell.
struct candidates_of_tile {
  float values[cell_size];
  std::uint16_t places[cell_size];
};

/// One tile in the registers of a block. A thread has cell_size / Threads elements of the tile's cell, as `vectors`
/// vectors of `width` adjacent ones; bits of `inside_` mark those that are in the tile.
template <class T, class Residual, unsigned Threads>
class tile_registers {
 public:
  static constexpr unsigned states = Residual::states;
  static constexpr unsigned width = incoming<T, Residual>::width;
  static constexpr unsigned vectors = cell_size / (Threads * width);
  static_assert(width * vectors <= 32);

  __device__ __forceinline__ tile_registers(incoming<T, Residual> const& in, tile const& mine)
      : in_{in}, cell_{mine.begin / cell_size}, is_full_{mine.size == cell_size} {
    if (is_full_) return;
    inside_ = 0;
    each([&](unsigned v, unsigned e) { inside_ |= (at(v) + e - mine.begin < mine.size ? 1u : 0u) << bit(v, e); });
  }

  /// All loads of a full tile are issued before the first value is used.
  __device__ __forceinline__ void load() {
    pack<T, width> gradient[vectors];
    pack<stored, width> kept[states][vectors];
    if (is_full_) {
      if (in_.aligned) {
#pragma unroll
        for (unsigned v = 0; v < vectors; ++v) gradient[v] = load_once<width>(in_.gradient + at(v));
      } else {
        each([&](unsigned v, unsigned e) { gradient[v].values[e] = in_.gradient[at(v) + e]; });
      }
#pragma unroll
      for (unsigned s = 0; s < states; ++s)
#pragma unroll
        for (unsigned v = 0; v < vectors; ++v)
          kept[s][v] = *reinterpret_cast<pack<stored, width> const*>(in_.states[s] + at(v));
    } else {
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) load_part(v, gradient[v], kept);
    }
    each([&](unsigned v, unsigned e) {
      gradient_[v][e] = to_float(gradient[v].values[e]);
#pragma unroll
      for (unsigned s = 0; s < states; ++s) now_[v][e][s] = to_float(kept[s][v].values[e]);
    });
  }

  /// Removes what is pending. `sent.bits(i)`: bits of 32 - i % 32 elements from i on; `sent.value(i)`: one's value.
  template <class Sent>
  __device__ __forceinline__ void remove(Sent const& sent, bool full_layer, tables const& t) {
    rounding const noise{*t.step, rounding::removed};
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
      std::uint32_t const i = at(v) % cell_size;
      std::uint32_t const bits = sent.bits(i);
#pragma unroll
      for (unsigned e = 0; e < width; ++e)
        if (((bits >> e) & 1u) != 0) {
          in_.policy.remove_sent(sent.value(i + e), now_[v][e], full_layer);
          noise.apply<stored>(at(v) + e, now_[v][e]);
        }
    }
  }

  /// Adds the gradient to the states; returns the number of this thread's elements that were not finite.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t accumulate(tables const& t) {
    float const factor = in_.factor == nullptr ? 1.0f : *in_.factor;
    rounding const noise{*t.step, rounding::accumulated};
    std::uint32_t bad = 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v) {
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        bool const finite = accumulate_element(in_.policy, multiply(gradient_[v][e], factor), now_[v][e]);
        if constexpr (states == 1)
          bad |= finite ? 0u : 1u << bit(v, e);
        else  // of several states a register would spill
          bad += has(v, e) && !finite ? 1u : 0u;
      }
      round(v, noise);
    }
    return states == 1 ? __popc(bad & inside_) : bad;
  }

  __device__ __forceinline__ void store() const {
#pragma unroll
    for (unsigned s = 0; s < states; ++s)
#pragma unroll
      for (unsigned v = 0; v < vectors; ++v) {
        pack<stored, width> made;
#pragma unroll
        for (unsigned e = 0; e < width; ++e) made.values[e] = to_stored<stored>(now_[v][e][s], 0);
        if (is_full_ || has_all(v)) {
          *reinterpret_cast<pack<stored, width>*>(in_.states[s] + at(v)) = made;
        } else {
#pragma unroll
          for (unsigned e = 0; e < width; ++e)
            if (has(v, e)) in_.states[s][at(v) + e] = made.values[e];
        }
      }
  }

  [[nodiscard]] __device__ __forceinline__ tile_sums sums() const {
    tile_sums own{};
    each([&](unsigned v, unsigned e) {
      if (has(v, e)) own.add(now_[v][e][0]);
    });
    return own;
  }

  /// A bit for each element whose accumulator reaches a key.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t that_reach(key_type key) const {
    std::uint32_t found = 0;
    each([&](unsigned v, unsigned e) { found |= (magnitude_key(now_[v][e][0]) >= key ? 1u : 0u) << bit(v, e); });
    return found & inside_;
  }

  /// Number of bits of each vector, in 16 bits per vector.
  [[nodiscard]] static __device__ __forceinline__ std::uint64_t count_by_vector(std::uint32_t bits) {
    std::uint64_t counts = 0;
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v)
      counts |= static_cast<std::uint64_t>(__popc((bits >> (v * width)) & ((1u << width) - 1))) << (16 * v);
    return counts;
  }

  /// Lists the elements with a bit, in index order. `to`: where each vector's begin.
  __device__ __forceinline__ void list(std::uint32_t bits, std::uint32_t (&to)[vectors],
                                       candidates_of_tile& shared) const {
    each([&](unsigned v, unsigned e) {
      if (((bits >> bit(v, e)) & 1u) == 0) return;
      shared.values[to[v]] = now_[v][e][0];
      shared.places[to[v]] = static_cast<std::uint16_t>(at(v) % cell_size + e);
      ++to[v];
    });
  }

 private:
  using stored = stored_t<Residual>;
  static constexpr std::uint32_t all_of_vector = (1u << width) - 1;

  /// Calls body(vector, element) for all that a thread has, unrolled.
  template <class Body>
  static __device__ __forceinline__ void each(Body const& body) {
#pragma unroll
    for (unsigned v = 0; v < vectors; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) body(v, e);
  }

  [[nodiscard]] static constexpr __device__ unsigned bit(unsigned v, unsigned e) { return v * width + e; }
  [[nodiscard]] __device__ __forceinline__ bool has(unsigned v, unsigned e) const {
    return ((inside_ >> bit(v, e)) & 1u) != 0;
  }
  [[nodiscard]] __device__ __forceinline__ bool has_all(unsigned v) const {
    return ((inside_ >> bit(v, 0)) & all_of_vector) == all_of_vector;
  }

  /// Loads a vector of a tile that is not full.
  __device__ __forceinline__ void load_part(unsigned v, pack<T, width>& gradient,
                                            pack<stored, width> (&kept)[states][vectors]) const {
    if (in_.aligned && has_all(v)) {
      gradient = load_once<width>(in_.gradient + at(v));
    } else {
#pragma unroll
      for (unsigned e = 0; e < width; ++e) gradient.values[e] = has(v, e) ? in_.gradient[at(v) + e] : T{};
    }
#pragma unroll
    for (unsigned s = 0; s < states; ++s) {
      if (has_all(v)) {
        kept[s][v] = *reinterpret_cast<pack<stored, width> const*>(in_.states[s] + at(v));
      } else {
#pragma unroll
        for (unsigned e = 0; e < width; ++e) kept[s][v].values[e] = has(v, e) ? in_.states[s][at(v) + e] : stored{};
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ std::uint32_t at(unsigned v) const {  // first element
    return cell_ * cell_size + (v * Threads + threadIdx.x) * width;
  }

  __device__ __forceinline__ void round(unsigned v, rounding const& noise) {  // as apply()
    if constexpr (sizeof(stored) < sizeof(float)) {
#pragma unroll
      for (unsigned s = 0; s < states; ++s)
#pragma unroll
        for (unsigned first = 0; first < width; first += 4) {
          std::uint64_t const four = noise.of_four((at(v) + first) / 4, s);
#pragma unroll
          for (unsigned e = 0; e < 4; ++e)
            now_[v][first + e][s] =
                to_float(to_stored<stored>(now_[v][first + e][s], static_cast<std::uint16_t>(four >> (16 * e))));
        }
    }
  }

  incoming<T, Residual> const& in_;
  std::uint32_t cell_;
  bool is_full_;
  std::uint32_t inside_ = ~0u;
  float gradient_[vectors][width];
  element_state<states> now_[vectors][width];
};

/// Pending values of one cell, and a bit for each element that has one.
struct pending_of_cell {
  float sent[cell_size];
  std::uint32_t is_sent[cell_size / 32];

  /// Loads entries [begin, end) of a list. By all threads of the block.
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

/// By all threads of a block: stores the tile's candidates in index order. `Stores`: and the tile, while others tell
/// their counts.
template <bool Stores, unsigned Threads, class T, class Residual>
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
  if constexpr (Stores) {
    if (threadIdx.x == 0) tile_order<>{t, mine.segment, blockIdx.x}.tell(total);
    own.store();
  }
  if (candidates != 0) own.list(candidates, to, shared.candidates);  // the scan's barriers: pending was read
  std::uint32_t const base = t.segments[mine.segment].base;
  std::uint32_t const capacity = t.segments[mine.segment].capacity;
  if (threadIdx.x < 32) {
    tile_order<> const order{t, mine.segment, blockIdx.x};
    if (!Stores && threadIdx.x == 0) order.tell(total);
    std::uint32_t const place = order.before<tile_loads>();
    if (threadIdx.x == 0) {
      order.tell(place + total, true);
      if (blockIdx.x + 1 == t.segments[mine.segment].last) t.found[mine.segment] = place + total;
      shared.place = place;
    }
  }
  __syncthreads();
  if (std::uint64_t{shared.place} + total > capacity) return;
  std::uint32_t const cell = mine.begin / cell_size * cell_size;
  std::uint32_t const first = base + shared.place;
  for (std::uint32_t i = threadIdx.x; i < total; i += Threads) {
    t.candidate_indices[first + i] = cell + shared.candidates.places[i];
    t.candidate_values[first + i] = shared.candidates.values[i];
  }
}

/// By one block, for the tile of its number: removes what is pending, accumulates the gradient, and keeps, in index
/// order, the elements that reach their segment's key; with `Measure` also the tile's sums. Without `Collect` no
/// segment has candidates.
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
  key_type threshold = !Collect || mine.segment == no_segment ? 0 : t.candidate_thresholds[mine.segment];
  if (mine.excluded != 0 && threshold != 0) threshold = ~key_type{0};  // none reaches it
  own.load();
  if (pending_begin != pending_end) {
    shared.pending.template load<Threads>(in.pending, pending_begin, pending_end);
    own.remove(shared.pending, mine.segment != no_segment && t.segments[mine.segment].full != 0, t);
  }
  std::uint32_t bad = own.accumulate(t);
  constexpr bool stores_late = !Measure && Residual::states == 1;  // else registers would spill
  if (!stores_late || threshold == 0) own.store();
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
    if (threshold != 0) list_candidates<stores_late>(own, mine, threshold, t, shared);
}

/// After accumulate() without a selection.
template <int = 0>
__global__ void forget_counts(tables const t) {
  end_counts(t);
}

/// One block per tile: accumulate_tile(). Its bandwidth depends on the blocks that a multiprocessor holds.
template <bool Collect, bool Measure, class T, class Residual>
__global__ void __launch_bounds__(accumulate_threads, accumulate_blocks(Residual::states))
    accumulate(incoming<T, Residual> const in, tables const t) {
  wait_for_previous();
  __shared__ accumulate_memory<accumulate_threads> shared;
  accumulate_tile<Collect, Measure>(in, t, shared);
}

}  // namespace gradsieve::cuda_kernels
