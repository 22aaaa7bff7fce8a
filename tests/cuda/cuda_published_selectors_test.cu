// The selectors to compare with, on a device: the host's entries and sums, to the bit.
#include <doctest/doctest.h>

#include <cstdint>

#include <gradsieve/published.cuh>

#include "gpu.cuh"

using namespace gpu;

namespace {

/// Steps of `selector` equal the host's, whole and by layers, on few and many distinct magnitudes.
template <class Selector>
void compare(Selector selector) {
  std::uint64_t const n = 60'001;
  for (auto const law : {data::law::laplace, data::law::two_values, data::law::mostly_zeros})
    for (double const density : {0.001, 0.2}) {
      CAPTURE(data::name(law));
      CAPTURE(density);
      auto const make = [&](std::uint64_t step) { return data::make(law, n, step + 1); };
      gs::recipe const flat{.density = density, .selector = selector};
      CHECK(same_as_host(flat, gs::layout::flat(n), 3, make));
      gs::recipe const layers{.density = density, .selector = selector, .partitioner = gs::layerwise{}};
      CHECK(same_as_host(layers, gs::layout{data::equal_layers(n, 3)}, 2, make));
    }
}

}  // namespace

TEST_CASE("trimmed") { compare(gs::trimmed{}); }

TEST_CASE("threshold_search") { compare(gs::threshold_search{}); }

TEST_CASE("ldte") { compare(gs::ldte{}); }

TEST_CASE("sidco") {
  compare(gs::sidco{});
  compare(gs::sidco{.stages = 1, .tolerance = 0});
}

TEST_CASE("micro: a part of the gradient for each rank, another one in each step") {
  auto const laplace = [](int rank, std::uint64_t step) {
    return steps::gradient(steps::mixed_layers().size(), rank, step);
  };
  gs::recipe const exact{.density = 0.03, .partitioner = gs::micro{}};
  gs::recipe const counted{.density = 0.03, .selector = gs::sidco{}, .partitioner = gs::micro{}};
  for (int const ranks : {1, 3}) {
    same_on_ranks<float>(exact, steps::mixed_layers(), ranks, 5, laplace);
    same_on_ranks<float>(counted, steps::mixed_layers(), ranks, 4, laplace);
  }
}

TEST_CASE("random_k, with messages and with sums alone") {
  compare(gs::random_k{.seed = 5});
  auto const laplace = [](int rank, std::uint64_t step) {
    return steps::gradient(steps::mixed_layers().size(), rank, step);
  };
  gs::recipe const shared{.density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}};
  for (int const ranks : {1, 3}) same_on_ranks<float>(shared, steps::mixed_layers(), ranks, 4, laplace);
}

TEST_CASE("fixed_threshold: few, some and all of the entries") {
  compare(gs::fixed_threshold{.magnitude = 3});
  compare(gs::fixed_threshold{.magnitude = 0.1f});
  compare(gs::fixed_threshold{});
}
