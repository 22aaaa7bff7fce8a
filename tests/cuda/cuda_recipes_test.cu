// The other policies on a device: the host's entries where they are exact, the promised number where they are not.
#include <doctest/doctest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto drifting(std::uint64_t n) {
  return [n](std::uint64_t step) { return data::drifting(n, step, 3); };
}

auto mixed() {
  return [n = steps::mixed_layers().size()](std::uint64_t step) { return steps::gradient(n, 0, step); };
}

/// Numbers of entries of 12 steps, twice; between these limits, and the same both times.
template <class Recipe>
void stays_within(Recipe const& recipe, double least, double most, data::law law) {
  std::uint64_t const n = 30'000;
  auto const run = [&] {
    gs::device const where{};
    gs::compressor device{where, gs::layout::flat(n), recipe};
    std::vector<entries> all;
    for (std::uint64_t step = 0; step < 8; ++step) {
      array<float> const gradient{where, data::make(law, n, step + 1)};
      all.emplace_back(where, device.compress(gradient.span()));
      CHECK(all.back().indices.size() >= least);
      CHECK(all.back().indices.size() <= most);
    }
    return all;
  };
  CHECK(run() == run());
}

}  // namespace

TEST_CASE("small: laplacian, exact, is the host's") {
  auto const recipe = gs::recipe{.density = 0.01, .selector = gs::laplacian{.count = gs::count_mode::exact}};
  for (auto const law : {data::law::laplace, data::law::all_equal, data::law::mostly_zeros, data::law::dense_end})
    CHECK(same_as_host(recipe, gs::layout::flat(20'000), 4,
                       [&](std::uint64_t step) { return data::make(law, 20'000, step + 1); }));
}

TEST_CASE("laplacian and hierarchical keep their promised numbers") {
  for (auto const law : {data::law::laplace, data::law::gauss, data::law::layers, data::law::two_values}) {
    CAPTURE(data::name(law));
    stays_within(gs::recipe{.density = 0.01, .selector = gs::laplacian{}}, 300, 375, law);
    stays_within(gs::recipe{.density = 0.01, .selector = gs::laplacian{.warm = false}}, 300, 375, law);
    stays_within(gs::recipe{.density = 0.01, .selector = gs::hierarchical{}}, 240, 300, law);
  }
}

TEST_CASE("small: a user's threshold, without a kernel of its own") {
  auto const recipe = gs::recipe{.density = 0.05, .selector = steps::above_mean{}};
  CHECK(same_as_host(recipe, gs::layout::flat(9999), 4, drifting(9999)));
  CHECK(same_as_host(recipe, steps::mixed_layers(), 3, mixed()));
}

TEST_CASE("small: residual stores") {
  auto const layers = steps::mixed_layers();
  CHECK(same_as_host(gs::recipe{.density = 0.03, .residual = gs::error_feedback{.decay = 0.5f}}, layers, 4, mixed()));
  CHECK(same_as_host(gs::recipe{.density = 0.03, .residual = gs::none{}}, layers, 3, mixed()));
  CHECK(same_as_host(gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}, layers, 5, mixed()));
}

TEST_CASE("a clipped gradient: the same to the rounding of its norm") {
  auto const layers = steps::mixed_layers();
  auto const recipe = gs::recipe{.density = 0.03, .residual = gs::momentum_correction{.masking = false, .clip = 2}};
  gs::device const where{};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto const values = mixed()(step);
    array<float> const gradient{where, values};
    host.compress(values);
    device.compress(gradient.span());
  }
  auto const a = steps::states_of(host);
  auto const b = steps::states_of(device);
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
  CHECK(worst < 1e-6);
}

TEST_CASE("small: layers that are selected from separately") {
  auto const recipe = gs::recipe{.density = 0.02, .partitioner = gs::layerwise{}};
  CHECK(same_as_host(recipe, steps::mixed_layers(), 4, mixed()));
  CHECK(same_as_host(recipe, gs::layout{data::equal_layers(20'011, 700)}, 2, drifting(20'011)));
  gs::layout const few_and_many{{"a", 150'001}, {"b", 17}, {"b.bias", 3}, {"c", 5000}};
  CHECK(same_as_host(recipe, few_and_many, 2, drifting(few_and_many.size())));
}

TEST_CASE("small: deft decides in the stream what it decides on the host") {
  auto const recipe = gs::recipe{.density = 0.02, .partitioner = gs::deft{}};
  CHECK(same_as_host(recipe, steps::mixed_layers(), 5, mixed()));
  auto published = recipe;
  published.partitioner = {.sharing = gs::deft_sharing::by_fragment, .rotate_every = 1};
  CHECK(same_as_host(published, steps::mixed_layers(), 5, mixed()));
  auto const band =
      gs::recipe{.density = 0.02, .selector = gs::laplacian{.count = gs::count_mode::exact}, .partitioner = gs::deft{}};
  CHECK(same_as_host(band, gs::layout{data::equal_layers(20'011, 50)}, 3, drifting(20'011)));
}

TEST_CASE("a density that changes from step to step") {
  auto const ramp = gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 5};
  CHECK(same_as_host(gs::recipe{.density = ramp}, gs::layout::flat(8192), 8, drifting(8192)));
  CHECK(same_as_host(gs::recipe{.density = ramp, .partitioner = gs::deft{}}, steps::mixed_layers(), 8, mixed()));
}
