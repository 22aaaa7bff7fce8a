// Selectors that choose in bins, on a device: a warp per bin marks what it keeps, then a warp per tile lists the marks.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/bins.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/look_back.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// By a warp: marks what a threshold keeps of a strip. `ties`: how many the following elements may take.
template <class Strip, class Chosen>
__device__ void mark_kept(Strip const& strip, Chosen const& chosen, float factor, key_type kept, std::uint32_t& ties,
                          std::uint32_t* marks) {
#pragma unroll
  for (unsigned v = 0; v < Strip::vectors; ++v) {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
    std::uint32_t nonzero = 0;  // in the bin
#pragma unroll
    for (unsigned e = 0; e < Strip::width; ++e) {
      key_type const key = strip.score(chosen, v * Strip::width + e, factor);
      above |= (key > kept ? 1u : 0u) << e;
      equal |= (key == kept && strip.has(v, e) ? 1u : 0u) << e;
      nonzero |= (strip.key(v * Strip::width + e) != 0 ? 1u : 0u) << e;
    }
    if (ties > 0) {
      std::uint32_t const own = __popc(equal);
      std::uint32_t const up_to = warp_prefix_sum(own);
      auto const left = static_cast<int>(ties - smaller(ties, up_to - own));
      while (__popc(equal) > left) equal &= ~(1u << (31 - __clz(equal)));  // the last ones are too many
      above |= equal;
      ties -= smaller(ties, __shfl_sync(~0u, up_to, 31));
    }
    if (__any_sync(~0u, (above & nonzero) != 0)) strip.mark(v, above & nonzero, marks);
  }
}

/// One warp per bin: marks the elements that its threshold keeps. Candidates may have any magnitude, if k > 0.
template <class Chosen, class T, class Residual>
__global__ void __launch_bounds__(mark_threads, mark_blocks)
    mark_bins(Chosen const chosen, incoming<T, Residual> const in, tables const t, bin_tables const b) {
  wait_for_previous();
  using strip_type = bin_strip<Chosen, T, Residual>;
  std::uint32_t const thread = blockIdx.x * mark_threads + threadIdx.x;
  for (std::uint32_t s = thread; s < t.segment_count; s += gridDim.x * mark_threads)
    t.candidate_thresholds[s] = t.segments[s].k > 0 ? 1 : 0;
  float const factor = in.factor == nullptr ? 1.0f : *in.factor;
  for (std::uint32_t at = thread / 32; at < b.bin_count; at += gridDim.x * (mark_threads / 32)) {
    device_bin const mine = b.bins[at];
    std::uint32_t const k = t.segments[mine.segment].k;
    if (k == 0) continue;
    strip_type strip{in, mine, t.n};
    warp_bin const bin{strip, mine, k, b.elements[mine.segment], *t.step};
    if constexpr (quantising_selector<Chosen>) {
      float const largest = magnitude_of(bin.max_key());
      if (threadIdx.x % 32 == 0) b.maxima[at] = largest;
    }
    threshold const kept = chosen.threshold_of(bin);
    std::uint32_t ties = kept.ties;
    for (std::uint32_t from = strip.first(); from < strip.end(); from += strip_type::size) {
      strip.load(from);
      mark_kept(strip, chosen, factor, kept.key, ties, b.marks);
    }
  }
}

/// The marks of a tile, by words.
struct tile_marks {
  std::uint32_t* marks;
  std::uint32_t begin;
  std::uint32_t end;

  [[nodiscard]] __device__ std::uint32_t first() const { return begin / 32; }
  [[nodiscard]] __device__ std::uint32_t last() const { return (end - 1) / 32 + 1; }
  [[nodiscard]] __device__ std::uint32_t inside(std::uint32_t w) const {  // bits of a word in the tile
    std::uint32_t bits = w < last() ? ~0u : 0;
    if (w == first()) bits &= ~0u << (begin % 32);
    if (w + 1 == last() && end % 32 != 0) bits &= (1u << (end % 32)) - 1;
    return bits;
  }
  /// Volatile, as another warp may clear its own bits of the same word.
  [[nodiscard]] __device__ std::uint32_t read(std::uint32_t w) const {
    return w < last() ? as_it_is_now(marks[w]) & inside(w) : 0;
  }
  __device__ void clear(std::uint32_t w, std::uint32_t bits) const {
    if (bits == 0) return;
    if (inside(w) == ~0u)
      marks[w] = 0;
    else
      atomicAnd(&marks[w], ~bits);
  }
};

