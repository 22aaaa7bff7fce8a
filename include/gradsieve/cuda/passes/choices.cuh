// Results of the choice among candidates, and the device memory that its kernels share.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
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

/// Second round of a search that several blocks share.
struct open_search {
  std::uint32_t is_open;  // not 0: the first round has not ended the search
  std::uint32_t id;       // of the segment
  std::uint32_t begin;    // of its candidates
  std::uint32_t end;
  detail::digit_search search;
};

/// A segment's search that several blocks share. Zero between steps, except for a second round that is not open.
struct shared_search {
  alignas(16) std::uint32_t histogram[detail::digit_search::bins];
  std::uint32_t above;  // keys above the range of the histogram
  std::uint32_t tickets;
  std::uint32_t listed;  // keys of the range that the second round searches
  open_search second;
};

/// Segments searched by several blocks that have candidates in a chunk: two at most, as each has more than a chunk.
/// `first`: the chunks in which they begin.
struct chunk_searches {
  std::uint32_t count;
  std::uint32_t first[2];
};

/// Position of the keys that several blocks' search stores: a multiple of 4, one key per `candidates_a_key` candidates.
[[nodiscard]] __host__ __device__ constexpr std::uint32_t keys_begin(std::uint64_t base) {
  return static_cast<std::uint32_t>((base + 4 * candidates_a_key - 1) / (4 * candidates_a_key) * 4);
}
[[nodiscard]] __host__ __device__ constexpr std::uint32_t capacity_of_keys(std::uint32_t capacity) {
  return capacity / (4 * candidates_a_key) * 4;
}

/// Pointers to what a workspace owns; kernels take it by value.
struct choice_tables {
  segment_choice* choices = nullptr;     // of each segment
  std::uint32_t* undecided = nullptr;    // segments whose candidates do not suffice
  std::uint32_t chunk = least_chunk;     // candidates of a block in a search by several, a multiple of 4
  std::uint32_t shared_count = 0;        // chunks of the candidates; 0: one block searches a segment
  shared_search* shared = nullptr;       // of each chunk, for the segment that begins there
  chunk_searches* chunks = nullptr;      // of each chunk
  key_type* keys = nullptr;              // of candidates in second rounds
  std::uint32_t* tickets = nullptr;      // of the last kernel that searches
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
template <unsigned Threads>
__device__ void begin_list(block_group<Threads>& group, tables const& t, choice_tables const& c, list_end const& end) {
  std::uint64_t total = 0;  // entries; in the upper half parts
  for (std::uint32_t first = 0; first < t.segment_count; first += Threads) {
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
  for (std::uint32_t p = threadIdx.x; p < c.part_count; p += Threads) c.part_kept[p] = 0;
  if (threadIdx.x != 0) return;
  t.starts[t.segment_count] = *end.count = static_cast<std::uint32_t>(total);
  c.first_parts[t.segment_count] = static_cast<std::uint32_t>(total >> 32);
  *c.undecided = 0;
  *t.step += 1;
  *t.taken = {1, 0};
}

}  // namespace gradsieve::cuda_kernels
