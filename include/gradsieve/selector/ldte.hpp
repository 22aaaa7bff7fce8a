// The Laplace estimate of every step, corrected by bisection.
#pragma once

#include <cmath>
#include <cstdint>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve {

/// Sends from k to (1 + tolerance) * k entries, exactly k where ties leave no such number, and fewer where fewer differ
/// from zero. In every step the threshold starts at b * ln(n / k), b = mean magnitude, which keeps k of Laplace data,
/// and bracketed bisection corrects it by counting. Nothing is remembered. When not: what error feedback leaves is no
/// Laplace law. The estimate then keeps almost nothing: of 190 steps on Laplace gradients (300,000 elements, at 1 % and
/// at 0.1 %) it decided in none, and bisection took 7 counting passes a step; step_report::thresholds counts both.
/// `laplacian` has the same promise in one pass. Cost: the accumulate pass, which measures, and one pass a probe.
/// Source: LDTE-BS (Chen, Liu, Han 2021), as far as it is published: its rule for the bracket is not, and is
/// `bracket_search` here.
struct ldte {
  static constexpr char const* name = "ldte";
  static constexpr auto fields() { return std::tuple{field<&ldte::tolerance>{"tolerance", at_least(0)}}; }
  float tolerance = 0.25f;  ///< of the count, >= 0

  /// Entries that may be sent for a budget of k.
  [[nodiscard]] GRADSIEVE_HD constexpr index_type capacity(index_type k) const noexcept {
    return end_of_band(k, tolerance);
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return work.compact(acc, {0, 0}, out);
    auto const n = static_cast<double>(acc.values.size());
    auto const estimate = magnitude_key(static_cast<float>(sums.sum_abs / n * std::log(n / k)));
    bracket_search search{larger<key_type>(estimate, 1), sums.max_key + 1, k, capacity(k)};
    count_until_done(work, acc, search);
    return work.compact(acc, search.result(), out);
  }

  friend bool operator==(ldte const&, ldte const&) = default;
};

}  // namespace gradsieve
