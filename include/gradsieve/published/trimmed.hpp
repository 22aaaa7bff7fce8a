// Top-k among the elements above a threshold that falls in steps.
#pragma once

#include <gradsieve/core/fields.hpp>
#include <gradsieve/published/mean_to_largest.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends exactly the k entries of largest magnitude, as `radix` does, and fewer if fewer are nonzero. The threshold
/// mean + r * (largest - mean) falls with r = 1 - step, 1 - 2 step, ... until k or more elements are above it; the k
/// largest of these are sent, or of all elements if r reaches 0. The baseline of LDTE-BS.
/// When not: almost always; `radix` gives the same in one pass.
/// Cost: the accumulate pass, which measures, one pass per threshold, at most 1 / step of them, and O(k).
/// Source: RedSync's trimmed top-k (Fang et al. 2019); unlike its published code the choice is exact, and the search
/// ends on data that are all equal.
struct trimmed {
  static constexpr char const* name = "trimmed";
  static constexpr auto fields() { return std::tuple{field<&trimmed::step>{"step", between(0.001, 1)}}; }
  float step = 0.2f;  ///< by which r falls, in [0.001, 1]

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return work.compact(acc, {0, 0}, out);
    detail::mean_to_largest const line{sums, acc.values.size()};
    for (int tries = 1; tries * static_cast<double>(step) < 1; ++tries)
      if (detail::count_above(work, acc, line, 1 - tries * static_cast<double>(step)) >= k) break;
    return work.compact(acc, work.kth_largest(acc, k), out);
  }

  friend bool operator==(trimmed const&, trimmed const&) = default;
};

}  // namespace gradsieve
