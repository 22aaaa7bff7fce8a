// The choice among a segment's candidates: the threshold that keeps what its selector wants.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/kernel_workspace.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/passes/warp_tiles.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// All keys of [begin, end) of an array of values, in the registers of a block; 0 is none, as no candidate is zero.
/// @pre end - begin <= most_alone; the array is aligned to loads
struct block_keys {
  static constexpr unsigned width = load_bytes / sizeof(float);
  static constexpr unsigned loads = 8;
  static_assert(loads * group_threads * width >= most_alone + 2 * (width - 1));
  key_type values[loads * width];
  unsigned used;  // loads that have any

  __device__ __forceinline__ block_keys(float const* from, std::uint32_t begin, std::uint32_t end) {
    std::uint32_t const first = begin / width;
    std::uint32_t const last = (end + width - 1) / width;
    used = (last - first + group_threads - 1) / group_threads;
    pack<float, width> loaded[loads];
#pragma unroll
    for (unsigned v = 0; v < loads; ++v) {
      std::uint32_t const at = first + v * group_threads + threadIdx.x;
      if (at * width >= begin && (at + 1) * width <= end) {
        loaded[v] = reinterpret_cast<pack<float, width> const*>(from)[at];
      } else {  // what lies beside may be another segment's, which another block writes
#pragma unroll
        for (unsigned e = 0; e < width; ++e)
          if (at * width + e - begin < end - begin) loaded[v].values[e] = from[at * width + e];
      }
    }
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        std::uint32_t const i = width * (first + v * group_threads + threadIdx.x) + e;
        values[v * width + e] = i - begin < end - begin ? magnitude_key(loaded[v].values[e]) : 0;
      }
  }

  template <class Body>
  __device__ __forceinline__ void each_key(Body const& body) const {  // equally often in all threads
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
      if (v < used) {
#pragma unroll
        for (unsigned e = 0; e < width; ++e) body(values[v * width + e]);
      }
  }
};

/// By one block: the threshold of the k largest of a segment's candidates. @pre there are at most most_alone
[[nodiscard]] __device__ __forceinline__ threshold search_in_registers(block_group& group, tables const& t,
                                                                       std::uint64_t s, index_type k) {
  std::uint32_t const begin = t.segments[s].base;
  block_keys const keys{t.candidate_values, begin, begin + t.found[s]};
  auto search = detail::digit_search::near(t.candidate_thresholds[s], k);
  while (!search.done()) {
    group.clear_histogram();
    keys.each_key([&](key_type key) { group.count(search.bin(key)); });
    __syncthreads();
    group.find(search);
  }
  return search.result();
}

/// A segment's candidates, and what its selector wants of them.
struct segment_candidates {
  warm_threshold warm;
  accumulator_ref acc;  // with the warm threshold, without values
  candidates found;
  candidate_choice wanted;

  template <class Selector>
  __device__ __forceinline__ segment_candidates(Selector const& chosen, tables const& t, std::uint32_t s)
      : warm{t.warm_thresholds[s]},
        acc{{nullptr, t.segments[s].size}, t.segments[s].offset, s, *t.step, &warm},
        found{candidates_of(t, s)},
        wanted{detail::choose_among(chosen, acc, found, t.segments[s].k)} {}
  segment_candidates(segment_candidates const&) = delete;
};

inline constexpr std::uint32_t whole_grid = ~0u;  ///< stands for the number of all blocks

/// How many blocks are of use for a segment. More than one, if it has a share of all entries that a team is for.
template <class Selector>
[[nodiscard]] __device__ std::uint32_t blocks_for(Selector const& chosen, tables const& t, choice_tables const& c,
                                                  std::uint32_t s) {
  if constexpr (detail::uses_candidates<Selector>) {
    segment_candidates const mine{chosen, t, s};
    std::uint64_t const count = mine.found.count;
    bool const for_team = mine.wanted.rank > 0 && count > most_alone && count * most_teams > c.expected;
    if (mine.wanted.made) return for_team ? larger(2u, static_cast<std::uint32_t>(count / searched_by_block)) : 1;
  }
  return t.segment_count == 1 || t.segments[s].size > most_of_block ? whole_grid : 1;
}

/// Chooses what a segment's selector wants of its candidates; false if they do not suffice. By all threads of a group.
template <class Selector, bool FullGrid, class Read>
[[nodiscard]] __device__ __forceinline__ bool choose_entries(Selector const& chosen, thread_group<FullGrid>& group,
                                                             kernel_workspace<FullGrid, Read>& work, tables const& t,
                                                             choice_tables const& c, std::uint32_t s) {
  threshold at{};
  {
    segment_candidates const mine{chosen, t, s};
    if (!mine.wanted.made) return false;
    at = detail::every(mine.found);
    if constexpr (candidate_selector<Selector>)
      if (mine.wanted.rank > 0)
        at = !FullGrid && mine.found.count <= most_alone ? search_in_registers(group, t, s, mine.wanted.rank)
                                                         : work.kth_largest(mine.acc, mine.wanted.rank);
  }
  segment_candidates const mine{chosen, t, s};  // again, so that the search has the registers
  threshold const all = detail::every(mine.found);
  threshold kept = detail::settle_choice(chosen, mine.acc, mine.found, t.segments[s].k, at);
  if (kept.key < all.key) kept = all;
  std::uint64_t const count = kept == all  ? mine.found.count
                              : kept == at ? mine.wanted.rank
                                           : work.count_candidates(mine.acc, kept);
  if (!group.is_first()) return true;
  t.written[s] = static_cast<std::uint32_t>(smaller<std::uint64_t>(count, t.segments[s].out_capacity));
  c.choices[s] = {entry_source::candidates, static_cast<std::uint32_t>(mine.found.count),
                  kept == all ? threshold{} : kept, mine.warm};
  return true;
}

}  // namespace gradsieve::cuda_kernels
