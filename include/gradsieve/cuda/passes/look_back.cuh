// Index order of candidates: where those of a tile begin, found while the tiles are read.
#pragma once

#include <cstdint>

#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// The tiles of a block, `Tiles` from `first` on, among all of a segment that begins in them or before. Blocks tell
/// each other how many candidates they have of the last segment (decoupled look-back). A block's word has its own count
/// or, with `is_sum`, that of all blocks up to it; and the number of the collection, so that words of an earlier one
/// need no clearing. A block waits for blocks of earlier tiles, which have lower numbers and so, as CUB's scans
/// presume, have started, or run at the same time.
template <unsigned Tiles = 1>
class tile_order {
 public:
  __device__ __forceinline__ tile_order(tables const& t, std::uint32_t segment, std::uint32_t first)
      : words_{t.tile_counts + first}, number_{(t.collections[segment] + 1) & (~0u >> 1)} {
    std::uint32_t const begin = t.segments[segment].first;
    earlier_ = first <= begin ? 0 : (first - begin + Tiles - 1) / Tiles;
  }

  [[nodiscard]] __device__ bool begins_here() const { return earlier_ == 0; }

  /// By one thread: tells later blocks what this one has, the sooner the better, or all up to it.
  __device__ __forceinline__ void tell(std::uint32_t count, bool sum = false) const {
    *const_cast<std::uint64_t volatile*>(words_) =
        count | (sum || begins_here() ? is_sum : 0) | std::uint64_t{number_} << 33;
  }

  /// By a warp, after tell(): what earlier blocks have, which all lanes get. Reads `Loads` words a lane at once.
  template <unsigned Loads>
  [[nodiscard]] __device__ __forceinline__ std::uint32_t before() const {
    std::uint32_t const lane = threadIdx.x % 32;
    std::uint32_t total = 0;
    bool found = begins_here();
    for (std::uint32_t back = 1 + lane; !found; back += 32 * Loads) {
      std::uint64_t words[Loads];
#pragma unroll
      for (unsigned v = 0; v < Loads; ++v) words[v] = read(back + 32 * v);
#pragma unroll
      for (unsigned v = 0; v < Loads; ++v) {
        if (found) break;
        while (words[v] >> 33 != number_) words[v] = read(back + 32 * v);
        std::uint32_t const sums = __ballot_sync(~0u, (words[v] & is_sum) != 0);
        std::uint32_t const needed = sums ^ (sums - 1);  // lanes up to the first sum, or all
        total += warp_sum((needed >> lane & 1) != 0 ? static_cast<std::uint32_t>(words[v]) : 0u);
        found = sums != 0;
      }
    }
    return total;
  }

 private:
  static constexpr std::uint64_t is_sum = std::uint64_t{1} << 32;

  [[nodiscard]] __device__ __forceinline__ std::uint64_t read(std::uint32_t back) const {  // the first word is a sum
    return as_it_is_now(*(words_ - std::uint64_t{smaller(back, earlier_)} * Tiles));
  }

  std::uint64_t* words_;   // this block's is the first
  std::uint32_t earlier_;  // blocks with tiles of the segment
  std::uint32_t number_;
};

/// By a block whose warps have consecutive tiles, this one's `at`, of a segment or no_segment: the number of candidates
/// before the tile in its segment, where it has `count`. The last tile sets t.found.
template <unsigned Warps>
[[nodiscard]] __device__ std::uint32_t candidates_before(tables const& t, std::uint32_t segment, std::uint32_t at,
                                                         std::uint32_t count) {
  __shared__ std::uint32_t counts[Warps];
  __shared__ std::uint32_t earlier;
  std::uint32_t const warp = threadIdx.x / 32;
  bool const is_first_lane = threadIdx.x % 32 == 0;
  __syncthreads();
  if (is_first_lane) counts[warp] = count;
  __syncthreads();
  std::uint32_t before = 0;
  if (segment != no_segment) {
    tile_order<Warps> const order{t, segment, at - warp};
    std::uint32_t const begin = order.begins_here() ? t.segments[segment].first - (at - warp) : 0;
    for (std::uint32_t w = begin; w < warp; ++w) before += counts[w];
    if (warp + 1 == Warps && is_first_lane) order.tell(before + count);
    std::uint32_t const sum = warp == 0 ? order.template before<few_tile_loads>() : 0;
    if (warp == 0 && is_first_lane) earlier = sum;
  }
  __syncthreads();
  if (segment == no_segment) return 0;
  tile_order<Warps> const order{t, segment, at - warp};
  if (!order.begins_here()) before += earlier;
  if (!is_first_lane) return before;
  if (warp + 1 == Warps) order.tell(before + count, true);
  if (at + 1 == t.segments[segment].last) t.found[segment] = before + count;
  return before;
}

}  // namespace gradsieve::cuda_kernels
