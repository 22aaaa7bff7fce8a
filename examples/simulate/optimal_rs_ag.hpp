// Plans for an all-reduce in two halves, the second of which overlaps with the next forward pass.
#pragma once

#include <algorithm>
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

/// Groups are reduce-scattered during the backward pass, and then all-gathered in the order of the next forward pass,
/// in which a layer waits only for its own group. The plan has the least period of a steady state, with the same groups
/// in both halves; its predicted times are those of the reduce-scatters. Exact as long as no prefix has more than
/// `most_labels` useful pairs of times. Costs may increase and decrease; groups with an infinite or NaN cost are
/// avoided. Throws invalid_argument if every plan has such a group, or if a cost is negative.
/// Cost: O(L^2) for each label, which suits hundreds of layers.
/// Source: DeAR (Zhang et al., ICDCS 2023), with the exact partition instead of a search for a bucket size.
struct optimal_rs_ag {
  double share = 0.5;            ///< fraction of the cost for the reduce-scatter; half with a ring
  std::size_t most_labels = 64;  ///< pairs of times kept for each prefix, at least 2

  /// Checks both. @throws invalid_argument unless 0 <= share <= 1 and at least 2 labels are allowed.
  void check() const {
    require_between("share of the reduce-scatter", share, 0, 1);
    require_between("labels of a prefix", static_cast<double>(most_labels), 2, 1e9);
  }

  template <cost_model Cost>
  [[nodiscard]] grouping operator()(arrivals const& in, Cost const& cost) const {
    check();
    using times = parts::two_times;  // finish of the reduce-scatters; from the all-gathers' start to the
                                               // end of the forward pass
    auto const extend = [&](times const& at, std::size_t, std::size_t j, double all) {
      return extended(in, at, j, all);
    };
    auto made = parts::pareto_grouping(
        in, cost, most_labels, extend, [&](times const& at) { return std::max(at.first, in.backward()) + at.second; });
    made.times = times_of(in, made.ends, [&](std::uint64_t bytes) { return share * cost(bytes); });
    return made;
  }

  /// Seconds from one backward pass to the next with these groups. @throws invalid_argument as times_of().
  template <cost_model Cost>
  [[nodiscard]] double period(arrivals const& in, std::vector<std::size_t> const& ends, Cost const& cost) const {
    parts::two_times at;
    std::size_t begin = 0;
    for (auto const end : ends) {
      at = extended(in, at, end, gradsieve::detail::planned_seconds_of(cost, in.bytes(begin, end)));
      begin = end;
    }
    return std::max(at.first, in.backward()) + at.second;
  }

  friend bool operator==(optimal_rs_ag const&, optimal_rs_ag const&) = default;
  friend std::ostream& operator<<(std::ostream& out, optimal_rs_ag const& it) {
    return describe(out, "optimal_rs_ag", std::pair{"share", it.share});
  }

 private:
  /// After one more group, which ends before j and costs `all` seconds.
  [[nodiscard]] parts::two_times extended(arrivals const& in, parts::two_times const& at,
                                                    std::size_t j, double all) const {
    return {std::max(at.first, in.ready(j - 1)) + share * all, std::max(at.second, in.forward(j)) + (1 - share) * all};
  }
};

}  // namespace tools
