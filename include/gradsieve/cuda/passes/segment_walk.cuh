// Walks over a block's share of a segment: its tiles' elements, or their candidates.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp_tiles.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// `Read` gives the accumulator of an element.
template <bool FullGrid, class Read>
class segment_walk {
 public:
  __device__ segment_walk(thread_group<FullGrid>& group, tables const& t, Read const& read)
      : group_{group}, t_{t}, read_{read} {}

 protected:
  [[nodiscard]] __device__ device_segment of(accumulator_ref const acc) const { return t_.segments[acc.id]; }

  /// The tiles of a segment that belong to this block, one after the other.
  struct share {
    std::uint32_t first;
    std::uint32_t last;
  };
  [[nodiscard]] __device__ share share_of(accumulator_ref const acc) const {
    auto const mine = of(acc);
    std::uint64_t const tiles_here = mine.last - mine.first;
    return {static_cast<std::uint32_t>(mine.first + tiles_here * group_.block() / group_.blocks()),
            static_cast<std::uint32_t>(mine.first + tiles_here * (group_.block() + 1) / group_.blocks())};
  }

  /// Calls body(number, tile) by one warp for each tile of this block's share.
  template <class Body>
  __device__ void each_tile(accumulator_ref const acc, Body const& body) const {
    auto const mine = share_of(acc);
    for (std::uint32_t at = mine.first + threadIdx.x / 32; at < mine.last; at += group_warps) body(at, t_.tiles[at]);
  }

  /// Calls body(index, value, is_valid) by a warp for 32 candidates of a tile at a time, in index order.
  template <class Body>
  __device__ void over_candidates(std::uint32_t base, std::uint32_t at, Body const& body) const {
    place const here = t_.places[at];
    for (std::uint32_t i = 0; i < here.count; i += 32) {
      bool const valid = i + lane_of_warp() < here.count;
      std::uint64_t const from = std::uint64_t{base} + here.offset + i + lane_of_warp();
      body(valid ? t_.candidate_indices[from] : 0, valid ? t_.candidate_values[from] : 0.0f, valid);
    }
  }

  template <bool FromCandidates, unsigned Loads = 1, class Body>
  __device__ void over_either(std::uint32_t base, std::uint32_t at, Body const& body) const {
    if constexpr (FromCandidates)
      over_candidates(base, at, body);
    else
      over_tile<Loads>(t_.tiles[at], read_, body);
  }

  /// Elements above a key, and equal to it.
  struct kept {
    std::uint32_t above;
    std::uint32_t equal;
  };
  [[nodiscard]] static __device__ std::uint64_t packed(std::uint64_t above, std::uint64_t equal) {
    return above | equal << 32;
  }
  [[nodiscard]] static __device__ kept unpacked(std::uint64_t both) {
    return {static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
  }

  /// Elements above a key and equal to it, by tile, which this block remembers; returns those of its share.
  template <bool FromCandidates, class Keep>
  __device__ std::uint64_t count_share(accumulator_ref const acc, key_type key, Keep const& keep) {
    auto const base = of(acc).base;
    std::uint64_t own = 0;
    each_tile(acc, [&](std::uint32_t at, tile const&) {
      std::uint32_t above = 0;
      std::uint32_t equal = 0;
      over_either<FromCandidates, loads_at_once<FullGrid>>(base, at, [&](std::uint32_t, float value, bool valid) {
        valid = valid && keep(value);
        above += __popc(__ballot_sync(~0u, valid && magnitude_key(value) > key));
        equal += __popc(__ballot_sync(~0u, valid && magnitude_key(value) == key));
      });
      if (lane_of_warp() == 0) {
        t_.kept[at] = packed(above, equal);
        own += packed(above, equal);
      }
    });
    return group_.block_sum(own);
  }

  thread_group<FullGrid>& group_;
  tables const& t_;
  Read const& read_;
};

}  // namespace gradsieve::cuda_kernels
