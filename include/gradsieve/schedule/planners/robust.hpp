// A plan for costs that are not known well.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/schedule/planners/arrivals.hpp>
#include <gradsieve/schedule/planners/optimal.hpp>

namespace gradsieve {

/// Costs that may turn out to be up to `a` times more or less startup, and `b` times more or less a byte. Of the
/// optimal plans for the given cost and for its corners (and in between), the one whose finish exceeds the optimum of
/// the case by the least factor in its worst case. Measured b that is too high costs most, as the last group gets too
/// large. Cost: 18 times `optimal` and 17 * 9 evaluations, O(L) each. Affine costs only, which are always finite.
struct robust {
  double a = 2;
  double b = 2;

  /// @throws invalid_argument unless both are finite and 1 or more.
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

}  // namespace gradsieve
