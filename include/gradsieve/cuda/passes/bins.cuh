// Selectors that choose in bins, on a device: a warp a bin marks what is kept, then tiles list what is marked.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::cuda_kernels {

/// Consecutive elements of one segment.
struct device_bin {
  std::uint32_t begin;
  std::uint32_t size;
  std::uint32_t segment;
  std::uint32_t position;  // elements of the segment before it, those in passthrough ranges not counted
};

/// Bins whose maxima are summed up one after the other: the host's tiles, so that both spaces have the same mean.
struct bin_group {
  std::uint32_t first;
  std::uint32_t last;
};

/// What kernels know of a gradient's bins.
struct bin_tables {
  std::uint32_t bin_count = 0;
  std::uint32_t group_count = 0;
  device_bin const* bins = nullptr;
  bin_group const* groups = nullptr;
  std::uint32_t const* first_group = nullptr;  // of each segment, and of none behind the last
  std::uint32_t const* elements = nullptr;     // of each segment, those in passthrough ranges not counted
  float* maxima = nullptr;                     // of each bin: its largest magnitude
  double* sums = nullptr;                      // of each group
  std::uint32_t* marks = nullptr;              // a bit for each element
};

/// One bin as a selector sees it, by all threads of a warp together.
template <class Stored>
class warp_bin {
 public:
  /// `k` of `elements` are given by all bins of the segment.
  __device__ warp_bin(Stored const* accumulator, device_bin const& bin, std::uint32_t k, std::uint32_t elements,
                      std::uint64_t step)
      : accumulator_{accumulator}, bin_{bin}, k_{k}, elements_{elements}, step_{step} {}

  [[nodiscard]] __device__ std::size_t size() const noexcept { return bin_.size; }
  [[nodiscard]] __device__ index_type budget() const noexcept {
    std::uint64_t const first = bin_.position;
    std::uint64_t const phase = mix(step_) % elements_;
    return static_cast<index_type>(share_of(k_, first + bin_.size, elements_, phase) -
                                   share_of(k_, first, elements_, phase));
  }

  [[nodiscard]] __device__ key_type max_key() const noexcept {
    if (largest_ != unknown) return largest_;
    key_type largest = 0;
    for (std::uint32_t i = threadIdx.x % 32; i < bin_.size; i += 32) largest = larger(largest, key(i));
    return largest_ = warp_max(largest);
  }

  /// Cost: 31 reads of the bin, from the nearest cache.
  [[nodiscard]] __device__ threshold kth_largest(index_type k) const noexcept {
    if (k == 0) return {infinite_key, 0};
    if (k >= bin_.size) return {};
    key_type at = 0;  // the largest key that k elements reach, from its highest bit on
    for (key_type bit = key_type{1} << 30; bit != 0; bit >>= 1)
      if (count_at_least(at | bit) >= k) at |= bit;
    return {at, k - count_at_least(at + 1)};
  }

 private:
  static constexpr key_type unknown = ~key_type{0};

  [[nodiscard]] __device__ key_type key(std::uint32_t i) const noexcept {
    return magnitude_key(to_float(accumulator_[bin_.begin + i]));
  }
  [[nodiscard]] __device__ std::uint32_t count_at_least(key_type least) const noexcept {
    std::uint32_t own = 0;
    for (std::uint32_t i = threadIdx.x % 32; i < bin_.size; i += 32) own += key(i) >= least ? 1 : 0;
    return warp_sum(own);
  }

  Stored const* accumulator_;
  device_bin const& bin_;
  std::uint32_t k_;
  std::uint32_t elements_;
  std::uint64_t step_;
  mutable key_type largest_ = unknown;
};

/// A warp a bin: marks the elements that its threshold keeps. Their old marks are zero.
template <class Chosen, class T, class Residual>
__global__ void __launch_bounds__(bin_threads)
    mark_bins(Chosen const chosen, incoming<T, Residual> const in, tables const t, bin_tables const b) {
  auto const* const accumulator = in.states[0];
  unsigned const lane = threadIdx.x % 32;
  std::uint32_t const warps = gridDim.x * (bin_threads / 32);
  float const factor = in.factor == nullptr ? 1.0f : *in.factor;
  for (std::uint32_t at = (blockIdx.x * bin_threads + threadIdx.x) / 32; at < b.bin_count; at += warps) {
    device_bin const mine = b.bins[at];
    std::uint32_t const k = t.segments[mine.segment].k;
    if (k == 0) continue;
    warp_bin const bin{accumulator, mine, k, b.elements[mine.segment], *t.step};
    if constexpr (quantising_selector<Chosen>) {
      float const largest = magnitude_of(bin.max_key());
      if (lane == 0) b.maxima[at] = largest;
    }
    threshold const kept = chosen.threshold_of(bin);
    std::uint32_t ties = kept.ties;  // that are left for the elements to come
    for (std::uint32_t from = 0; from < mine.size; from += 32) {
      std::uint32_t const i = mine.begin + from + lane;
      bool const valid = from + lane < mine.size;
      float const value = valid ? to_float(accumulator[i]) : 0.0f;
      key_type const own = magnitude_key(value);
      key_type key = own;
      if constexpr (scoring_selector<Chosen>) {
        float const entered = valid ? multiply(to_float(in.gradient[i]), factor) : 0.0f;
        key = magnitude_key(chosen.score(value, is_finite(entered) ? entered : 0.0f));
      }
      std::uint32_t const equal = __ballot_sync(~0u, valid && key == kept.key);
      bool const tie = key == kept.key && __popc(equal & ((1u << lane) - 1)) < ties;
      std::uint32_t const all = __ballot_sync(~0u, valid && own != 0 && (key > kept.key || tie));
      ties -= smaller(ties, static_cast<std::uint32_t>(__popc(equal)));
      if (lane != 0 || all == 0) continue;
      atomicOr(&b.marks[i / 32], all << (i % 32));
      if (i % 32 != 0 && (all >> (32 - i % 32)) != 0) atomicOr(&b.marks[i / 32 + 1], all >> (32 - i % 32));
    }
  }
}

