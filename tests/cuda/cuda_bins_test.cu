// Selectors that choose in bins, on a device: the host's entries and states, to the bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

gs::layout const layers{{"conv1.weight", 1203}, {"conv1.bias", 16}, {"fc.weight", 9'030}, {"head", 7}, {"conv2", 500}};
auto const n = layers.size();

std::vector<float> gradient_of(std::uint64_t step) {
  auto values = steps::gradient(n, 0, step);
  std::fill(values.begin() + 2000, values.begin() + 3500, 0.0f);
  std::fill(values.begin() + 5000, values.begin() + 5600, 0.5f);
  return values;
}

auto const adaptive = gs::recipe{.density = 0.6, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
auto const own_rules =
    gs::recipe{.density = 0.6,
               .selector = gs::adacomp{.bins = {.rules = {{{"fc*", 7000}, {"*2", 64}}}, .otherwise = 20}, .factor = 3},
               .partitioner = gs::layerwise{},
               .residual = gs::momentum_correction{}};
auto const limitless = gs::recipe{.density = 1.0, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
auto const tight = gs::recipe{.density = 0.005, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
auto const chunks = gs::recipe{.density = 0.02, .selector = gs::chunked{}};
auto const short_chunks =
    gs::recipe{.density = 0.05, .selector = gs::chunked{.size = 37}, .partitioner = gs::layerwise{}};
auto const narrow = gs::recipe{.density = 0.5,
                               .selector = gs::adacomp{},
                               .partitioner = gs::layerwise{},
                               .residual = gs::in_bfloat16{gs::error_feedback{}}};

}  // namespace

TEST_CASE("small: adacomp and chunked are the host's") {
  CHECK(same_as_host(adaptive, layers, 4, gradient_of));
  CHECK(same_as_host<gs::float16>(own_rules, layers, 3, gradient_of, 1));
  CHECK(same_as_host(tight, layers, 3, gradient_of));
  CHECK(same_as_host(chunks, layers, 3, gradient_of));
  CHECK(same_as_host(short_chunks, layers, 3, gradient_of));
}

TEST_CASE("bins of many tiles, with ties, and more than there is room for") {
  std::uint64_t const size = (std::uint64_t{1} << 18) + 77;
  auto const rounded = [&](std::uint64_t step) {
    auto values = steps::gradient(size, 0, step);
    for (auto& each : values) each = static_cast<float>(static_cast<int>(each * 4)) / 4;
    return values;
  };
  auto const constant = [&](std::uint64_t) { return std::vector<float>(size, 1.0f); };
  CHECK(same_as_host(chunks, gs::layout::flat(size), 2, rounded));
  CHECK(same_as_host(adaptive, gs::layout::flat(size), 2, rounded));
  CHECK(same_as_host(tight, gs::layout::flat(size), 2, constant));
}

TEST_CASE("small: a captured step of bins is replayed") {
  stream const own;
  gs::device const where{own};
  gs::compressor host{gs::host{}, layers, adaptive};
  gs::compressor device{where, layers, adaptive};
  array<float> const gradient{where, gradient_of(0)};
  host.compress(gradient_of(0));
  device.compress(gradient.span());
  gs::device_selection sent;
  graph const step{own, [&] { sent = device.compress(gradient.span()); }};
  for (std::uint64_t s = 1; s < 4; ++s) {
    gradient.put(gradient_of(s));
    step.launch();
    CHECK(entries{where, sent} == entries{host.compress(gradient_of(s))});
  }
  CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
}

TEST_CASE("ranks that exchange what bins keep end with the host's bits") {
  auto const check = [](auto const& recipe, int ranks) {
    auto const said = steps::on_ranks(ranks, [&](steps::communicator comm) {
      steps::findings found;
      stream const own;
      gs::device const where{own};
      gs::compressor host{gs::host{.threads = 1}, layers, recipe};
      gs::compressor device{where, layers, recipe};
      array<float> const gradient{where, n};
      for (std::uint64_t s = 0; s < 3; ++s) {
        auto update = steps::gradient(n, comm.rank(), s);
        gradient.put(update);
        host.exchange(comm, update);
        device.exchange(gs::staged{comm}, gradient.span());
        found.expect(steps::same_bits(gradient.get(), update), "another update in step " + std::to_string(s));
      }
      found.expect(steps::same_bits(steps::states_of(device), steps::states_of(host)), "other states");
      return found.text();
    });
    for (auto const& each : said) CHECK(each == "");
  };
  check(adaptive, 3);
  check(limitless, 1);
}

TEST_CASE("small: bins of a residual in bfloat16") {
  gs::device const where{};
  gs::compressor device{where, layers, narrow};
  array<float> const gradient{where, gradient_of(1)};
  entries const sent{where, device.compress(gradient.span())};
  CHECK(sent.indices.size() > 100);
  CHECK(std::is_sorted(sent.indices.begin(), sent.indices.end()));
}
