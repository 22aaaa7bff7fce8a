// A gradient's tables in kernels: tiles, segments, and the lists that a step keeps of them.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

inline constexpr std::uint32_t no_segment = ~std::uint32_t{0};
inline constexpr std::uint32_t every_turn = ~std::uint32_t{0};

/// Part of a cell in one segment, or in none. Excluded: in a passthrough or skipped layer, never selected from.
struct tile {
  std::uint32_t begin;
  std::uint32_t size;
  std::uint32_t segment;  // or no_segment
  std::uint32_t excluded;
};

/// A segment in one step.
struct device_segment {
  std::uint32_t offset;  // of its elements
  std::uint32_t size;
  std::uint32_t first;  // of its tiles
  std::uint32_t last;
  std::uint32_t k;             // 0: this rank selects nothing there
  std::uint32_t base;          // of its candidates
  std::uint32_t capacity;      // for candidates
  std::uint32_t out;           // begin of its entries
  std::uint32_t out_capacity;  // for entries
  std::uint32_t full;          // not 0: all elements are listed, and removed as those of a passthrough layer
  std::uint32_t slot;          // first of its places in every rank's list, for an exchange that has places
  std::uint32_t due;           // for take_turns(): k in this rank's turn
  std::uint32_t turn;          // step % world in that turn, or every_turn

  friend bool operator==(device_segment const&, device_segment const&) = default;
};

struct tile_sums {
  double sum_abs;
  double sum_squares;
  key_type max_key;
  std::uint64_t nonzero;

  __device__ void add(float value) {
    double const x = widened(abs(value));
    key_type const key = magnitude_key(value);
    sum_abs += x;
    sum_squares += x * x;
    max_key = larger(max_key, key);
    nonzero += key != 0 ? 1 : 0;
  }

  [[nodiscard]] __device__ static tile_sums both(tile_sums const& a, tile_sums const& b) {
    return {a.sum_abs + b.sum_abs, a.sum_squares + b.sum_squares, larger(a.max_key, b.max_key), a.nonzero + b.nonzero};
  }
};

/// Numbers of elements above a threshold and equal to it.
struct kept_count {
  std::uint32_t above;
  std::uint32_t equal;

  [[nodiscard]] __device__ std::uint64_t packed() const { return above | std::uint64_t{equal} << 32; }
  [[nodiscard]] static __device__ kept_count unpacked(std::uint64_t both) {
    return {static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
  }
  [[nodiscard]] static __device__ kept_count of(std::uint32_t lanes_above, std::uint32_t lanes_equal) {
    return {static_cast<std::uint32_t>(__popc(lanes_above)), static_cast<std::uint32_t>(__popc(lanes_equal))};
  }
  friend __device__ kept_count operator+(kept_count a, kept_count b) { return {a.above + b.above, a.equal + b.equal}; }
};

/// Entries in index order, and their directory: those of cell c are `cells[c]` to `cells[c + 1]`.
struct entry_list {
  index_type* indices = nullptr;
  float* values = nullptr;
  std::uint32_t* count = nullptr;
  std::uint32_t* cells = nullptr;
};

/// State of what the last step took out.
struct taken_state {
  std::uint32_t open;   // not 0: it can be rolled back
  std::uint32_t saved;  // entries that have left the states, whose earlier states are saved
};

/// Pointers to what a workspace owns; kernels take it by value.
struct tables {
  std::uint64_t n = 0;
  std::uint32_t tile_count = 0;
  std::uint32_t cell_count = 0;
  std::uint32_t segment_count = 0;
  bool has_excluded = false;
  tile const* tiles = nullptr;
  std::uint32_t const* positions = nullptr;   // of each tile: elements of its segment before it that can be selected
  std::uint32_t const* cell_tiles = nullptr;  // first tile of each cell
  device_segment const* segments = nullptr;

  warm_threshold* warm_thresholds = nullptr;  // of each segment, kept between steps
  key_type* candidate_thresholds = nullptr;   // of each segment: the key that candidates reach; 0: there are none
  std::uint32_t* written = nullptr;           // of each segment: entries
  std::uint32_t* starts = nullptr;            // of each segment: where they begin in the list; then the list's end
  std::uint64_t* step = nullptr;              // steps so far
  taken_state* taken = nullptr;               // what the last step took out

  std::uint64_t* tile_counts = nullptr;  // of each tile: see tile_order
  index_type* candidate_indices = nullptr;  // of each segment, from its base on, in index order
  float* candidate_values = nullptr;

  tile_sums* sums = nullptr;      // of each tile
  std::uint64_t* kept = nullptr;  // of each tile: counts of a pass
  float* means = nullptr;         // of each segment: of its bins' largest magnitudes

  std::uint32_t* found = nullptr;          // of each segment: elements that reach it; zero between steps
  std::uint32_t* collections = nullptr;    // of each segment: number of the collection of its candidates
  std::uint64_t* bad = nullptr;            // elements that were not finite, after the selection
  std::uint64_t* bad_now = nullptr;        // the same during a step; zero between steps
  threshold_counts* thresholds = nullptr;  // of this step
  std::uint32_t* counts = nullptr;         // bad, thresholds and others: words that accumulate() clears
  std::uint32_t count_words = 0;
};

/// After the selection, by one block: adds the accumulate pass's count to t.bad, and clears its counts.
__device__ inline void end_counts(tables const& t) {
  for (std::uint32_t s = threadIdx.x; s < t.segment_count; s += blockDim.x) {
    t.found[s] = 0;
    ++t.collections[s];
  }
  if (threadIdx.x != 0) return;
  *t.bad += *t.bad_now;
  *t.bad_now = 0;
}

[[nodiscard]] __device__ inline candidates candidates_of(tables const& t, std::uint64_t s) {
  key_type const reached = t.candidate_thresholds[s];
  std::uint32_t const count = t.found[s];
  return {count, reached, reached != 0 && count <= t.segments[s].capacity};
}

/// Number of elements of a segment that can be selected.
[[nodiscard]] __device__ inline std::uint32_t selectable(tables const& t, std::uint64_t s) {
  auto const& here = t.segments[s];
  if (here.first == here.last) return 0;
  auto const& end = t.tiles[here.last - 1];
  return t.positions[here.last - 1] + (end.excluded != 0 ? 0 : end.size);
}

/// Element of a segment at this position among those that can be selected.
[[nodiscard]] __device__ inline std::uint32_t selectable_element(tables const& t, std::uint64_t s,
                                                                 std::uint32_t position) {
  std::uint32_t low = t.segments[s].first;
  std::uint32_t high = t.segments[s].last;
  while (high - low > 1) {
    std::uint32_t const middle = low + (high - low) / 2;
    (t.positions[middle] <= position ? low : high) = middle;  // excluded tiles come before the next one's position
  }
  return t.tiles[low].begin + (position - t.positions[low]);
}

[[nodiscard]] __device__ inline std::uint32_t tile_of(tables const& t, std::uint32_t i) {
  auto at = t.cell_tiles[i / cell_size];
  while (t.tiles[at].begin + t.tiles[at].size <= i) ++at;
  return at;
}

}  // namespace gradsieve::cuda_kernels
