// Roots and powers that are the same in every build.
#pragma once

#include <cmath>
#include <cstdint>

#include <gradsieve/core/arithmetic.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::exact {

/// The square root of x.
[[nodiscard]] GRADSIEVE_HD inline double square_root(double x) noexcept { return opaque(std::sqrt(opaque(x))); }

/// 2^n. @pre -1022 <= n <= 1023
[[nodiscard]] inline double power_of_two(int n) noexcept {
  return gradsieve::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// The natural logarithm of x, with a relative error below 6e-16. @pre x is positive and finite
[[nodiscard]] inline double logarithm(double x) noexcept {
  constexpr double ln_2 = 0x1.62e42fefa39efp-1;
  int exponent = 0;
  if (stored_bits(x) >> 52 == 0) {  // subnormal
    x = multiply(x, power_of_two(64));
    exponent = -64;
  }
  auto const bits = stored_bits(x);
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = gradsieve::bit_cast<double>((bits & ~(std::uint64_t{0x7FF} << 52)) | std::uint64_t{1023} << 52);  // 1 to 2
  if (m > 1.4142) {
    m = multiply(m, 0.5);
    ++exponent;
  }
  // ln m = 2 (z + z^3 / 3 + z^5 / 5 + ...)
  double const z = divide(subtract(m, 1), add(m, 1));
  double const square = multiply(z, z);
  double sum = 0;
  for (int i = 23; i > 0; i -= 2) sum = add(multiply(sum, square), divide(1, i));
  return add(multiply(static_cast<double>(exponent), ln_2), multiply(multiply(2, z), sum));
}

/// e^x, with a relative error below 3e-16. @pre -700 <= x <= 700
[[nodiscard]] inline double exponential(double x) noexcept {
  constexpr double ln_2_high = 0x1.62e42fefa38p-1;  // times integers up to 2^11 without rounding
  constexpr double ln_2_low = 0x1.ef35793c7673p-45;
  double const halves = divide(x, ln_2_high);
  int const n = static_cast<int>(add(halves, halves < 0 ? -0.5 : 0.5));
  double const rest = subtract(subtract(x, multiply(n, ln_2_high)), multiply(n, ln_2_low));
  double sum = 1;
  for (int i = 17; i > 0; --i) sum = add(divide(multiply(sum, rest), i), 1);
  return multiply(sum, power_of_two(n));
}

/// base^exponent, with a relative error below 6e-16 times max(1, |exponent * ln base|). std::pow rounds differently
/// between libraries, processors and flags. @pre base is positive and finite; -700 <= exponent * ln base <= 700
[[nodiscard]] inline double power(double base, double exponent) noexcept {
  return exponential(multiply(exponent, logarithm(base)));
}

}  // namespace gradsieve::exact
