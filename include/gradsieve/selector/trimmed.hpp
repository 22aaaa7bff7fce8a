// Top-k among what a threshold leaves that falls in steps.
#pragma once

#include <cstdint>

#include <gradsieve/core/fields.hpp>
#include <gradsieve/selector/mean_to_largest.hpp>

namespace gradsieve {

/// Sends exactly the k entries of largest magnitude, as `radix` does, fewer where fewer differ from zero: the threshold
/// mean + r * (largest - mean) falls, r = 1 - step, 1 - 2 step, ..., until it leaves k or more, and the k largest of
/// these are taken; of all, where r comes to 0. When not: `radix` gives the same in one pass. It is the baseline that
/// LDTE-BS was compared with.
/// Cost: the accumulate pass, which measures, one pass a threshold, at most 1 / step of them, and O(k).
/// Source: RedSync's trimmed top-k (Fang et al. 2019), with the exact choice at the end that its published code leaves
/// out, and an end on data that are all equal.
struct trimmed {
  static constexpr char const* name = "trimmed";
  static constexpr auto fields() { return std::tuple{field<&trimmed::step>{"step", between(0.001, 1)}}; }
  float step = 0.2f;  ///< by which r falls, in [0.001, 1]

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return work.compact(acc, {0, 0}, out);
    mean_to_largest const line{sums, acc.values.size()};
    for (int tries = 1; tries * static_cast<double>(step) < 1; ++tries)
      if (count_above(work, acc, line, 1 - tries * static_cast<double>(step)) >= k) break;
    return work.compact(acc, work.kth_largest(acc, k), out);
  }

  friend bool operator==(trimmed const&, trimmed const&) = default;
};

}  // namespace gradsieve
