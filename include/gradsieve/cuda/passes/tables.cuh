// What kernels know of a gradient: its tiles, its segments, and the lists that a step keeps of them.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

inline constexpr std::uint32_t no_segment = ~std::uint32_t{0};
inline constexpr std::uint32_t every_turn = ~std::uint32_t{0};

/// A part of one cell that lies in one segment (or in none, or in an excluded layer, which passes through or is
/// skipped: nothing is selected from it).
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
  std::uint32_t k;         // 0: this rank selects nothing there
  std::uint32_t base;      // of its candidates
  std::uint32_t capacity;  // for candidates
  std::uint32_t out;       // where its entries go
  std::uint32_t out_capacity;  // for entries
  std::uint32_t full;      // all its elements are listed, and they leave as a layer that passes through does
  std::uint32_t due;       // k where it is this rank's turn, and the step % world in which it is: take_turns()
  std::uint32_t turn;

  friend bool operator==(device_segment const&, device_segment const&) = default;
};

/// Consecutive candidates of one tile, in index order, relative to its segment's base.
struct place {
  std::uint32_t offset;
  std::uint32_t count;
};

/// Sums over a tile.
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

/// Index-ordered entries, and for every cell of the gradient where its entries begin: `cells[c]` to `cells[c + 1]`.
struct entry_list {
  index_type* indices = nullptr;
  float* values = nullptr;
  std::uint32_t* count = nullptr;
  std::uint32_t* cells = nullptr;
};

/// What the last step took out: whether it can be rolled back, and how many of its entries have left the states since,
/// with what they were before put by.
struct taken_state {
  std::uint32_t open;
  std::uint32_t saved;
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
  key_type* candidate_thresholds = nullptr;   // of each segment: the key that candidates reach; 0: none wanted
  std::uint32_t* written = nullptr;           // of each segment: entries
  std::uint32_t* starts = nullptr;            // of each segment: where they begin in the list; behind the last: its end
  std::uint64_t* step = nullptr;              // steps so far
  taken_state* taken = nullptr;               // what the last step took out

  place* places = nullptr;  // of each tile
  index_type* candidate_indices = nullptr;
  float* candidate_values = nullptr;

  tile_sums* sums = nullptr;      // of each tile
  std::uint64_t* kept = nullptr;  // of each tile: what a pass has counted there
  float* means = nullptr;         // of each segment: of its bins' largest magnitudes

  std::uint32_t* found = nullptr;          // of each segment: elements that reach it; zero between steps
  std::uint64_t* bad = nullptr;            // elements of a step that were not finite, once its selection has ended
  std::uint64_t* bad_now = nullptr;        // the same until then; zero between steps
  threshold_counts* thresholds = nullptr;  // of this step
  std::uint32_t* counts = nullptr;         // bad, thresholds and others: words that accumulate() clears
  std::uint32_t count_words = 0;
};

/// After the selection: moves on what accumulate() has counted, and clears it for the next step. By a block.
__device__ inline void end_counts(tables const& t) {
  for (std::uint32_t s = threadIdx.x; s < t.segment_count; s += blockDim.x) t.found[s] = 0;
  if (threadIdx.x != 0) return;
  *t.bad += *t.bad_now;
  *t.bad_now = 0;
}

/// What a pass has kept of a segment.
[[nodiscard]] __device__ inline candidates candidates_of(tables const& t, std::uint64_t s) {
  key_type const reached = t.candidate_thresholds[s];
  std::uint32_t const count = t.found[s];
  return {count, reached, reached != 0 && count <= t.segments[s].capacity};
}

/// Elements of a segment that can be selected.
[[nodiscard]] __device__ inline std::uint32_t selectable(tables const& t, std::uint64_t s) {
  auto const& here = t.segments[s];
  if (here.first == here.last) return 0;
  auto const& end = t.tiles[here.last - 1];
  return t.positions[here.last - 1] + (end.excluded != 0 ? 0 : end.size);
}

/// The element of a segment that is the one of this position among those that can be selected.
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

/// The tile that an element lies in.
[[nodiscard]] __device__ inline std::uint32_t tile_of(tables const& t, std::uint32_t i) {
  auto at = t.cell_tiles[i / cell_size];
  while (t.tiles[at].begin + t.tiles[at].size <= i) ++at;
  return at;
}

}  // namespace gradsieve::cuda_kernels
