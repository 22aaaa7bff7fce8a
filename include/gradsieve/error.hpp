// What the library throws. Every message names the value, the limit and, with ranks, the rank.
#pragma once

#include <cstdint>
#include <limits>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gradsieve {

/// A value outside its limits (density, sizes, layouts). Thrown before anything has changed.
using std::invalid_argument;

/// Ranks, or a saved state and its compressor, disagree on layout, recipe, density or step.
struct mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A message that is truncated, damaged or not one of ours. Nothing was written outside the destination.
struct corrupt_message : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A saved state that is truncated or damaged. The compressor is as it was.
struct corrupt_state : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A gradient held NaN or infinity and the recipe says `non_finite::fail`. The compressor is as it was.
struct non_finite_gradient : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A collective failed, or another rank failed in this step.
struct communication_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A CUDA call failed: its name, the code and its text.
struct device_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Values that are allowed: from `low` to `high`. By default all but NaN.
struct interval {
  double low = __builtin_bit_cast(double, 0xFFF0'0000'0000'0000u);  // -infinity
  double high = __builtin_bit_cast(double, 0x7FF0'0000'0000'0000u);
  bool without_low = false;
  bool without_high = false;

  /// False for NaN. Decided by bits: unlike a comparison of doubles it holds under -ffinite-math-only.
  [[nodiscard]] constexpr bool contains(double value) const noexcept {
    auto const at = ordered(value);
    return (without_low ? at > ordered(low) : at >= ordered(low)) &&
           (without_high ? at < ordered(high) : at <= ordered(high));
  }

  friend std::ostream& operator<<(std::ostream& out, interval const& it) {
    out << (it.without_low ? "above " : "") << it.low;
    return out << (it.without_high ? " to below " : " to ") << it.high;
  }

 private:
  /// An integer that orders as the number; NaNs lie beyond both infinities.
  [[nodiscard]] static constexpr std::int64_t ordered(double value) noexcept {
    auto const bits = __builtin_bit_cast(std::int64_t, value);
    auto const magnitude = bits & std::numeric_limits<std::int64_t>::max();
    return bits < 0 ? -magnitude : magnitude;
  }
};

[[nodiscard]] constexpr interval between(double low, double high) noexcept { return {.low = low, .high = high}; }
[[nodiscard]] constexpr interval at_least(double low) noexcept { return {.low = low}; }

/// @throws invalid_argument unless the value is allowed.
inline void require_in(std::string_view what, double value, interval const& allowed) {
  if (allowed.contains(value)) return;
  std::ostringstream message;
  message << "gradsieve: " << what << " is " << value << ", expected " << allowed;
  throw invalid_argument(message.str());
}

/// @throws invalid_argument unless low <= value <= high; a NaN is not.
inline void require_between(std::string_view what, double value, double low, double high) {
  require_in(what, value, between(low, high));
}

}  // namespace gradsieve