/// By a warp of a block with consecutive tiles: makes a tile's marked elements candidates, in index order; clears the
/// marks.
template <class Stored>
__device__ void list_tile(Stored const* accumulator, tables const& t, std::uint32_t at, std::uint32_t* all_marks) {
  unsigned const lane = threadIdx.x % 32;
  tile const mine = at < t.tile_count ? t.tiles[at] : tile{0, 1, no_segment, 0};
  bool const lists = mine.segment != no_segment && t.segments[mine.segment].k > 0;
  tile_marks const marks{all_marks, mine.begin, mine.begin + mine.size};  // none if it is excluded
  std::uint32_t own = 0;
#pragma unroll 4
  for (std::uint32_t w = marks.first() + lane; lists && w < marks.last(); w += 32) own += __popc(marks.read(w));
  std::uint32_t const count = warp_sum(own);
  std::uint32_t const offset = candidates_before<bin_threads / 32>(t, lists ? mine.segment : no_segment, at, count);
  if (count == 0) return;
  auto const& about = t.segments[mine.segment];
  bool const fits = std::uint64_t{offset} + count <= about.capacity;
  std::uint32_t to = about.base + offset;
  for (std::uint32_t w = marks.first(); w < marks.last(); w += 32) {  // one word per lane
    std::uint32_t bits = marks.read(w + lane);
    marks.clear(w + lane, bits);
    std::uint32_t const here = __popc(bits);
    std::uint32_t const up_to = warp_prefix_sum(here);
    std::uint32_t place_here = to + up_to - here;
    for (; fits && bits != 0; bits &= bits - 1, ++place_here) {
      std::uint32_t const i = (w + lane) * 32 + static_cast<std::uint32_t>(__ffs(bits) - 1);
      t.candidate_indices[place_here] = i;
      t.candidate_values[place_here] = to_float(accumulator[i]);
    }
    to += __shfl_sync(~0u, up_to, 31);
  }
}

/// By a warp: mean of the maxima of a segment's bins. Adds its groups' sums in order, 32 of them loaded at once.
[[nodiscard]] __device__ inline float mean_of_maxima(bin_tables const& b, std::uint32_t s) {
  unsigned const lane = threadIdx.x % 32;
  std::uint32_t const first = b.first_group[s];
  std::uint32_t const last = b.first_group[s + 1];
  if (first == last) return 0.0f;
  double sum = 0;
  for (std::uint32_t g = first; g < last; g += 32) {
    double const own = g + lane < last ? b.sums[g + lane] : 0.0;
    for (unsigned from = 0; from < 32; ++from) sum += __shfl_sync(~0u, own, from);
  }
  return narrowed(sum / (b.groups[last - 1].last - b.groups[first].first));
}

/// One warp per tile: lists its marks. If values are quantised, also the means that replace them: one thread per group
/// of bins sums their maxima, and the last block each segment's groups.
template <bool Quantises, class Stored>
__global__ void __launch_bounds__(bin_threads)
    list_marks(Stored const* accumulator, tables const t, bin_tables const b) {
  wait_for_previous();
  std::uint32_t const thread = blockIdx.x * bin_threads + threadIdx.x;
  if constexpr (Quantises)
    for (std::uint32_t g = thread; g < b.group_count; g += gridDim.x * bin_threads) {
      double sum = 0;
#pragma unroll 4
      for (std::uint32_t at = b.groups[g].first; at < b.groups[g].last; ++at) sum += widened(b.maxima[at]);
      b.sums[g] = sum;
    }
  list_tile(accumulator, t, thread / 32, b.marks);
  if constexpr (Quantises) {
    if (!is_last_block(b.tickets)) return;
    for (std::uint32_t s = threadIdx.x / 32; s < t.segment_count; s += bin_threads / 32) {
      float const mean = t.segments[s].k == 0 ? 0.0f : mean_of_maxima(b, s);
      if (threadIdx.x % 32 == 0) t.means[s] = mean;
    }
  }
}

}  // namespace gradsieve::cuda_kernels
