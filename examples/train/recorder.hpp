// What accumulators look like: moments, histogram, distance to the laws that estimates of thresholds assume, and how
// alike the ranks' are.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <gradsieve/concepts/communicator.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>

namespace example {

/// One sample of numbers. Distances, thresholds and bins are in units of the mean magnitude, so that layers compare.
struct shape_of_values {
  static constexpr std::array<double, 5> thresholds{1, 2, 4, 8, 16};
  static constexpr int lowest_bin = -8;  ///< below 2^-8 mean magnitudes
  static constexpr std::size_t bins = 16;

  std::uint64_t count = 0;
  double zeros = 0;  ///< share
  double mean = 0;
  double deviation = 0;
  double mean_magnitude = 0;
  double skewness = 0;
  double kurtosis = 0;                   ///< 3 of a Gauss law, 6 of a Laplace law
  double largest = 0;                    ///< magnitude
  double to_laplace = 0;                 ///< earth mover's distance to the law of the same mean and mean deviation
  double to_gauss = 0;                   ///< to that of the same mean and standard deviation
  std::array<double, 5> above{};         ///< share of magnitudes above each threshold; of a Laplace law exp(-threshold)
  std::array<double, bins> histogram{};  ///< share of magnitudes in [2^i, 2^(i+1)); the first and last have the rest
};

namespace recorder_detail {

inline constexpr std::size_t places = 2048;  ///< quantiles that a distance is summed over

[[nodiscard]] inline double place(std::size_t i) { return (static_cast<double>(i) + 0.5) / places; }

/// Quantiles of the Gauss law of mean 0 and deviation 1.
[[nodiscard]] inline std::vector<double> const& gauss_quantiles() {
  static std::vector<double> const all = [] {
    std::vector<double> made;
    double low = -10;
    for (std::size_t i = 0; i < places; ++i) {
      double high = 10;
      for (int probe = 0; probe < 50; ++probe) {
        double const middle = (low + high) / 2;
        (std::erfc(-middle / std::sqrt(2.0)) / 2 < place(i) ? low : high) = middle;
      }
      made.push_back(low);
    }
    return made;
  }();
  return all;
}

}  // namespace recorder_detail

/// Measures a sample; numbers that are not finite are left out. Cost: a sort. Of an empty sample everything is 0.
[[nodiscard]] inline shape_of_values shape_of(std::span<float const> values) {
  using namespace recorder_detail;
  shape_of_values made;
  std::vector<double> sorted;
  for (float const value : values)
    if (gradsieve::is_finite(value)) sorted.push_back(static_cast<double>(value));
  if (sorted.empty()) return made;
  std::sort(sorted.begin(), sorted.end());
  auto const n = static_cast<double>(sorted.size());
  made.count = sorted.size();
  for (double const x : sorted) {
    made.mean += x / n;
    made.mean_magnitude += std::abs(x) / n;
    made.zeros += x == 0 ? 1 / n : 0;
  }
  made.largest = std::max(-sorted.front(), sorted.back());
  double square = 0, cube = 0, fourth = 0, scale = 0;
  for (double const x : sorted) {
    double const d = x - made.mean;
    square += d * d / n;
    cube += d * d * d / n;
    fourth += d * d * d * d / n;
    scale += std::abs(d) / n;
  }
  made.deviation = std::sqrt(square);
  if (square > 0) {
    made.skewness = cube / (square * made.deviation);
    made.kurtosis = fourth / (square * square);
  }
  if (made.mean_magnitude == 0) return made;
  auto const& gauss = gauss_quantiles();
  for (std::size_t i = 0; i < places; ++i) {
    double const u = place(i);
    double const x = sorted[static_cast<std::size_t>(u * n)];
    double const laplace = u < 0.5 ? std::log(2 * u) : -std::log(2 * (1 - u));
    made.to_laplace += std::abs(x - made.mean - scale * laplace) / places / made.mean_magnitude;
    made.to_gauss += std::abs(x - made.mean - made.deviation * gauss[i]) / places / made.mean_magnitude;
  }
  for (double const x : sorted) {
    double const unit = std::abs(x) / made.mean_magnitude;
    for (std::size_t t = 0; t < made.above.size(); ++t)
      made.above[t] += unit > shape_of_values::thresholds[t] ? 1 / n : 0;
    int const exponent = unit == 0 ? -1000 : std::ilogb(unit);
    made.histogram[static_cast<std::size_t>(
        std::clamp(exponent - shape_of_values::lowest_bin, 0, static_cast<int>(shape_of_values::bins) - 1))] += 1 / n;
  }
  return made;
}

/// How alike the ranks' vectors are. With one rank both are 1.
struct likeness {
  double cosine = 1;   ///< mean of all pairs
  double overlap = 1;  ///< share of the k largest magnitudes of one rank that are among those of another, likewise
};

/// Collective: two all-reduces of the vector's length. Of a zero vector the cosine is 0.
template <class Comm>
[[nodiscard]] likeness likeness_of(Comm const& comm, std::span<float const> mine, std::uint64_t k) {
  double const ranks = comm.size();
  if (ranks == 1) return {};
  double square = 0;
  for (float const x : mine) square += static_cast<double>(x) * x;
  auto sum = std::vector<float>(mine.begin(), mine.end());
  for (float& x : sum) x = square > 0 ? static_cast<float>(x / std::sqrt(square)) : 0;
  // The sum of unit vectors has the square P + P (P - 1) times their mean cosine.
  comm.all_reduce(gradsieve::host{}, std::span{sum}, gradsieve::reduction::sum);
  double both = 0;
  for (float const x : sum) both += static_cast<double>(x) * x;
  double own = square > 0 ? 1 : 0;
  comm.all_reduce(gradsieve::host{}, std::span{&own, 1}, gradsieve::reduction::sum);
  double const pairs = ranks * (ranks - 1);
  likeness made{(both - own) / pairs, 0};

  std::vector<std::size_t> order(mine.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  k = std::min<std::uint64_t>(k, mine.size());
  if (k == 0) return made;
  auto const last = order.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(order.begin(), last - 1, order.end(), [&](std::size_t a, std::size_t b) {
    float const x = std::abs(mine[a]), y = std::abs(mine[b]);
    return x != y ? x > y : a < b;
  });
  std::fill(sum.begin(), sum.end(), 0.0f);
  std::for_each(order.begin(), last, [&](std::size_t i) { sum[i] = 1; });
  comm.all_reduce(gradsieve::host{}, std::span{sum}, gradsieve::reduction::sum);
  double twice = 0;
  for (float const count : sum) twice += static_cast<double>(count) * (count - 1);
  made.overlap = twice / (pairs * static_cast<double>(k));
  return made;
}

}  // namespace example
