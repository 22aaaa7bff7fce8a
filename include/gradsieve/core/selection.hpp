// What is chosen and from what: selections, accumulators, segments.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/types.hpp>
#include <gradsieve/core/view.hpp>

namespace gradsieve {

/// What one rank sends of one gradient: `indices[i]` strictly increasing, `values[i]` beside them, and the
/// elements of the layers that pass through uncompressed, back to back, in layout order.
struct selection_view {
  std::span<index_type const> indices;
  std::span<float const> values;
  std::span<float const> passthrough;
};

/// What compress() returns on the host, in the compressor's memory.
struct host_selection : selection_view {
  std::uint64_t number = 0;  ///< which compress() of this compressor returned it; the first is 1

  host_selection() = default;
  host_selection(selection_view const& from, std::uint64_t which) : selection_view{from}, number{which} {}
};

/// Room for a selection. `indices` and `values` are equally long.
struct selection_span {
  view<index_type> indices;
  view<float> values;
  view<float> passthrough;
};

/// A run of consecutive elements that is selected from as one: at most k entries, by the rank `owner`.
struct segment {
  static constexpr int every_rank = -1;

  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  index_type k = 0;
  int owner = every_rank;
  std::uint32_t layer = 0;  ///< which of the ranges that split() was given; for partitioners that look at whole layers

  friend bool operator==(segment const&, segment const&) = default;
};
using segment_list = std::vector<segment>;

/// Consecutive elements.
struct range {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  friend bool operator==(range const&, range const&) = default;
};

/// Of a segment's k entries those that its first `elements` give, of `size` that it can give any of; for `elements` =
/// `size` all k. Whole numbers leave a rest, which falls to other bins in each step: `phase` is any number below
/// `size`.
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t share_of(std::uint64_t k, std::uint64_t elements, std::uint64_t size,
                                                            std::uint64_t phase) noexcept {
  return (elements * k + phase) / size;
}

/// What a partitioner shares out in one step.
struct step_budget {
  double density = 0;          ///< fraction of the elements to send
  std::uint64_t elements = 0;  ///< of the layers that are selected from
  std::uint64_t step = 0;      ///< the same on every rank
  int world = 1;               ///< number of ranks
};

/// ceil(density * elements), the entries to send; exact where float arithmetic is not.
[[nodiscard]] GRADSIEVE_HD inline index_type budget_of(double density, std::uint64_t elements) noexcept {
  double const k = std::ceil(density * static_cast<double>(elements));
  return static_cast<index_type>(smaller(k, static_cast<double>(elements)));
}

/// Memory that a partitioner may use in a step: made once, for the number of segments and ranks.
struct partition_scratch {
  std::vector<index_type> order;              ///< one a segment
  std::vector<double> weight;                 ///< one a segment
  std::vector<std::pair<double, int>> loads;  ///< one a rank
};

/// What a selector keeps of an accumulator: every element whose key exceeds `key`, and the first `ties` of
/// those whose key equals it. Ties therefore go to the smaller index.
struct threshold {
  key_type key = 0;
  index_type ties = 0;
  friend bool operator==(threshold const&, threshold const&) = default;
};

/// What decided on a threshold: the selector's estimate, that of the step before, or neither, but counting or a rank
/// among the candidates.
enum class threshold_origin : std::uint32_t { estimated, remembered, corrected };

/// Segments of a step by what decided on their thresholds, as far as the selector says it (`ldte`, `laplacian`,
/// `sidco`); those that give all that is not zero have none.
struct threshold_counts {
  std::uint64_t by[3] = {};  ///< in the order of threshold_origin
  std::uint64_t probes = 0;  ///< passes that counted at a threshold, in all

  [[nodiscard]] constexpr std::uint64_t of(threshold_origin origin) const noexcept {
    return by[static_cast<std::size_t>(origin)];
  }
  [[nodiscard]] constexpr std::uint64_t all() const noexcept { return by[0] + by[1] + by[2]; }
  constexpr void add(threshold_counts const& other) noexcept {
    for (std::size_t i = 0; i < 3; ++i) by[i] += other.by[i];
    probes += other.probes;
  }
  friend bool operator==(threshold_counts const&, threshold_counts const&) = default;
};

/// What a selector remembers of a segment from one step to the next: a key that somewhat more than k elements
/// will probably reach, and the k it was made for. Zero: nothing yet. A warm threshold makes a step faster, or moves a
/// band's threshold; it never makes an exact answer wrong.
struct warm_threshold {
  key_type key = 0;
  index_type k = 0;
  friend bool operator==(warm_threshold const&, warm_threshold const&) = default;
};

/// What a pass has kept of one segment: how many elements, the key they all reach, and whether they are all that
/// reach it; if not, `count` is a number that reach it at least. `threshold` 0: none were wanted.
struct candidates {
  std::uint64_t count = 0;
  key_type threshold = 0;
  bool complete = false;
};

/// What a selector wants of complete candidates: all of them, or a rank among them (1 is the largest); or nothing, as
/// they do not do.
struct candidate_choice {
  index_type rank = 0;  ///< 0: all
  bool made = false;

  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice none() noexcept { return {}; }
  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice all() noexcept { return {0, true}; }
  [[nodiscard]] GRADSIEVE_HD static constexpr candidate_choice largest(index_type k) noexcept { return {k, true}; }
};

/// Keeps every element: the default of the passes that can be restricted.
struct keep_all {
  GRADSIEVE_HD constexpr bool operator()(float) const noexcept { return true; }
};

/// One segment's accumulator as a selector sees it. `first` is the segment's offset in the gradient: indices
/// that go out are `first` + position. `id` names the segment to the workspace. Where the residual is not kept as
/// float, `values` has a size but no data: the workspace's passes read it.
struct accumulator_ref {
  view<float const> values;
  std::uint64_t first = 0;
  std::uint64_t id = 0;
  std::uint64_t step = 0;
  warm_threshold* warm = nullptr;
};

class layout;

/// What sender and receiver of a message agree on beforehand.
struct message_info {
  std::uint64_t n = 0;             ///< elements of the gradient
  std::uint64_t layout_hash = 0;   ///< of both layouts
  std::uint64_t passthrough = 0;   ///< elements that pass through uncompressed
  layout const* layers = nullptr;  ///< the layout itself, host memory; null where the codec needs none
  /// Length of the bins in each layer, host memory; empty where the selector has none.
  std::span<std::uint32_t const> bins{};
};

}  // namespace gradsieve
