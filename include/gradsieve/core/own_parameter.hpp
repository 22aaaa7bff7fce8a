// One parameter of a rank that steps its own: what it trains on, and how that changes in an exchange.
#pragma once

#include <gradsieve/core/types.hpp>

namespace gradsieve {

/// What a rank trains on: common + weight * unsent, where `unsent` is what it has not sent of its updates; rounded to
/// the format, and `common` where that sum is not finite. @pre common is finite
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T own_parameter(float common, float unsent,
                                                                      float weight) noexcept {
  float const value = multiply_add(weight, unsent, common);
  return from_float_saturated<T>(is_finite(value) ? value : common);
}

/// By how much the optimiser has changed a parameter that own_parameter() had written.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float own_update(T const& now, float common, float unsent,
                                                                       float weight) noexcept {
  return subtract(to_float(now), to_float(own_parameter<T>(common, unsent, weight)));
}

/// A parameter with an update that was taken out of it: what it was before, to rounding.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T with_update(float update, float common, float unsent,
                                                                    float weight) noexcept {
  return from_float_saturated<T>(add(to_float(own_parameter<T>(common, unsent, weight)), update));
}

/// The common parameter after an exchange whose mean of what was sent is `mean`; a sum that would not be finite is not
/// made.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float moved_common(float common, float mean) noexcept {
  float const sum = add(common, mean);
  return is_finite(sum) ? sum : common;
}

}  // namespace gradsieve
