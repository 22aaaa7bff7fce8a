// The exceptions of the library. Every message names the value, the limit and, with ranks, the rank.
#pragma once

#include <cstdint>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <string_view>

#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The base of all exceptions of this library, each of which also has a base in the standard library: catch either.
/// std::bad_alloc, std::system_error (no thread), and exceptions of your policies and communicators pass unchanged.
struct error {
  error() = default;
  error(error const&) = default;             ///< exceptions are copied
  error& operator=(error const&) = default;  ///< and assigned
  virtual ~error() = default;
  /// A sentence that names the value, the limit and what to do.
  [[nodiscard]] virtual char const* what() const noexcept = 0;
};

namespace detail {

/// An exception of this library that is also one of the standard library.
template <class Standard>
struct error_and : Standard, error {
  using Standard::Standard;
  [[nodiscard]] char const* what() const noexcept override { return Standard::what(); }
};

}  // namespace detail

/// A value outside its limits (density, sizes, layouts), or a call at the wrong time. Thrown before anything changes.
struct invalid_argument : detail::error_and<std::invalid_argument> {
  using error_and::error_and;
};

/// Ranks, or a saved state and its compressor, disagree on layout, recipe, density or step.
struct mismatch : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

/// A message that is truncated, damaged or of another format. Nothing was written outside the destination.
struct corrupt_message : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

/// A saved state that is truncated or damaged. The compressor is unchanged.
struct corrupt_state : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

/// A gradient has a NaN or infinity and the recipe says `non_finite::fail`. The compressor is unchanged.
struct non_finite_gradient : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

/// A collective failed, or another rank failed in this step.
struct communication_error : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

/// A CUDA call failed. The message has its name, its code and CUDA's text.
struct device_error : detail::error_and<std::runtime_error> {
  using error_and::error_and;
};

namespace detail {

/// Writes a number as a user gave it: whole numbers without an exponent, floats with a float's digits.
struct as_given {
  double value;
  friend std::ostream& operator<<(std::ostream& out, as_given const& number) {
    if (is_finite(number.value) && number.value > -1e15 && number.value < 1e15)
      if (auto const whole = static_cast<std::int64_t>(number.value);
          whole != 0 && stored_bits(static_cast<double>(whole)) == stored_bits(number.value))
        return out << shortest{whole};
    auto const as_float = static_cast<float>(number.value);
    if (stored_bits(static_cast<double>(as_float)) == stored_bits(number.value)) return out << shortest{as_float};
    return out << shortest{number.value};
  }
};

}  // namespace detail

/// The allowed values of a number; by default all but NaN. Compares bits, so it also holds under -ffinite-math-only.
class interval {
 public:
  /// One end of an interval.
  struct bound {
    double value = 0;   ///< the limit
    bool set = false;   ///< false: no limit
    bool open = false;  ///< true if the limit itself is excluded
  };

  constexpr interval() = default;
  /// The numbers between two bounds.
  constexpr interval(bound low, bound high) noexcept : low_{low}, high_{high} {}

  /// True if a value is allowed; NaN never is.
  [[nodiscard]] bool contains(double value) const noexcept {
    auto const at = ordered(value);
    bool const number = at >= -infinity && at <= infinity;
    return number && (!low_.set || (low_.open ? at > ordered(low_.value) : at >= ordered(low_.value))) &&
           (!high_.set || (high_.open ? at < ordered(high_.value) : at <= ordered(high_.value)));
  }

  friend std::ostream& operator<<(std::ostream& out, interval const& it) {
    plain_output const plain{out};
    if (!it.low_.set)
      out << (it.high_.set ? "-inf" : "a number");
    else
      out << (it.low_.open ? "above " : it.high_.set ? "" : "at least ") << detail::as_given{it.low_.value};
    if (!it.high_.set) return out;
    return out << (it.high_.open ? " to below " : " to ") << detail::as_given{it.high_.value};
  }

 private:
  static constexpr std::int64_t infinity = 0x7FF0'0000'0000'0000;

  /// An integer with the same order as the number; NaNs lie beyond both infinities.
  [[nodiscard]] static std::int64_t ordered(double value) noexcept {
    auto const bits = static_cast<std::int64_t>(stored_bits(value));
    auto const magnitude = bits & std::numeric_limits<std::int64_t>::max();
    return bits < 0 ? -magnitude : magnitude;
  }

  bound low_, high_;
};

/// The interval low <= value <= high.
[[nodiscard]] constexpr interval between(double low, double high) noexcept {
  return {{low, true, false}, {high, true, false}};
}
/// The interval low < value <= high.
[[nodiscard]] constexpr interval above_to(double low, double high) noexcept {
  return {{low, true, true}, {high, true, false}};
}
/// The interval low <= value < high.
[[nodiscard]] constexpr interval to_below(double low, double high) noexcept {
  return {{low, true, false}, {high, true, true}};
}
/// The interval low <= value.
[[nodiscard]] constexpr interval at_least(double low) noexcept { return {{low, true, false}, {}}; }

/// Checks a value, named by `what`. @throws invalid_argument unless it is allowed.
inline void require_in(std::string_view what, double value, interval const& allowed) {
  if (allowed.contains(value)) return;
  auto message = plain_text();
  message << "gradsieve: " << what << " is " << detail::as_given{value} << ", expected " << allowed;
  throw invalid_argument(message.str());
}

/// Checks a value, named by `what`. @throws invalid_argument unless low <= value <= high; also for a NaN.
inline void require_between(std::string_view what, double value, double low, double high) {
  require_in(what, value, between(low, high));
}

}  // namespace gradsieve
