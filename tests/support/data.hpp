// Data for the tests: laws that gradients follow, laws that break selectors, and an oracle that is slow and
// obvious.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/types.hpp>
#include <limits>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace data {

/// Seeded random numbers, the same on every machine and standard library.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_{seed * 0x9E37'79B9'7F4A'7C15u + 1} {}

  std::uint64_t bits() {
    state_ += 0x9E37'79B9'7F4A'7C15u;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return bits() % limit; }

  /// In (0, 1).
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }
  double gauss() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  double laplace() {
    double const size = -std::log(uniform());
    return (bits() & 1) != 0 ? size : -size;
  }
  double student3() {
    double const a = gauss();
    double const b = gauss();
    double const c = gauss();
    return gauss() / std::sqrt((a * a + b * b + c * c) / 3);
  }

 private:
  std::uint64_t state_;
};

enum class law {
  laplace,
  gauss,
  student3,
  layers,              // 64 layers, Laplace, scales over two decades
  error_feedback,      // an accumulator after some steps of top-1 %: its tail is cut off
  all_equal,           // one magnitude, both signs
  all_zero,            // both zeros
  one_spike,           // one entry that is not zero
  denormals,           // nothing but subnormal numbers
  zeros_and_smallest,  // +0, -0 and the smallest subnormal of both signs
  two_values,          // 1 and 2, alternating at random
  mostly_zeros,        // 90 % zeros, the rest Laplace
  alternating,         // scales 1 and 1e-6 by turns
  dense_end            // small noise, and one layer of large values at the end
};

inline constexpr std::array all_laws{
    law::laplace,    law::gauss,        law::student3,    law::layers,    law::error_feedback,
    law::all_equal,  law::all_zero,     law::one_spike,   law::denormals, law::zeros_and_smallest,
    law::two_values, law::mostly_zeros, law::alternating, law::dense_end};

inline std::string name(law which) {
  constexpr std::array<std::string_view, all_laws.size()> names{
      "laplace",   "gauss",     "student3",           "layers",     "error_feedback", "all_equal",   "all_zero",
      "one_spike", "denormals", "zeros_and_smallest", "two_values", "mostly_zeros",   "alternating", "dense_end"};
  return std::string{names[static_cast<std::size_t>(which)]};
}

// ---- The oracle ------------------------------------------------------------------------------------------

struct chosen {
  std::vector<gradsieve::index_type> indices;
  std::vector<float> values;
  friend bool operator==(chosen const&, chosen const&) = default;
};

/// The k entries of largest magnitude, ties to the smaller index, zeros never; in index order.
/// @pre no NaN
inline chosen top_k(std::span<float const> values, std::uint64_t k) {
  std::vector<gradsieve::index_type> order(values.size());
  std::iota(order.begin(), order.end(), gradsieve::index_type{0});
  k = std::min<std::uint64_t>(k, order.size());
  auto const nth = order.begin() + static_cast<std::ptrdiff_t>(k);
  auto const larger = [&](gradsieve::index_type a, gradsieve::index_type b) {
    float const x = std::fabs(values[a]);
    float const y = std::fabs(values[b]);
    return x != y ? x > y : a < b;
  };
  if (nth != order.end()) std::nth_element(order.begin(), nth, order.end(), larger);
  order.resize(k);
  std::erase_if(order, [&](gradsieve::index_type i) { return values[i] == 0.0f; });
  std::sort(order.begin(), order.end());
  chosen result{std::move(order), {}};
  for (auto const i : result.indices) result.values.push_back(values[i]);
  return result;
}

/// Number of elements of this magnitude or more.
inline std::uint64_t count_at_least(std::span<float const> values, float magnitude) {
  return static_cast<std::uint64_t>(
      std::count_if(values.begin(), values.end(), [&](float x) { return std::fabs(x) >= magnitude; }));
}

inline std::uint64_t count_nonzero(std::span<float const> values) {
  return static_cast<std::uint64_t>(std::count_if(values.begin(), values.end(), [](float x) { return x != 0.0f; }));
}

