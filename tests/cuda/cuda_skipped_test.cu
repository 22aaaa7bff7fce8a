// Layers that nothing is selected from, on a device: skipped ones, and those that pass through and are clamped.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gradsieve/published.cuh>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();
using mask = std::vector<unsigned char>;

/// Other layers in most steps, the same twice, none and all.
mask skipped(std::uint64_t step) {
  switch (step) {
    case 1: return {0, 1, 0, 0, 1, 0, 0, 0, 0};
    case 2: return {0, 1, 0, 0, 1, 0, 0, 0, 0};
    case 3: return {1, 0, 1, 1, 0, 1, 1, 1, 1};
    case 5: return mask(9, 1);
    default: return {};
  }
}

template <class T = float, class Recipe>
void same(Recipe const& recipe, int ranks) {
  gpu::same_on_ranks<T>(
      recipe, layers, ranks, 7, [](int rank, std::uint64_t step) { return steps::gradient(n, rank, step); }, skipped);
}

}  // namespace

TEST_CASE("skipped layers: the host's bits") {
  SUBCASE("whole, gather, momentum") { same(gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}, 2); }
  SUBCASE("deft, index_union") { same(gs::recipe{.density = 0.5, .partitioner = gs::deft{}}, 3); }
  SUBCASE("random_k, shared_choice") {
    same(gs::recipe{.density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}}, 2);
  }
  SUBCASE("adacomp, layerwise") {
    same(gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}}, 2);
  }
}

TEST_CASE("a segment that is sent in full and is cut by many skipped layers") {
  std::vector<gs::layer> many;
  for (int i = 0; i < 40; ++i) many.push_back({"a" + std::to_string(i), 50});
  auto const every_second = [](std::uint64_t step) {
    mask chosen(40);
    for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i] = (i + step) % 2 == 0 ? 1 : 0;
    return chosen;
  };
  gpu::same_on_ranks<float>(
      gs::recipe{.density = 1}, gs::layout{many}, 2, 3,
      [](int rank, std::uint64_t step) { return steps::gradient(2000, rank, step); }, every_second);
}

TEST_CASE("what passes through and is clamped is not selected from, skipped layers or not") {
  auto const huge = [](int, std::uint64_t step) {
    std::vector<float> values(n, step == 0 ? 1e35f : 0.0f);
    for (std::size_t i = 1500; i < 1516 && step == 0; ++i) values[i] = 0.9f * gs::largest_value<float>;
    return values;
  };
  auto const skip = [](std::uint64_t step) { return step == 2 ? mask{0, 1, 0, 0, 1, 0, 0, 0, 0} : mask{}; };
  gs::recipe const momentum{.density = 0.03, .residual = gs::momentum_correction{}};
  gpu::same_on_ranks<float>(momentum, layers, 2, 5, huge, skip);
  gpu::same_on_ranks<float>(gs::recipe{.density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}},
                            layers, 2, 5, huge, skip);
}

TEST_CASE("ranks that skip different layers all throw, nothing is given up, and a graph repeats its own") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::compressor device{where, layers, gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}};
    array<float> const gradient{where, n};
    for (std::uint64_t step = 0; step < 3; ++step) {
      gradient.put(steps::gradient(n, comm.rank(), step));
      auto const mine = step == 1 && comm.rank() == 1 ? mask{1, 0, 0, 0, 0, 0, 0, 0, 0} : mask{};
      auto const how = steps::ending(
          [&] { static_cast<void>(device.exchange(gs::staged{comm}, gradient.span(), mine).get()); });
      found.expect(step == 1 ? steps::contains(how, "mismatch") && steps::contains(how, "the layers that they skip")
                             : how.empty(),
                   "step " + std::to_string(step) + ": " + how);
    }
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");

  stream const own;
  gs::device const where{own};
  gs::compressor device{where, layers, gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}};
  array<float> const gradient{where, steps::gradient(n, 0, 0)};
  device.exchange(gs::self{}, gradient.span(), skipped(1));
  std::string refused;
  graph const step{own, [&] {
                     refused = steps::ending([&] { device.exchange(gs::self{}, gradient.span(), skipped(3)); });
                     device.exchange(gs::self{}, gradient.span(), skipped(1));
                   }};
  CHECK(steps::contains(refused, "skips other layers"));
  gradient.put(steps::gradient(n, 0, 1));
  step.launch();
  auto const update = gradient.get();
  bool zero = true;
  for (std::size_t i = 0; i < n; ++i)  // in conv.bias and fc.weight
    zero = zero && (update[i] == 0 || !((i >= 1500 && i < 1516) || (i >= 1517 && i < 4417)));
  CHECK(zero);
}
