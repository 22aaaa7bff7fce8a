// What the library throws. Every message names the value, the limit and, with ranks, the rank.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <gradsieve/types.hpp>

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

/// What a policy's check() is made of. @throws invalid_argument unless low <= value <= high; NaN and infinity are not,
/// with -ffast-math either.
inline void require_between(std::string_view what, double value, double low, double high) {
  if (is_finite(value) && value >= low && value <= high) return;
  std::ostringstream message;
  message << "gradsieve: " << what << " is " << value << ", expected " << low << " to " << high;
  throw invalid_argument(message.str());
}

}  // namespace gradsieve
