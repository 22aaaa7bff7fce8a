// Measured costs of collectives and exchanges on a communicator.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/plan/fit.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Options of a measurement. Bytes are those of binary32 gradients.
struct measure_options {
  std::uint64_t smallest = 64;                      ///< bytes
  std::uint64_t largest = std::uint64_t{16} << 20;  ///< at least the largest group that is planned, if time allows
  int per_octave = 1;                               ///< sizes for each doubling
  int passes = 5;                                   ///< how often each size is measured, at most
  double seconds = 5;                               ///< limit; a pass or size that would exceed it is not begun

  /// @throws invalid_argument unless 4 <= smallest <= largest < 2^33, 1 <= per_octave <= 16, 1 <= passes <= 1000,
  /// seconds in [0, 86400].
  void check() const {
    require_between("largest size to measure, in bytes,", static_cast<double>(largest), 4, 0x1p33);
    require_between("smallest size to measure, in bytes,", static_cast<double>(smallest), 4,
                    static_cast<double>(largest));
    require_between("sizes for each doubling", per_octave, 1, 16);
    require_between("passes of a measurement", passes, 1, 1000);
    require_between("seconds for a measurement", seconds, 0, 86400);
  }
};

namespace detail {

/// Sizes from the smallest to the largest, evenly spaced on a logarithmic scale, multiples of 4.
[[nodiscard]] inline std::vector<std::uint64_t> sizes_of(measure_options const& options) {
  std::vector<std::uint64_t> sizes;
  for (int i = 0;; ++i) {
    double const size = static_cast<double>(options.smallest) * std::exp2(static_cast<double>(i) / options.per_octave);
    auto const whole = static_cast<std::uint64_t>(std::round(size)) / 4 * 4;
    if (whole >= options.largest) break;
    if (sizes.empty() || whole > sizes.back()) sizes.push_back(whole);
  }
  if (auto const last = options.largest / 4 * 4; sizes.empty() || last > sizes.back()) sizes.push_back(last);
  return sizes;
}

}  // namespace detail

/// Measures and fits the cost of a collective. `prepare(bytes)` returns a callable that makes one collective call of
/// that size; if it returns a double, that counts as its seconds, otherwise it is timed. A sample begins with a barrier
/// and is the longest time of all ranks; each size counts with its median. The first pass goes up from the smallest
/// size, as far as the time allows, and warms up; every other pass has an order of its own. The callables are kept
/// until the end. The link should be idle otherwise. Collective: all ranks pass the same options and get rank 0's fit.
/// Allocates. @throws invalid_argument for the options; exceptions of the transport and of the callable.
template <communicator Comm, std::invocable<std::uint64_t> Prepare>
[[nodiscard]] affine_fit measure_cost(Comm const& comm, Prepare const& prepare, measure_options const& options = {}) {
  static_assert(has_all_reduce<Comm, host, double> && has_broadcast<Comm, host>,
                "this communicator needs all_reduce for double, and broadcast");
  options.check();
  using clock = std::chrono::steady_clock;
  auto const longest = [&](double seconds) {
    comm.all_reduce(host{}, std::span{&seconds, 1}, reduction::max);
    return seconds;
  };
  double spent = 0;  // the same on all ranks
  auto const sample = [&](auto& run) {
    (void)longest(0);  // a barrier
    auto const start = clock::now();
    double own = 0;
    if constexpr (std::same_as<decltype(run()), double>)
      own = run();
    else
      run();
    double const taken = longest(std::chrono::duration<double>(clock::now() - start).count());
    spent += taken;
    if constexpr (std::same_as<decltype(run()), double>) return std::max(longest(own), 1e-9);
    return std::max(taken, 1e-9);  // a clock may stand still
  };

  auto const sizes = detail::sizes_of(options);
  std::vector<std::invoke_result_t<Prepare const&, std::uint64_t>> runs;
  std::vector<std::vector<double>> taken;
  for (auto const size : sizes) {
    // Two calls of this size, each at most twice as long as at the previous size.
    if (!taken.empty() && spent + 4 * taken.back().front() > options.seconds) break;
    runs.push_back(prepare(size));
    (void)sample(runs.back());
    taken.push_back({sample(runs.back())});
  }
  std::vector<std::size_t> order(taken.size());
  for (std::uint64_t pass = 1; pass < static_cast<std::uint64_t>(options.passes); ++pass) {
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix(64 * pass + i) % i]);
    for (auto const i : order) {
      if (spent + 2 * taken[i].front() > options.seconds) continue;
      taken[i].push_back(sample(runs[i]));
    }
  }

  std::vector<measured_point> points;
  for (std::size_t i = 0; i < taken.size(); ++i) points.push_back({sizes[i], median(taken[i])});
  auto fit = fit_affine(std::move(points));
  std::array<double, 4> first{fit.cost.a, fit.cost.b, fit.r2, fit.max_error};
  comm.broadcast(host{}, std::as_writable_bytes(std::span{first}), 0);
  fit.cost = {first[0], first[1]};
  fit.r2 = first[2];
  fit.max_error = first[3];
  return fit;
}

/// Measures the all-reduce of a binary32 gradient in host memory; see measure_cost(). Collective.
template <communicator Comm>
[[nodiscard]] affine_fit measure_all_reduce(Comm const& comm, measure_options const& options = {}) {
  static_assert(has_all_reduce<Comm, host, float>, "this communicator needs all_reduce for float");
  auto const prepare = [&](std::uint64_t bytes) {
    return [&, values = std::vector<float>(bytes / 4)]() mutable {
      comm.all_reduce(host{}, std::span{values}, reduction::sum);
    };
  };
  return measure_cost(comm, prepare, options);
}

/// Measures the exchange() of the object that make(layout) returns, such as a compressor, for gradients of noise of
/// this many bytes, with its selection and update; see measure_cost(). Collective.
template <communicator Comm, std::invocable<layout const&> Make>
[[nodiscard]] affine_fit measure_exchange(Comm const& comm, Make const& make, measure_options const& options = {}) {
  auto const prepare = [&](std::uint64_t bytes) {
    auto const n = bytes / 4;
    std::vector<float> noise(n);
    for (std::uint64_t i = 0; i < n; ++i) {
      auto const bits = mix(i * static_cast<std::uint64_t>(comm.size()) + static_cast<std::uint64_t>(comm.rank()));
      float const uniform = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
      noise[i] = bits % 2 == 0 ? std::log(uniform) : -std::log(uniform);  // Laplace
    }
    // Each call's update is the gradient of the next one: what stays in a residual is sufficient noise.
    return [&, gradient = std::move(noise), exchange = make(layout::flat(n))]() mutable {
      exchange.exchange(comm, std::span{gradient});
    };
  };
  return measure_cost(comm, prepare, options);
}

}  // namespace gradsieve
