// One parameter of a rank that steps its own: the value it trains on, and its change in an exchange.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The value that a rank trains on: common + weight * unsent, `unsent` being the unsent part of its updates; rounded to
/// the format, and `common` if that sum is not finite. @pre common is finite
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T own_parameter(float common, float unsent,
                                                                      float weight) noexcept {
  float const value = multiply_add(weight, unsent, common);
  return from_float_saturated<T>(is_finite(value) ? value : common);
}

/// The optimizer's change of a parameter, times a factor; 0 for factor 0, whatever the parameter.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float own_update(T const& now, T const& written,
                                                                       float factor) noexcept {
  float const change = subtract(to_float(now), to_float(written));
  return widened(factor) > 0 ? multiply(factor, change) : 0.0f;
}

/// The parameter with an update that was moved out of it, divided by its factor, to rounding; without one for factor 0.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T with_update(float update, T const& written,
                                                                    float factor) noexcept {
  return widened(factor) > 0 ? from_float_saturated<T>(add(to_float(written), divide(update, factor))) : written;
}

/// The common parameter moved by this much; unchanged if the sum would not be finite.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float moved_common(float common, float mean) noexcept {
  float const sum = add(common, mean);
  return is_finite(sum) ? sum : common;
}

/// `keep` of a momentum and the rest of a mean; the momentum as it was if that is not finite.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float next_momentum(float held, float mean, float keep) noexcept {
  float const next = add(multiply(keep, held), multiply(subtract(1.0f, keep), mean));
  return is_finite(next) ? next : held;
}

/// How much of what is in own parameters, besides the common ones.
struct own_shares {
  float weight = 0;  ///< of what was not sent
  float ahead = 0;   ///< of the momentum, over its size
};

/// What own parameters are written from.
template <class Stored>
struct own_parts {
  float const* common;
  float const* momentum;  ///< any finite values if its share is 0
  Stored const* unsent;
  own_shares shares;

  [[nodiscard]] constexpr own_parts from(std::uint64_t i) const noexcept {
    return {common + i, momentum + i, unsent + i, shares};
  }
  /// Parameter i, with a common one and a momentum that may be newer than those in memory.
  template <class T>
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T own(std::uint64_t i, float at, float held) const noexcept {
    return own_parameter<T>(moved_common(at, multiply(shares.ahead, held)), to_float(unsent[i]), shares.weight);
  }
  template <class T>
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T own(std::uint64_t i) const noexcept {
    return own<T>(i, common[i], momentum[i]);
  }
};

}  // namespace gradsieve::detail
