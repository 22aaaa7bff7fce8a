// Results of the choice among candidates, and the device memory that kernels share.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

enum class entry_source : std::uint32_t {  ///< of a segment's entries
  none,
  candidates,  ///< those that the threshold keeps; all of them at {0, 0}
  list         ///< of the selector's own select()
};
struct segment_choice {
  entry_source source;
  std::uint32_t count;  // of candidates, or of the list
  threshold at;         // keeps all of a list
  warm_threshold warm;  // the new warm threshold, stored when no block reads the old one any more
};

/// Pointers to what a workspace owns; kernels take it by value.
struct choice_tables {
  segment_choice* choices = nullptr;     // of each segment
  std::uint64_t expected = 0;            // entries of a step, at most
  std::uint32_t* tickets = nullptr;      // of small_step()
  std::uint32_t part = 1;                // candidates of a block of write_entries()
  std::uint32_t part_count = 0;          // at most
  std::uint32_t* first_parts = nullptr;  // of each segment; then the number of parts
  std::uint64_t* part_kept = nullptr;    // of each part: what it keeps
  std::uint32_t* part_tickets = nullptr;
};

struct list_end {        // what begin_list() writes besides tables
  std::uint32_t* count;  // of all entries
  bool leaves;           // the warm thresholds are what the next accumulate pass collects from
};

/// Ends the selection: finds where each segment's entries begin in the list, divides what they are taken from into
/// parts, at least one a segment, and advances the step. A segment that leaves no warm threshold had fewer than k
/// nonzero elements. By all threads of a block.
__device__ inline void begin_list(block_group& group, tables const& t, choice_tables const& c, list_end const& end) {
  std::uint64_t total = 0;  // entries; in the upper half parts
  for (std::uint32_t first = 0; first < t.segment_count; first += group_threads) {
    std::uint32_t const s = first + threadIdx.x;
    bool const valid = s < t.segment_count;
    std::uint64_t before = 0;
    std::uint64_t const parts = valid ? larger((c.choices[s].count + c.part - 1) / c.part, 1u) : 0;
    auto const batch = group.block_sum(valid ? t.written[s] | parts << 32 : 0, before);
    if (valid) {
      t.starts[s] = static_cast<std::uint32_t>(total + before);
      c.first_parts[s] = static_cast<std::uint32_t>((total + before) >> 32);
      auto const& choice = c.choices[s];
      if (choice.source == entry_source::candidates) t.warm_thresholds[s] = choice.warm;
      if (end.leaves)
        t.candidate_thresholds[s] = t.segments[s].k > 0 ? larger<key_type>(t.warm_thresholds[s].key, 1) : 0;
    }
    total += batch;
  }
  for (std::uint32_t p = threadIdx.x; p < c.part_count; p += group_threads) c.part_kept[p] = 0;
  if (threadIdx.x != 0) return;
  t.starts[t.segment_count] = *end.count = static_cast<std::uint32_t>(total);
  c.first_parts[t.segment_count] = static_cast<std::uint32_t>(total >> 32);
  *t.step += 1;
  *t.taken = {1, 0};
}

}  // namespace gradsieve::cuda_kernels
