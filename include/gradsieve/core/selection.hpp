// Selections, accumulators, segments and thresholds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/types.hpp>
#include <gradsieve/core/view.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One rank's part of a step to send: entries, and the elements of passthrough layers, contiguous in layout order.
struct selection_view {
  std::span<index_type const> indices;  ///< strictly increasing
  std::span<float const> values;        ///< as many as indices
  std::span<float const> passthrough;   ///< elements that pass through
};

/// The result of compress() on the host, in the compressor's memory.
struct host_selection : selection_view {
  std::uint64_t number = 0;  ///< which compress() of this compressor returned it; the first is 1

  /// Empty; not returned by a compress().
  host_selection() = default;
  /// The selection that compress() number `which` returned.
  host_selection(selection_view const& from, std::uint64_t which) : selection_view{from}, number{which} {}
};

/// Result of apply().
struct applied_update {
  std::uint64_t entries = 0;    ///< elements that any update has
  std::uint64_t saturated = 0;  ///< elements clamped to the largest value of the output's format
};

/// Memory for a selection. `indices` and `values` are equally long.
struct selection_span {
  view<index_type> indices;  ///< of the entries
  view<float> values;        ///< of the entries
  view<float> passthrough;   ///< elements that pass through
};

/// Consecutive elements from which the rank `owner` selects at most k entries.
struct segment {
  static constexpr int every_rank = -1;  ///< owner of a segment from which each rank selects

  std::uint64_t offset = 0;  ///< of its first element in the gradient
  std::uint64_t size = 0;    ///< elements
  index_type k = 0;          ///< the most entries to send from it
  int owner = every_rank;    ///< the rank that selects from it
  std::uint32_t layer = 0;   ///< number of its range in split()'s argument; for partitioners that treat whole layers

  friend bool operator==(segment const&, segment const&) = default;
};
/// Segments in the order of their offsets.
using segment_list = std::vector<segment>;

/// Consecutive elements.
struct range {
  std::uint64_t offset = 0;  ///< of the first element
  std::uint64_t size = 0;    ///< elements
  friend bool operator==(range const&, range const&) = default;
};

/// The share of k entries for the first `elements` of `size` elements, rounded; k for all of them. Shares' differences
/// add up to k. `phase`, any number below `size`, shifts the rounding, so that it favours other parts in each step.
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t share_of(std::uint64_t k, std::uint64_t elements, std::uint64_t size,
                                                            std::uint64_t phase) noexcept {
  return (elements * k + phase) / size;
}

/// The amount that a partitioner divides among the segments in one step.
struct step_budget {
  double density = 0;          ///< fraction of the elements to send
  std::uint64_t elements = 0;  ///< of the layers that are selected from
  std::uint64_t step = 0;      ///< the same on every rank
  int world = 1;               ///< number of ranks
};

/// ceil(density * elements), the entries to send, in double precision.
[[nodiscard]] GRADSIEVE_HD inline index_type budget_of(double density, std::uint64_t elements) noexcept {
  double const k = std::ceil(exact::multiply(density, static_cast<double>(elements)));
  return static_cast<index_type>(smaller(k, static_cast<double>(elements)));
}

/// Memory that a partitioner may use in a step, allocated once for the number of segments and ranks.
struct partition_scratch {
  std::vector<index_type> order;              ///< one per segment
  std::vector<double> weight;                 ///< one per segment
  std::vector<std::pair<double, int>> loads;  ///< one per rank
};

/// The elements of an accumulator to keep: every element whose key exceeds `key`, and the first `ties` of those whose
/// key equals it, so that ties go to the smaller index.
struct threshold {
  key_type key = 0;     ///< larger keys are kept
  index_type ties = 0;  ///< how many of the elements with this key are kept
  friend bool operator==(threshold const&, threshold const&) = default;
};

