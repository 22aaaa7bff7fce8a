// Thresholds between the mean magnitude and the largest, as RedSync's two selectors use them.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The line t(r) = mean + r * (largest - mean) over a segment's magnitudes, r in [0, 1].
class mean_to_largest {
 public:
  /// @pre n > 0. `sums`: from a workspace's measure().
  template <class Sums>
  GRADSIEVE_HD mean_to_largest(Sums const& sums, std::uint64_t n) noexcept
      : mean_{sums.sum_abs / static_cast<double>(n)}, largest_{widened(magnitude_of(sums.max_key))} {}

  /// The smallest key above t(r).
  [[nodiscard]] GRADSIEVE_HD key_type key_above_line(double r) const noexcept {
    return key_above(magnitude_key(narrowed(mean_ + r * (largest_ - mean_))));
  }

 private:
  double mean_;
  double largest_;
};

/// Collects what is above t(r) and returns how many there are; the segment's size if a candidate list cannot hold them.
/// Cost: one pass.
GRADSIEVE_EITHER_SPACE
template <class Workspace>
[[nodiscard]] GRADSIEVE_HD std::uint64_t count_above(Workspace& work, accumulator_ref const acc,
                                                     mean_to_largest const& line, double r) {
  work.collect_again(acc, line.key_above_line(r));
  auto const found = work.collected(acc);
  return found.complete ? found.count : acc.values.size();
}

}  // namespace gradsieve::detail
