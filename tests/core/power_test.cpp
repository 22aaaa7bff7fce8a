// Logarithm, exponential and power against those of long double, to the error that their headers promise.
#include <doctest/doctest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gradsieve/core/power.hpp>
#include <gradsieve/core/random.hpp>

namespace gs = gradsieve;

namespace {

/// Number i of a fixed sequence in [-1, 1).
double uniform(std::uint64_t i) { return static_cast<double>(gs::mix(i) >> 11) * 0x1p-52 - 1; }

double relative_error(double value, long double exact) {
  if (exact == 0) return value == 0 ? 0 : DBL_MAX;
  return static_cast<double>(std::abs((value - exact) / exact));
}

/// All magnitudes, subnormals included, and numbers that approach 1 from both sides.
std::vector<double> positive_numbers() {
  std::vector<double> all{DBL_TRUE_MIN, DBL_MIN, 0.5, 1, 1 - DBL_EPSILON / 2, 1 + DBL_EPSILON, 1.4142, 2, 10, DBL_MAX};
  for (double x = DBL_TRUE_MIN; x < DBL_MIN; x *= 3) all.push_back(x);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    all.push_back(std::exp(709 * uniform(3 * i)));
    all.push_back(1 + 0.99 * uniform(3 * i + 1) * std::exp(18 * (uniform(3 * i + 2) - 1)));
  }
  return all;
}

}  // namespace

TEST_CASE("logarithm has a relative error below 6e-16") {
  double worst = 0;
  for (double const x : positive_numbers())
    worst = std::max(worst, relative_error(gs::exact::logarithm(x), std::log(static_cast<long double>(x))));
  CHECK(worst < 6e-16);
}

TEST_CASE("exponential has a relative error below 3e-16") {
  double worst = 0;
  auto const add = [&](double x) {
    worst = std::max(worst, relative_error(gs::exact::exponential(x), std::exp(static_cast<long double>(x))));
  };
  for (double const x : {-700.0, -1.0, -DBL_TRUE_MIN, 0.0, DBL_TRUE_MIN, 1.0, 700.0}) add(x);
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    add(700 * uniform(2 * i));
    add(uniform(2 * i + 1));
  }
  CHECK(worst < 3e-16);
}

TEST_CASE("power has a relative error below 6e-16 times |exponent * ln base|, or below 6e-16") {
  double worst = 0;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    double const base = std::exp(43 * uniform(2 * i));
    double const exponent = 16 * uniform(2 * i + 1);
    auto const expected = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
    double const scale = std::max(1.0, std::abs(exponent * std::log(base)));
    worst = std::max(worst, relative_error(gs::exact::power(base, exponent), expected) / scale);
  }
  CHECK(worst < 6e-16);
  CHECK(gs::exact::power(1, 1e9) == 1);
  CHECK(gs::exact::power(10, 0) == 1);
}

TEST_CASE("power_of_two and square_root are exact") {
  for (int n = -1022; n <= 1023; ++n) CHECK(gs::exact::power_of_two(n) == std::ldexp(1.0, n));
  for (int i = 0; i < 1000; ++i) CHECK(gs::exact::square_root(i * i) == i);
}
