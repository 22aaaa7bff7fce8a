// Workers that differ in speed and wait for each other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include <gradsieve/core/random.hpp>
#include <gradsieve/plan/trace.hpp>

namespace tools {

using namespace gradsieve;

/// The times of every layer on every worker: those of the trace, multiplied by a normal factor around 1, drawn for each
/// layer and pass; on one worker also by `straggler`.
struct slow_workers {
  int workers = 1;         ///< number of workers
  double jitter = 0;       ///< standard deviation of the factor
  double straggler = 1;    ///< factor of the slow worker
  std::uint64_t seed = 1;  ///< of the jitter

  /// Seconds of each layer of a pass, such that their sum up to each layer is that of the worker that is slowest up to
  /// there, as a collective waits for all. `time` is traced_layer::forward or traced_layer::backward; the forward pass
  /// begins with the last layer. Cost: O(layers), times workers with jitter.
  [[nodiscard]] std::vector<double> slowest(trace const& of, double traced_layer::* time, std::uint64_t pass) const {
    std::size_t const layers = of.count();
    std::vector<double> seconds(layers);
    if (!(jitter > 0)) {
      for (std::size_t l = 0; l < layers; ++l) seconds[l] = of[l].*time * straggler;
      return seconds;
    }
    bool const from_last = time == &traced_layer::forward;
    auto const layer = [&](std::size_t i) { return from_last ? layers - 1 - i : i; };
    for (int w = 0; w < workers; ++w) {
      auto const key = mix(seed + mix(pass * 0x1'0000'0000u + static_cast<std::uint64_t>(w)));
      double sum = 0;
      for (std::size_t i = 0; i < layers; ++i) {
        sum += of[layer(i)].*time * (w == 0 ? straggler : 1) * std::max(0.0, 1 + jitter * normal(key + 2 * i));
        seconds[layer(i)] = std::max(seconds[layer(i)], sum);
      }
    }
    for (std::size_t i = layers; i-- > 1;) seconds[layer(i)] -= seconds[layer(i - 1)];  // from sums to differences
    return seconds;
  }

 private:
  [[nodiscard]] static double normal(std::uint64_t name) {
    auto const uniform = [](std::uint64_t x) { return (static_cast<double>(mix(x) >> 11) + 0.5) * 0x1p-53; };
    return std::sqrt(-2 * std::log(uniform(name))) * std::cos(2 * std::numbers::pi * uniform(name + 1));
  }
};

}  // namespace tools
