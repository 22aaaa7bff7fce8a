// A plan for a cost that is only roughly known.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <ostream>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>
#include <gradsieve/plan/planners/optimal.hpp>

namespace tools {

using namespace gradsieve;

/// For an affine cost whose startup may be off by a factor of `a`, and whose seconds per byte by a factor of `b`, in
/// both directions. Of the optimal plans for the given cost, its extremes and some costs in between, it chooses the one
/// with the smallest worst-case ratio of its finish to the optimum. A measured `b` that is too high costs most, as the
/// last group becomes too large. Cost: 18 times `optimal` and 17 * 9 evaluations, O(L) each.
struct robust {
  double a = 2;  ///< factor of the startup, >= 1
  double b = 2;  ///< factor of the seconds per byte, >= 1

  /// Checks both. @throws invalid_argument unless they are finite and 1 or more.
  void check() const {
    require_between("factor of a startup's uncertainty", a, 1, 1e6);
    require_between("factor of the uncertainty of seconds a byte", b, 1, 1e6);
  }

  [[nodiscard]] grouping operator()(arrivals const& in, affine const& cost) const {
    check();
    if (in.count() == 0) return {{}, 0.0, {}};
    std::vector<affine> cases;
    std::vector<double> least;
    std::vector<std::vector<std::size_t>> candidates;
    for (double const x : {0.0, -1.0, 1.0})
      for (double const y : {0.0, -1.0, 1.0}) {
        affine const each{cost.a * std::pow(a, x), cost.b * std::pow(b, y)};
        cases.push_back(each);
        for (auto const rule : {ties::fewest_groups, ties::latest})
          if (auto made = optimal{rule}(in, each);
              std::find(candidates.begin(), candidates.end(), made.ends) == candidates.end())
            candidates.push_back(std::move(made.ends));
        least.push_back(finish_of(in, optimal{}(in, each).ends, each));
      }
    std::size_t chosen = 0;
    double least_regret = std::numeric_limits<double>::max();
    for (std::size_t p = 0; p < candidates.size(); ++p) {
      double const regret = worst(in, candidates[p], cases, least);
      if (regret < least_regret) {
        least_regret = regret;
        chosen = p;
      }
    }
    double const behind = std::max(0.0, finish_of(in, candidates[chosen], cost) - least.front());
    return {std::move(candidates[chosen]), behind, {}};
  }

  friend bool operator==(robust const&, robust const&) = default;
  friend std::ostream& operator<<(std::ostream& out, robust const& it) {
    return describe(out, "robust", std::pair{"a", it.a}, std::pair{"b", it.b});
  }

 private:
  static double worst(arrivals const& in, std::vector<std::size_t> const& ends, std::vector<affine> const& cases,
                      std::vector<double> const& least) {
    double factor = 0;
    for (std::size_t c = 0; c < cases.size(); ++c) {
      double const finish = finish_of(in, ends, cases[c]);
      factor = std::max(factor, least[c] > 0 ? finish / least[c] : 1);
    }
    return factor;
  }
};

}  // namespace tools
