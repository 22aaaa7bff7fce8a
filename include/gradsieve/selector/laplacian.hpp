// Top-k by a Laplace estimate of the threshold, corrected by counting.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <gradsieve/search.hpp>
#include <gradsieve/selector/prediction.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// How many entries a threshold selector sends.
enum class count_mode {
  band,  ///< from k to (1 + tolerance) * k: whatever the first threshold in the band keeps
  exact  ///< k: the threshold's survivors, cut to the k largest
};

/// Sends the entries above a threshold that keeps from k to (1 + tolerance) * k of them (k in `exact` mode).
/// Cold, the threshold starts at b * ln(nonzero / k), b = mean magnitude of the nonzeros, and bracketed
/// bisection on integer keys corrects it; it ends on any data, with exactly k where ties leave no band. Warm, it
/// starts at the last step's threshold, and what that keeps is collected by the accumulate pass itself.
/// When not: cold, on error-feedback data the estimate is far off and the correction costs 7 to 10 passes; with
/// `band` and `warm` the count depends on the steps before (deterministic all the same).
/// Cost: warm, the accumulate pass and O(k); cold, about 8 reading passes more. Memory: none.
/// Source: LDTE-BS (Chen, Liu, Han 2021); the correction's bracket and the warm window are derived in our notes
/// on integer keys, as the paper's own rule for them is not published in full.
struct laplacian {
  float tolerance = 0.25f;  ///< of the band, >= 0
  count_mode count = count_mode::band;
  bool warm = true;  ///< start from the last step's threshold

  /// Entries that may be sent for a budget of k.
  [[nodiscard]] GRADSIEVE_HD constexpr index_type capacity(index_type k) const noexcept {
    return count == count_mode::exact ? k : band(k);
  }

  template <class Workspace>
  [[nodiscard]] key_type predict(Workspace&, accumulator_ref const acc, index_type k) const {
    return warm && hint_fits(acc, k) ? acc.hint->lower : 0;
  }

  template <class Workspace>
  index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    auto const found = ensure_candidates(work, acc, k);
    bool const enough = found.complete && found.count >= k;
    cut at{found.lower - 1, 0};
    if (count == count_mode::exact) {
      cut const near = enough ? cut{} : threshold(work, acc, k, found.lower != 0);
      at = near.ties > 0 ? near : work.kth_largest(acc, k, near.key + 1);  // ties: it is exact already
      if (warm) remember(work, acc, at, k, spare_share(acc, k));
    } else if (!enough) {
      at = threshold(work, acc, k, found.lower != 0);
      if (warm) remember_cut(acc, at, k);
    } else if (found.count > capacity(k)) {
      at = work.kth_largest(acc, aim(k));
      if (warm) remember_cut(acc, at, k);
    } else if (warm && 2 * (found.count - k) < aim(k) - k) {  // near the lower end: a little lower next time
      remember(work, acc, work.kth_largest(acc, k), k, static_cast<double>(tolerance) / 2);
    }
    return work.compact(acc, at, out);
  }

  friend bool operator==(laplacian const&, laplacian const&) = default;
  friend std::ostream& operator<<(std::ostream& out, laplacian const& it) {
    return describe(out, "laplacian", std::pair{"tolerance", it.tolerance},
                    std::pair{"exact", it.count == count_mode::exact}, std::pair{"warm", it.warm});
  }

 private:
  [[nodiscard]] GRADSIEVE_HD constexpr index_type band(index_type k) const noexcept {
    double const most = k * (1.0 + static_cast<double>(tolerance));
    return most < 4294967295.0 ? static_cast<index_type>(most) : 4294967295u;
  }

  /// The middle of the band: a threshold there stays within the band for a step or more.
  [[nodiscard]] constexpr index_type aim(index_type k) const noexcept { return k + (capacity(k) - k) / 2; }

  static void remember_cut(accumulator_ref const acc, cut const at, index_type k) noexcept {
    if (acc.hint != nullptr) *acc.hint = {at.key == 0 ? 0 : at.key + (at.ties == 0 ? 1 : 0), k};
  }

  /// Cold: the estimate, corrected. Where candidates were asked for and do not suffice, ties are in the way.
  template <class Workspace>
  [[nodiscard]] cut threshold(Workspace& work, accumulator_ref const acc, index_type k, bool asked) const {
    return asked ? work.kth_largest(acc, k) : estimate(work, acc, k);
  }

  /// Every probe collects what it counts, so that the last one has collected the answer.
  template <class Workspace>
  [[nodiscard]] cut estimate(Workspace& work, accumulator_ref const acc, index_type k) const {
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return {0, 0};
    auto const nonzero = static_cast<double>(sums.nonzero);
    auto const guess = static_cast<float>(sums.sum_abs / nonzero * std::log(nonzero / k));
    bracket_search search{magnitude_key(guess), sums.max_key + 1, k, band(k)};
    while (!search.done()) {
      work.collect_again(acc, search.probe());
      auto const counted = work.collected(acc);
      search.next(counted.complete ? counted.count : acc.values.size());  // a full list: far more than the band
    }
    return search.result();
  }
};

}  // namespace gradsieve
