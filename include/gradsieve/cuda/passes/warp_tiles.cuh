// Walks over tiles of elements by the warps of a group.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/look_back.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Calls body(load(i), is_valid) for i < count, equally often in all threads of a warp.
template <bool FullGrid, class Load, class Body>
__device__ void each(thread_group<FullGrid> const& group, std::uint64_t count, Load const& load, Body const& body) {
  std::uint64_t const lane = threadIdx.x % 32;
  std::uint64_t const stride = group.threads();
  for (std::uint64_t first = group.thread(); first - lane < count; first += loads_at_once<FullGrid> * stride) {
    decltype(load(first)) values[loads_at_once<FullGrid>];
#pragma unroll
    for (unsigned v = 0; v < loads_at_once<FullGrid>; ++v)
      if (first + v * stride < count) values[v] = load(first + v * stride);
#pragma unroll
    for (unsigned v = 0; v < loads_at_once<FullGrid>; ++v) body(values[v], first + v * stride < count);
  }
}

[[nodiscard]] __device__ inline unsigned lane_of_warp() { return threadIdx.x % 32; }
[[nodiscard]] __device__ inline unsigned rank_in(std::uint32_t lanes) {
  return __popc(lanes & ((1u << lane_of_warp()) - 1));
}

/// Calls body(index, value, is_valid) by a warp for 32 elements of a tile at a time, in index order.
template <unsigned Loads = 1, class Read, class Body>
__device__ void over_tile(tile const& here, Read const& read, Body const& body) {
  for (std::uint32_t first = lane_of_warp(); first - lane_of_warp() < here.size; first += 32 * Loads) {
    float values[Loads];
#pragma unroll
    for (unsigned v = 0; v < Loads; ++v)
      values[v] = first + 32 * v < here.size ? read(here.begin + first + 32 * v) : 0.0f;
#pragma unroll
    for (unsigned v = 0; v < Loads; ++v) body(here.begin + first + 32 * v, values[v], first + 32 * v < here.size);
  }
}

/// By a warp of a block with consecutive tiles: makes the tile's elements that reach a key candidates of its segment,
/// in index order. With no_segment there is no such tile.
template <unsigned Loads, class Read>
__device__ void collect_tile(tables const& t, Read const& read, std::uint32_t segment, std::uint32_t at,
                             key_type reached) {
  tile here{};
  if (segment != no_segment && t.tiles[at].excluded == 0) here = t.tiles[at];
  std::uint32_t count = 0;
  over_tile<Loads>(here, read, [&](std::uint32_t, float value, bool valid) {
    count += __popc(__ballot_sync(~0u, valid && magnitude_key(value) >= reached));
  });
  std::uint32_t to = candidates_before<group_warps>(t, segment, at, count);
  if (count == 0) return;
  auto const& about = t.segments[segment];
  if (std::uint64_t{to} + count > about.capacity) return;
  to += about.base;
  over_tile<Loads>(here, read, [&](std::uint32_t i, float value, bool valid) {
    bool const take = valid && magnitude_key(value) >= reached;
    std::uint32_t const all = __ballot_sync(~0u, take);
    if (take) {
      t.candidate_indices[to + rank_in(all)] = i;
      t.candidate_values[to + rank_in(all)] = value;
    }
    to += __popc(all);
  });
}

}  // namespace gradsieve::cuda_kernels