/// A density for which ceil(density * n) is k.
inline double density_for(std::uint64_t k, std::uint64_t n) {
  if (k == 0 || n == 0) return 0;
  return k >= n ? 1 : (static_cast<double>(k) - 0.5) / static_cast<double>(n);
}

/// Values in another format.
template <class T>
std::vector<T> as(std::span<float const> values) {
  std::vector<T> result;
  result.reserve(values.size());
  for (float const x : values) result.push_back(gradsieve::from_float<T>(x));
  return result;
}

// ---- The laws --------------------------------------------------------------------------------------------

/// n elements in `count` layers of about equal size, called "layer0", "layer1", ...
inline std::vector<gradsieve::layer> equal_layers(std::uint64_t n, std::uint64_t count) {
  std::vector<gradsieve::layer> layers;
  for (std::uint64_t i = 0; i < count; ++i)
    layers.push_back({"layer" + std::to_string(i), n * (i + 1) / count - n * i / count});
  return layers;
}

/// Gradients of consecutive steps: a fixed drift of each element, 0.3 of the noise, and fresh noise.
inline std::vector<float> drifting(std::uint64_t n, std::uint64_t step, std::uint64_t seed) {
  generator drift{seed};
  generator noise{seed * 1000003 + step + 1};
  std::vector<float> values(n);
  for (float& x : values) x = static_cast<float>(0.3 * drift.gauss() + noise.laplace());
  return values;
}

/// n values of a law.
inline std::vector<float> make(law which, std::uint64_t n, std::uint64_t seed = 1) {
  generator random{seed * 131 + static_cast<std::uint64_t>(which)};
  std::vector<float> values(n);
  auto const fill = [&](auto const& one) {
    for (std::uint64_t i = 0; i < n; ++i) values[i] = static_cast<float>(one(i));
  };
  auto const sign = [&] { return (random.bits() & 1) != 0 ? 1.0 : -1.0; };
  constexpr double smallest = std::numeric_limits<float>::denorm_min();
  switch (which) {
    case law::laplace:
      fill([&](std::uint64_t) { return 0.01 * random.laplace(); });
      break;
    case law::gauss:
      fill([&](std::uint64_t) { return 0.01 * random.gauss(); });
      break;
    case law::student3:
      fill([&](std::uint64_t) { return 0.01 * random.student3(); });
      break;
    case law::layers: {
      std::array<double, 64> scales;
      for (double& scale : scales) scale = std::pow(10.0, 2 * random.uniform() - 3);
      fill([&](std::uint64_t i) { return scales[i * 64 / n] * random.laplace(); });
      break;
    }
    case law::error_feedback:
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto const gradient = drifting(n, step, seed);
        for (std::uint64_t i = 0; i < n; ++i) values[i] += gradient[i];
        if (step < 3)
          for (auto const i : top_k(values, n / 100 + 1).indices) values[i] = 0;
      }
      break;
    case law::all_equal:
      fill([&](std::uint64_t) { return 0.5 * sign(); });
      break;
    case law::all_zero:
      fill([&](std::uint64_t) { return 0.0 * sign(); });
      break;
    case law::one_spike:
      if (n > 0) values[random.below(n)] = -3.0f;
      break;
    case law::denormals:
      fill([&](std::uint64_t) { return smallest * static_cast<double>(1 + random.below(1 << 20)) * sign(); });
      break;
    case law::zeros_and_smallest:
      fill([&](std::uint64_t) { return (random.below(3) == 0 ? smallest : 0.0) * sign(); });
      break;
    case law::two_values:
      fill([&](std::uint64_t) { return (random.below(4) == 0 ? 2.0 : 1.0) * sign(); });
      break;
    case law::mostly_zeros:
      fill([&](std::uint64_t) { return random.below(10) == 0 ? random.laplace() : 0.0; });
      break;
    case law::alternating:
      fill([&](std::uint64_t i) { return (i % 2 == 0 ? 1.0 : 1e-6) * random.laplace(); });
      break;
    case law::dense_end:
      fill([&](std::uint64_t i) { return (i >= n - n / 16 ? 1.0 : 1e-4) * random.gauss(); });
      break;
  }
  return values;
}

}  // namespace data
