// Laws of decaying magnitudes, fitted by their moments, as the stages of `sidco` use them.
#pragma once

#include <cmath>

#include <gradsieve/core/types.hpp>
#include <gradsieve/core/whole_sums.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The magnitudes from a threshold on, less the threshold.
struct exceedances {
  double count = 0;
  double mean = 0;
  double variance = 0;
  double mean_log = 0;  ///< of the magnitudes themselves, natural
};

/// Adds up what reaches `least_key`: how many, magnitudes, squares and, if wanted, logarithms. For add_up<4>().
template <bool Logs>
struct add_exceedance {
  key_type least_key;
  magnitude_units units;

  GRADSIEVE_INLINE GRADSIEVE_HD void operator()(float value, whole_sums<4>& to) const noexcept {
    key_type const key = magnitude_key(value);
    std::uint64_t const mask = 0 - std::uint64_t{key >= least_key ? 1u : 0u};  // no branch, for vector code
    to[0] += mask & 1;
    to[1] += mask & units.magnitude(key);
    to[2] += mask & units.square(key);
    if constexpr (Logs) to[3] += mask & log2_units(key);
  }

  /// @pre sums[0] > 0
  [[nodiscard]] GRADSIEVE_HD exceedances moments(whole_sums<4> const& sums, double above) const noexcept {
    auto const count = static_cast<double>(sums[0]);
    double const mean = static_cast<double>(sums[1]) / count * units.unit();
    double const square = static_cast<double>(sums[2]) / count * units.square_unit();
    double const log2 = static_cast<double>(sums[3]) / count / 1'048'576 - 256;
    return {count, mean - above, square - mean * mean, log2 * 0.6931471805599453};
  }
};

/// What the share `ratio` of an exponential law exceeds. @pre 0 < ratio <= 1
[[nodiscard]] GRADSIEVE_HD inline double exponential_quantile(exceedances const& of, double ratio) noexcept {
  return -of.mean * std::log(ratio);
}

/// The same of a generalised Pareto law of that mean and variance. @pre mean > 0
[[nodiscard]] GRADSIEVE_HD inline double pareto_quantile(exceedances const& of, double ratio) noexcept {
  double const spread = of.variance / (of.mean * of.mean);
  double const inverse = spread > 1e-3 ? 1 / spread : 1e3;
  double const shape = (inverse - 1) / 2;  // minus the usual one
  double const scale = of.mean * (inverse + 1) / 2;
  if (std::abs(shape) < 1e-6) return -scale * std::log(ratio);
  return scale * (1 - std::exp(shape * std::log(ratio))) / shape;
}

/// ln of the gamma function, within 1e-9. std::lgamma writes to a variable that all threads share. @pre x > 0
[[nodiscard]] GRADSIEVE_HD inline double log_gamma(double x) noexcept {
  double below = 1;
  for (; x < 8; x += 1) below *= x;
  double const y = 1 / (x * x);
  return (x - 0.5) * std::log(x) - x + 0.9189385332046727 + (1.0 / 12 - y * (1.0 / 360 - y / 1260)) / x -
         std::log(below);
}

/// The share of a gamma law of this shape, and scale 1, that exceeds x: 1 less a sum of positive terms.
/// @pre 0 < shape <= 50, 0 < x < 1000
[[nodiscard]] GRADSIEVE_HD inline double gamma_tail(double shape, double x) noexcept {
  double term = std::exp(shape * std::log(x) - x - log_gamma(shape + 1));
  double sum = term;
  for (int i = 1; i < 2000 && term > 1e-17; ++i) {
    term *= x / (shape + i);
    sum += term;
  }
  return 1 - sum;
}

/// The same as of the other laws, of a gamma law of that mean and mean logarithm. @pre mean > 0
[[nodiscard]] GRADSIEVE_HD inline double gamma_quantile(exceedances const& of, double ratio) noexcept {
  double const s = larger(std::log(of.mean) - of.mean_log, 1e-3);
  double const shape = clamped((3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s), 0.02, 50.0);
  double low = 0;
  double high = 2 * shape + 60;  // less than 1e-11 exceeds it
  for (int i = 0; i < 40; ++i) {
    double const middle = (low + high) / 2;
    (gamma_tail(shape, middle) > ratio ? low : high) = middle;
  }
  return of.mean / shape * high;
}

}  // namespace gradsieve::detail
