// Built with --use_fast_math, which flushes subnormal numbers, fuses products and approximates quotients: a step has
// the host's bits all the same.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

/// Magnitudes down to the smallest of a float16, most below 2^-14, where it is subnormal.
std::vector<float> small_numbers(int rank, std::uint64_t step) {
  data::generator random{step * 31 + static_cast<std::uint64_t>(rank) + 1};
  std::vector<float> values(n);
  for (auto& x : values)
    x = static_cast<float>(std::ldexp(random.uniform() - 0.5, -static_cast<int>(random.below(24))));
  return values;
}

}  // namespace

TEST_CASE("steps of float16 and bfloat16 gradients") {
  gs::recipe const fading{.density = 0.03, .residual = gs::error_feedback{.decay = 0.9f}};
  gs::recipe const moving{.density = 0.03, .residual = gs::momentum_correction{.momentum = 0.7f}};
  auto const make = [](std::uint64_t step) { return small_numbers(0, step); };
  CHECK(same_as_host<gs::float16>(fading, layers, 4, make));
  CHECK(same_as_host<gs::bfloat16>(moving, layers, 4, make));
}

TEST_CASE("means over three ranks") {
  gs::recipe const gathered{.density = 0.03, .codec = gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}}};
  gs::recipe const led{.density = 0.03, .partitioner = gs::cyclic{}};
  gs::recipe const signs{.density = 0.03, .codec = gs::packed{.indices = gs::raw32{}, .values = gs::sign{.block = 7}}};
  same_on_ranks<gs::float16>(gathered, layers, 3, 3, small_numbers);
  same_on_ranks<float>(signs, layers, 2, 2, [](int rank, std::uint64_t step) {
    auto values = small_numbers(rank, step);
    for (auto& x : values) x *= 0x1p-122f;  // means below 2^-126
    return values;
  });
  same_on_ranks<float>(led, layers, 3, 3, small_numbers);
}
