// A sample of a segment, as selectors see it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <gradsieve/types.hpp>

namespace gradsieve {

/// Keys from a segment, in memory of the workspace that has drawn them. Every question costs one look at each.
class key_sample {
 public:
  explicit key_sample(std::span<key_type> keys) noexcept : keys_{keys} {}

  [[nodiscard]] std::uint64_t size() const noexcept { return keys_.size(); }

  /// The key of a rank; the largest is of rank 1. Changes the order of the keys. @pre 1 <= rank <= size()
  [[nodiscard]] key_type kth_largest(std::uint64_t rank) noexcept {
    auto const nth = keys_.begin() + static_cast<std::ptrdiff_t>(rank - 1);
    std::nth_element(keys_.begin(), nth, keys_.end(), std::greater{});
    return *nth;
  }

  [[nodiscard]] std::uint64_t count_at_least(key_type key) const noexcept {
    return count_if([&](key_type each) { return each >= key; });
  }

  [[nodiscard]] std::uint64_t nonzero() const noexcept {
    return count_if([](key_type each) { return each != 0; });
  }

  /// Sum of the magnitudes, in the order of the keys: ask before kth_largest().
  [[nodiscard]] double sum_abs() const noexcept {
    double sum = 0;
    for (key_type const key : keys_) sum += static_cast<double>(magnitude_of(key));
    return sum;
  }

  [[nodiscard]] std::span<key_type> keys() const noexcept { return keys_; }

 private:
  template <class Wanted>
  [[nodiscard]] std::uint64_t count_if(Wanted const& wanted) const noexcept {
    return static_cast<std::uint64_t>(std::ranges::count_if(keys_, wanted));
  }

  std::span<key_type> keys_;
};

}  // namespace gradsieve
