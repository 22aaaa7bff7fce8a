// The ratio between a rank's own second moments and those of the mean gradient, layer by layer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Options of second_moments; the same on all ranks.
struct moment_options {
  double density = 0.001;     ///< fraction of each layer that is sampled, in [0, 1]; at least 16 elements, or all
  std::uint32_t window = 50;  ///< number of measurements in the average of the factors, at least 1
  std::uint32_t every = 1;    ///< measures in each step whose number is a multiple of it, at least 1
  bool norms = true;          ///< true to exchange norms in every step, for norm() and clip()
  std::uint64_t seed = 0;     ///< seed of the sampled positions

  /// @throws invalid_argument
  void check() const {
    if (!(is_finite(density) && density >= 0 && density <= 1))
      throw invalid_argument("gradsieve: second_moments' density is not in [0, 1]");
    if (window == 0 || every == 0) throw invalid_argument("gradsieve: second_moments' window or every is 0");
  }

  /// A hash of all options, which ranks and saved states compare.
  [[nodiscard]] std::uint64_t hash() const noexcept {
    fingerprint all;
    all.add(density);
    for (std::uint64_t const each : {std::uint64_t{window}, std::uint64_t{every}, std::uint64_t{norms}, seed})
      all.add(each);
    return all.value();
  }

  friend bool operator==(moment_options const&, moment_options const&) = default;
};

namespace detail {

/// The sample of one layer: `count` of its `size` elements, numbered from `first`.
struct layer_sample {
  std::uint64_t offset;  ///< of the layer
  std::uint64_t size;    ///< of the layer
  std::uint64_t first;   ///< number of the first sample
  std::uint64_t count;   ///< of samples

  /// Position in the gradient of a layer's sample j: one in each of `count` strips, the same on all ranks.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t place(std::uint64_t seed, std::uint64_t step, std::uint64_t layer,
                                                           std::uint64_t j) const noexcept {
    return offset + sample_places{size, count, mix(seed ^ mix(step ^ mix(layer)))}[j];
  }
};

/// The samples of all layers.
[[nodiscard]] inline std::vector<layer_sample> layer_samples(layout const& layers, double density) {
  std::vector<layer_sample> all;
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < layers.count(); ++i) {
    auto const size = layers[i].size;
    auto const wanted = static_cast<std::uint64_t>(density * static_cast<double>(size)) + 1;
    auto const count = std::min({size, std::max<std::uint64_t>(wanted, 16), std::uint64_t{1} << 20});
    all.push_back({layers.offset(i), size, first, count});
    first += count;
  }
  return all;
}

/// A sum of squares over the ranks in binary32: three numbers, one for each range of magnitudes, as one could not hold
/// those of large and small gradients; in units of a power of two that all ranks share.
struct shared_sum {
  static constexpr std::size_t numbers = 3;
  static constexpr double unit = 0x1p200;

  /// Writes a rank's summand: one number, in its range's place, and zeros. What is not finite is large. @pre x >= 0
  GRADSIEVE_HD static void write(double x, float* to) noexcept {
    auto const exponent = static_cast<int>(stored_bits(x) >> 52) - 1023;
    to[0] = narrowed(exponent < -100 ? exact::multiply(x, unit) : 0.0);
    to[1] = narrowed(exponent >= -100 && exponent <= 100 ? x : 0.0);
    to[2] = narrowed(exponent > 100 ? exact::divide(x, unit) : 0.0);
  }
  /// The sum, from the three summed numbers.
  [[nodiscard]] GRADSIEVE_HD static double read(float const* from) noexcept {
    return exact::add(exact::add(exact::divide(widened(from[0]), unit), widened(from[1])),
                      exact::multiply(widened(from[2]), unit));
  }
};

/// The measurements of one layer: averages of sums of squares over the same elements.
struct layer_moments {
  double of_mean = 0;          ///< of the mean gradient
  double of_own = 0;           ///< the mean over the ranks' own gradients
  std::uint64_t measured = 0;  ///< number of measurements

  /// Adds a measurement: the mean of the first `window` ones, then an exponential window. Ignores non-finite values.
  GRADSIEVE_HD void add(double mean_squares, double own_squares, std::uint32_t window) noexcept {
    if (!is_finite(mean_squares) || !is_finite(own_squares)) return;
    if (measured < window) ++measured;
    auto const share = static_cast<double>(measured);
    of_mean = exact::add(of_mean, exact::divide(exact::subtract(mean_squares, of_mean), share));
    of_own = exact::add(of_own, exact::divide(exact::subtract(own_squares, of_own), share));
  }

  /// Second moments of the mean gradient over a rank's own, within [1 / ranks, 1]; 1 before the first measurement.
  [[nodiscard]] GRADSIEVE_HD float factor(double ranks) const noexcept {
    if (!(of_own > 0)) return 1.0f;
    return narrowed(clamped(exact::divide(of_mean, of_own), exact::divide(1.0, ranks), 1.0));
  }
};

/// The factor of a gradient so that its norm is at most `most`; 1 if it is not finite: the caller then skips the step.
[[nodiscard]] GRADSIEVE_HD inline float clipping(double norm, float most) noexcept {
  if (!is_finite(norm) || !(norm > widened(most))) return 1.0f;
  return narrowed(exact::divide(widened(most), norm));
}

/// A norm as binary32; the largest number if it is finite and larger.
[[nodiscard]] inline float norm_of(double norm) noexcept {
  return narrowed(is_finite(norm) ? smaller(norm, widened(largest_value<float>)) : norm);
}

}  // namespace detail

}  // namespace gradsieve
