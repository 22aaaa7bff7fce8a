// Magnitudes in fixed point, whose sums do not depend on the order.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Magnitudes of up to `n` elements as whole numbers with a sum below 2^63. The largest has as many bits as that
/// allows, at most 40, and 30 for n = 2^32; lower bits are truncated.
class magnitude_units {
 public:
  /// Units for n elements. @pre no key of the elements exceeds max_key, which is finite
  GRADSIEVE_HD constexpr magnitude_units(std::uint64_t n, key_type max_key) noexcept
      : top_{static_cast<int>(detail::parts_of(max_key).exponent)}, bits_{40} {
    for (; n >> (63 - bits_) != 0 && bits_ > 30; --bits_) continue;
  }

  /// |x| in units.
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr std::uint64_t magnitude(key_type key) const noexcept {
    auto const [significand, exponent] = detail::parts_of(key);
    int const right = 40 - bits_ + (top_ - static_cast<int>(exponent));  // 0 or more
    return (std::uint64_t{significand} << 16) >> smaller(right, 63);
  }

  /// The value of one unit.
  [[nodiscard]] GRADSIEVE_HD constexpr double unit() const noexcept {
    return gradsieve::bit_cast<double>(static_cast<std::uint64_t>(top_ - 126 - bits_ + 1023) << 52);
  }

 private:
  int top_;  // largest exponent field
  int bits_;
};

}  // namespace gradsieve
