// Fits costs of collectives to measured times.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/plan/cost.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The measured time of a collective of one size.
using measured_point = table::point;

/// An affine cost fitted to measured times, and the quality of the fit.
struct affine_fit {
  affine cost;                         ///< the fit
  double r2 = 1;                       ///< fraction of the variance that it explains, relative to the measured times
  double max_error = 0;                ///< the largest |fitted - measured| / measured
  std::vector<measured_point> points;  ///< what was measured

  /// The measured times as a cost, made nondecreasing, for times that no straight line fits.
  [[nodiscard]] table measured() const { return table{points}.rising(); }

  friend std::ostream& operator<<(std::ostream& out, affine_fit const& it) {
    plain_output const plain{out};
    return out << it.cost << ", R^2 " << shortest{std::round(1e4 * it.r2) / 1e4} << ", largest error "
               << shortest{std::round(1e3 * it.max_error) / 10} << " % of " << it.points.size() << " sizes";
  }
};

/// The median; of an even number of values the mean of the middle two. @pre there are values. Cost: O(n).
[[nodiscard]] inline double median(std::vector<double> values) {
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

namespace detail {

/// Weighted least squares of a + b x, neither negative.
[[nodiscard]] inline affine least_squares(std::span<measured_point const> points, std::span<double const> weights) {
  double w = 0;
  double x = 0;
  double y = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    w += weights[i];
    x += weights[i] * static_cast<double>(points[i].bytes);
    y += weights[i] * points[i].seconds;
  }
  x /= w;
  y /= w;
  double xx = 0;
  double xy = 0;
  double through_zero_xx = 0;
  double through_zero_xy = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    double const at = static_cast<double>(points[i].bytes);
    xx += weights[i] * (at - x) * (at - x);
    xy += weights[i] * (at - x) * (points[i].seconds - y);
    through_zero_xx += weights[i] * at * at;
    through_zero_xy += weights[i] * at * points[i].seconds;
  }
  double const b = xx > 0 ? xy / xx : 0;
  if (!(b > 0)) return {y, 0};  // a mean of times, which are not negative
  if (double const a = y - b * x; a >= 0) return {a, b};
  return {0, through_zero_xy / through_zero_xx};
}

/// The value with half of the weight on either side.
[[nodiscard]] inline double weighted_median(std::vector<std::pair<double, double>> values_and_weights) {
  std::sort(values_and_weights.begin(), values_and_weights.end());
  double half = 0;
  for (auto const& each : values_and_weights) half += each.second / 2;
  for (auto const& each : values_and_weights)
    if ((half -= each.second) <= 0) return each.first;
  return values_and_weights.back().first;
}

/// The median slope of all pairs (Theil and Sen), weighted by the part of their times that a slope could explain; then
/// the median of the remainders. Neither is negative. A quarter of the points may lie anywhere.
[[nodiscard]] inline affine median_line(std::span<measured_point const> points) {
  std::vector<std::pair<double, double>> slopes{{0, 1e-9}};
  for (std::size_t i = 0; i < points.size(); ++i)
    for (std::size_t j = i + 1; j < points.size(); ++j) {
      auto const apart = static_cast<double>(points[j].bytes - points[i].bytes);
      slopes.push_back({(points[j].seconds - points[i].seconds) / apart,
                        apart / static_cast<double>(points[j].bytes + points[i].bytes)});
    }
  double const b = std::max(0.0, weighted_median(std::move(slopes)));
  std::vector<std::pair<double, double>> startups;
  for (auto const& each : points)
    startups.push_back({each.seconds - b * static_cast<double>(each.bytes), 1 / each.seconds});
  return {std::max(0.0, weighted_median(std::move(startups))), b};
}

}  // namespace detail

/// Fits a + b * bytes, neither negative, to measured times: starts from the median of the slopes of all pairs, then
/// does ten rounds of least squares of relative errors (equal weight for all sizes), with less weight for points far
/// from the line (Huber's, at 1.345 times the spread estimated from the median error). Cost: O(n^2 log n). @throws
/// invalid_argument unless there are points, bytes increase from at least 1, and seconds are positive and finite.
[[nodiscard]] inline affine_fit fit_affine(std::vector<measured_point> points) {
  if (points.empty()) throw invalid_argument("gradsieve: a fit to 0 measured times; the least is 1");
  for (std::size_t i = 0; i < points.size(); ++i) {
    require_between("seconds measured for " + std::to_string(points[i].bytes) + " bytes", points[i].seconds, 1e-12,
                    1e9);
    if (points[i].bytes <= (i == 0 ? 0 : points[i - 1].bytes))
      throw invalid_argument("gradsieve: " + std::to_string(points[i].bytes) + " bytes were measured after " +
                             std::to_string(i == 0 ? 0 : points[i - 1].bytes) + "; sizes rise");
  }

  affine_fit fit;
  fit.cost = detail::median_line(points);
  std::vector<double> errors(points.size());
  std::vector<double> weights(points.size());
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      double const fitted = fit.cost(points[i].bytes);
      errors[i] = std::abs(points[i].seconds - fitted) / fitted;
      weights[i] = 1 / (fitted * fitted);
    }
    double const limit = std::max(1.345 * 1.4826 * median(errors), 1e-9);
    for (std::size_t i = 0; i < points.size(); ++i) weights[i] *= errors[i] > limit ? limit / errors[i] : 1;
    fit.cost = detail::least_squares(points, weights);
  }

  double w = 0;
  double mean = 0;
  double left = 0;
  double all = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    weights[i] = 1 / (points[i].seconds * points[i].seconds);
    errors[i] = std::abs(fit.cost(points[i].bytes) - points[i].seconds) / points[i].seconds;
    w += weights[i];
    mean += weights[i] * points[i].seconds;
    left += errors[i] * errors[i];
  }
  mean /= w;
  for (std::size_t i = 0; i < points.size(); ++i)
    all += weights[i] * (points[i].seconds - mean) * (points[i].seconds - mean);
  fit.r2 = all > 0 ? 1 - left / all : 1;
  fit.max_error = *std::max_element(errors.begin(), errors.end());
  fit.points = std::move(points);
  return fit;
}

}  // namespace gradsieve