/// A warp a tile: its marked elements become its segment's candidates, in index order. Where a tile's begin is written
/// down, as accumulate() does.
template <class Stored>
__global__ void __launch_bounds__(bin_threads)
    list_marks(Stored const* accumulator, tables const t, bin_tables const b) {
  unsigned const lane = threadIdx.x % 32;
  std::uint32_t const warps = gridDim.x * (bin_threads / 32);
  for (std::uint32_t at = (blockIdx.x * bin_threads + threadIdx.x) / 32; at < t.tile_count; at += warps) {
    tile const mine = t.tiles[at];
    if (mine.excluded != 0 || mine.segment == no_segment || t.segments[mine.segment].k == 0) continue;
    std::uint32_t const end = mine.begin + mine.size;
    // The marks of elements [32 w, 32 w + 32) that lie in the tile.
    auto const word = [&](std::uint32_t w) {
      if (w > (end - 1) / 32) return 0u;
      std::uint32_t bits = b.marks[w];
      if (w == mine.begin / 32) bits &= ~0u << (mine.begin % 32);
      if (w == (end - 1) / 32 && end % 32 != 0) bits &= (1u << (end % 32)) - 1;
      return bits;
    };
    std::uint32_t const first = mine.begin / 32;
    std::uint32_t const last = (end - 1) / 32 + 1;
    std::uint32_t own = 0;
    for (std::uint32_t w = first + lane; w < last; w += 32) own += __popc(word(w));
    std::uint32_t const count = warp_sum(own);
    std::uint32_t offset = 0;
    if (lane == 0) {
      offset = count == 0 ? 0 : atomicAdd(&t.found[mine.segment], count);
      t.places[at] = {offset, count};
    }
    offset = __shfl_sync(~0u, offset, 0);
    auto const& segment_here = t.segments[mine.segment];
    if (count == 0 || std::uint64_t{offset} + count > segment_here.room) continue;
    std::uint32_t to = segment_here.base + offset;
    for (std::uint32_t w = first; w < last; w += 32) {  // a word a lane
      std::uint32_t bits = word(w + lane);
      std::uint32_t const here = __popc(bits);
      std::uint32_t const up_to = warp_prefix_sum(here);
      std::uint32_t place_here = to + up_to - here;
      for (; bits != 0; bits &= bits - 1, ++place_here) {
        std::uint32_t const i = (w + lane) * 32 + static_cast<std::uint32_t>(__ffs(bits) - 1);
        t.candidate_indices[place_here] = i;
        t.candidate_values[place_here] = to_float(accumulator[i]);
      }
      to += __shfl_sync(~0u, up_to, 31);
    }
  }
}

/// A thread a segment: candidates are wanted, of whatever magnitude, where any are to be given.
template <int = 0>
__global__ void want_marks(tables const t) {
  for (std::uint32_t s = blockIdx.x * blockDim.x + threadIdx.x; s < t.segment_count; s += gridDim.x * blockDim.x)
    t.candidate_thresholds[s] = t.segments[s].k > 0 ? 1 : 0;
}

/// A thread a group: the sum of its bins' maxima, in order.
template <int = 0>
__global__ void sum_groups(bin_tables const b) {
  for (std::uint32_t g = blockIdx.x * blockDim.x + threadIdx.x; g < b.group_count; g += gridDim.x * blockDim.x) {
    double sum = 0;
    for (std::uint32_t at = b.groups[g].first; at < b.groups[g].last; ++at) sum += static_cast<double>(b.maxima[at]);
    b.sums[g] = sum;
  }
}

/// A thread a segment: the mean of its bins' maxima, the groups in order.
template <int = 0>
__global__ void mean_maxima(tables const t, bin_tables const b) {
  for (std::uint32_t s = blockIdx.x * blockDim.x + threadIdx.x; s < t.segment_count; s += gridDim.x * blockDim.x) {
    double sum = 0;
    std::uint32_t bins = 0;
    for (std::uint32_t g = b.first_group[s]; g < b.first_group[s + 1]; ++g) {
      sum += b.sums[g];
      bins += b.groups[g].last - b.groups[g].first;
    }
    t.means[s] = bins == 0 || t.segments[s].k == 0 ? 0.0f : static_cast<float>(sum / bins);
  }
}

}  // namespace gradsieve::cuda_kernels
