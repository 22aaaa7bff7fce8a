// Plans for sparse exchanges whose selection runs on the compute stream.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

#include "pareto.hpp"

namespace tools {

using namespace gradsieve;

/// Seconds to select from a group of n = bytes / 4 elements: fixed + per_element * n + per_compare * n * log2 n. The
/// backward pass waits for it.
struct selection_seconds {
  double fixed = 0;        ///< for each group
  double per_element = 0;  ///< for each element
  double per_compare = 0;  ///< for each of n log2 n comparisons

  /// The seconds.
  [[nodiscard]] double operator()(std::uint64_t bytes) const noexcept {
    if (bytes == 0) return 0;
    double const n = static_cast<double>(bytes) / 4;
    return fixed + per_element * n + per_compare * n * std::log2(std::max(n, 1.0));
  }

  /// Checks all. @throws invalid_argument unless they are finite and not negative.
  void check() const {
    require_between("fixed seconds of a selection", fixed, 0, 1e9);
    require_between("seconds of a selection for an element", per_element, 0, 1e9);
    require_between("seconds of a selection for a comparison", per_compare, 0, 1e9);
  }
  friend bool operator==(selection_seconds const&, selection_seconds const&) = default;
};

/// Start and finish of each group's exchange, if its selection runs on the compute stream as soon as its last gradient
/// is ready, and later gradients wait for it. @throws invalid_argument as times_of().
template <cost_model Cost>
[[nodiscard]] std::vector<group_times> sparse_times_of(arrivals const& in, std::vector<std::size_t> const& ends,
                                                       Cost const& cost, selection_seconds const& selection) {
  std::vector<group_times> times;
  double selected = 0;
  double finish = 0;
  std::size_t begin = 0;
  for (auto const end : ends) {
    auto const bytes = in.bytes(begin, end);
    selected += selection(bytes);
    double const start = std::max(finish, in.ready(end - 1) + selected);
    finish = start + gradsieve::detail::planned_seconds_of(cost, bytes);
    times.push_back({start, finish});
    begin = end;
  }
  return times;
}

/// The plan whose last exchange finishes first, including selections. Exact as long as no prefix of the gradients has
/// more than `most_labels` useful pairs of times, otherwise approximate. Merging changes what is selected: the k
/// largest of the group, not of each layer. Costs may increase and decrease; groups with an infinite or NaN cost are
/// avoided. Throws invalid_argument if every plan has such a group, or if a cost is negative.
/// Cost: O(L^2) for each label, which suits hundreds of layers. Memory: O(L) for each label.
struct optimal_sparse {
  selection_seconds selection{};  ///< seconds of a selection
  std::size_t most_labels = 64;   ///< pairs of times kept for each prefix, at least 2

  /// Checks both. @throws invalid_argument if the selection's seconds are out of their limits or fewer than 2 labels
  /// are allowed.
  void check() const {
    selection.check();
    require_between("labels of a prefix", static_cast<double>(most_labels), 2, 1e9);
  }

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    check();
    using times = parts::two_times;  // seconds selected so far; finish
    auto const extend = [&](times const& at, std::size_t i, std::size_t j, double seconds) {
      double const selected = at.first + selection(in.bytes(i, j));
      return times{selected, std::max(at.second, in.ready(j - 1) + selected) + seconds};
    };
    auto made =
        parts::pareto_grouping(in, cost, most_labels, extend, [](times const& at) { return at.second; });
    made.times = sparse_times_of(in, made.ends, cost, selection);
    return made;
  }
  friend bool operator==(optimal_sparse const&, optimal_sparse const&) = default;
  friend std::ostream& operator<<(std::ostream& out, optimal_sparse const& it) {
    return describe(out, "optimal_sparse", std::pair{"fixed", it.selection.fixed},
                    std::pair{"per_element", it.selection.per_element},
                    std::pair{"per_compare", it.selection.per_compare});
  }
};

}  // namespace tools
