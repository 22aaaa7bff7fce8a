// One parameter of a rank that steps its own: the value it trains on, and its change in an exchange.
#pragma once

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

/// The optimizer's change of a parameter since own_parameter(), times a factor; 0 for factor 0, whatever the parameter.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float own_update(T const& now, float common, float unsent,
                                                                       float weight, float factor) noexcept {
  float const change = subtract(to_float(now), to_float(own_parameter<T>(common, unsent, weight)));
  return widened(factor) > 0 ? multiply(factor, change) : 0.0f;
}

/// The parameter with an update that was moved out of it, divided by its factor: its earlier value, to rounding.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T with_update(float update, float common, float unsent,
                                                                    float weight, float factor) noexcept {
  float const change = widened(factor) > 0 ? divide(update, factor) : 0.0f;
  return from_float_saturated<T>(add(to_float(own_parameter<T>(common, unsent, weight)), change));
}

/// The common parameter after an exchange with this mean; unchanged if the sum would not be finite.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float moved_common(float common, float mean) noexcept {
  float const sum = add(common, mean);
  return is_finite(sum) ? sum : common;
}

/// `keep` of a momentum and the rest of a mean; the momentum as it was if that is not finite.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float next_momentum(float held, float mean, float keep) noexcept {
  float const next = add(multiply(keep, held), multiply(subtract(1.0f, keep), mean));
  return is_finite(next) ? next : held;
}

}  // namespace gradsieve::detail
