// A threshold by bisection between the mean magnitude and the largest.
#pragma once

#include <cstdint>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/published/mean_to_largest.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends between k and 2 k - 1 entries: all above the threshold mean + r * (largest - mean), where bisection of [0, 1]
/// finds r; exactly the k largest if no r that it tries gives such a count, and fewer if fewer are nonzero.
/// When not: almost always; messages are up to twice as large as requested, and `radix` needs one pass.
/// Cost: the accumulate pass, which measures, and one pass per probe, at most log2(1 / tolerance).
/// Source: RedSync's threshold binary search (Fang et al. 2019). Unlike its published code, which accepts fewer than k,
/// at least k entries are sent, and the last resort is exact.
struct threshold_search {
  static constexpr char const* name = "threshold_search";
  static constexpr auto fields() {
    return std::tuple{field<&threshold_search::tolerance>{"tolerance", between(1e-9, 1)}};
  }
  float tolerance = 1e-3f;  ///< of r, in [1e-9, 1]

  [[nodiscard]] GRADSIEVE_HD constexpr index_type capacity(index_type k) const noexcept {
    return k < (index_type{1} << 31) ? 2 * k - (k > 0 ? 1 : 0) : ~index_type{0};
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return work.compact(acc, {0, 0}, out);
    detail::mean_to_largest const line{sums, acc.values.size()};
    double low = 0;
    double high = 1;
    while (high - low > static_cast<double>(tolerance)) {
      double const r = low + (high - low) / 2;
      std::uint64_t const count = detail::count_above(work, acc, line, r);
      if (count >= k && count <= capacity(k)) return work.compact(acc, {line.key_above_line(r) - 1, 0}, out);
      (count < k ? high : low) = r;
    }
    return work.compact(acc, work.kth_largest(acc, k), out);
  }

  friend bool operator==(threshold_search const&, threshold_search const&) = default;
};

}  // namespace gradsieve