/// The origin of a threshold.
enum class threshold_origin : std::uint32_t {
  estimated,   ///< the selector's estimate
  remembered,  ///< the threshold of the previous step
  corrected    ///< a search: by counting passes, or, without one, for the k-th largest of the candidates
};

/// Number of a step's segments by the origin of their thresholds, for selectors that report it (`ldte`, `laplacian`,
/// `sidco`). A segment that sends all its nonzero elements has no threshold.
struct threshold_counts {
  std::uint64_t by[3] = {};  ///< in the order of threshold_origin
  std::uint64_t probes = 0;  ///< number of counting passes

  /// Segments of this origin.
  [[nodiscard]] constexpr std::uint64_t of(threshold_origin origin) const noexcept {
    return by[static_cast<std::size_t>(origin)];
  }
  /// Segments of any origin.
  [[nodiscard]] constexpr std::uint64_t all() const noexcept { return by[0] + by[1] + by[2]; }
  /// Adds the counts of another part.
  constexpr void add(threshold_counts const& other) noexcept {
    for (std::size_t i = 0; i < 3; ++i) by[i] += other.by[i];
    probes += other.probes;
  }
  friend bool operator==(threshold_counts const&, threshold_counts const&) = default;
};

/// The threshold that a selector keeps for a segment from one step to the next: a key that somewhat more than k
/// elements will probably reach, and the k it was made for. It makes a step faster, and may move the threshold of a
/// selector that estimates; it never makes an exact result wrong.
struct warm_threshold {
  key_type key = 0;  ///< 0: no threshold is stored
  index_type k = 0;  ///< the budget that the key was made for
  friend bool operator==(warm_threshold const&, warm_threshold const&) = default;
};

/// The candidates that a pass has stored for one segment.
struct candidates {
  std::uint64_t count = 0;  ///< elements whose key reaches the threshold; if not complete, at least this many
  key_type threshold = 0;   ///< the key that all candidates reach; 0: none were requested
  bool complete = false;    ///< whether every element that reaches the threshold was stored
};

/// A selector's choice among complete candidates: all of them, the `rank` largest, or none if there are too few.
struct candidate_choice {
  index_type rank = 0;  ///< 0: all
  bool made = false;    ///< false: there are too few candidates

  /// There are too few candidates.
  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice none() noexcept { return {}; }
  /// All candidates.
  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice all() noexcept { return {0, true}; }
  /// The k largest candidates.
  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice largest(index_type k) noexcept { return {k, true}; }
};

/// Keeps every element: the default of passes that can be restricted.
struct keep_all {
  /// Always true.
  GRADSIEVE_HD constexpr bool operator()(float) const noexcept { return true; }
};

/// One segment's accumulator, for a selector.
struct accumulator_ref {
  view<float const> values;        ///< its elements; no data if the residual is not kept as float: use the workspace
  std::uint64_t first = 0;         ///< its offset in the gradient: an entry's index is `first` + position
  std::uint64_t id = 0;            ///< the workspace's id of the segment
  std::uint64_t step = 0;          ///< the same on every rank
  warm_threshold* warm = nullptr;  ///< of the previous step; may be written; null: no threshold is stored
};

class layout;

/// Data that sender and receiver of a message know in advance; and the sender's step and rank, for encoding only.
struct message_info {
  std::uint64_t n = 0;                    ///< elements of the gradient
  std::uint64_t layout_hash = 0;          ///< layout::hash(), equal on both sides
  std::uint64_t passthrough = 0;          ///< elements that pass through uncompressed
  layout const* layers = nullptr;         ///< the layout itself, host memory; null if the codec needs none
  std::span<std::uint32_t const> bins{};  ///< length of the bins in each layer, host memory; empty: no bins
  std::span<range const> skipped{};       ///< layers that the step skips, host memory
  std::uint64_t step = 0;                 ///< of the sender, for codecs that round at random; a device counts itself
  std::uint32_t rank = 0;                 ///< of the sender, for codecs that round at random
};

}  // namespace gradsieve
