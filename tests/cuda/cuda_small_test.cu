// Small gradients, whose step is one launch: what it leaves has the bits of the step in several.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "gpu.cuh"

using namespace gpu;

/// One rank, whose all_gather throws while `broken`.
struct breaking : gs::self {
  bool const* broken;

  using gs::self::all_gather;
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    if (*broken) throw gs::communication_error("this transport breaks");
    gs::self::all_gather(where, mine, all);
  }
};

namespace {

/// Two compressors: one whose steps are one launch each; and one whose searches are asked to have a block, in steps of
/// several launches. Whether all that the steps leave is the same.
template <class T = float, class Recipe, class Make>
bool same_in_one_launch(Recipe const& recipe, gs::layout const& layers, std::uint64_t count, Make const& make,
                        std::uint64_t misalign = 0) {
  poisoned_memory memory;
  std::uint64_t const n = layers.size();
  gs::device const where{nullptr, &memory};
  gs::compressor one{where, layers, recipe};
  gs::compressor several{gs::device{nullptr, &memory, 1}, layers, recipe};
  array<T> const gradient{where, n, misalign};
  bool same = true;
  for (std::uint64_t step = 0; step < count; ++step) {
    gradient.put(data::as<T>(make(step)));
    entries const got{where, one.compress(gradient.span())};
    entries const expected{where, several.compress(gradient.span())};
    auto const report = one.report().get();
    auto const wanted = several.report().get();
    same = same && got == expected && report.selected == wanted.selected && report.budget == wanted.budget &&
           report.non_finite == wanted.non_finite && report.saturated == wanted.saturated &&
           report.thresholds == wanted.thresholds && report.step == wanted.step;
    CAPTURE(step);
    CHECK(got == expected);
    if (step % 2 == 1) same = same && steps::same_bits(one.state(), several.state());  // flushes what is pending
  }
  return same && steps::same_bits(one.state(), several.state());
}

template <class T = float, class Recipe>
bool same_in_one_launch(Recipe const& recipe, std::uint64_t n, data::law law = data::law::laplace,
                        std::uint64_t misalign = 0) {
  return same_in_one_launch<T>(
      recipe, gs::layout::flat(n), 3, [&](std::uint64_t step) { return data::make(law, n, step + 1); }, misalign);
}

/// Gradients whose scale jumps, so that candidates are too few, or all elements.
std::vector<float> jumping(std::uint64_t n, std::uint64_t step) {
  auto values = data::make(data::law::gauss, n, step + 1);
  for (float& x : values) x *= step % 2 == 0 ? 1.0f : 1e-3f * static_cast<float>(step * step * step);
  return values;
}

}  // namespace

TEST_CASE("small: sizes and densities, on aligned and misaligned gradients") {
  for (std::uint64_t const n : {1, 4095, 4097, 12'282})
    for (double const density : {0.0, 0.1, 1.0}) {
      CAPTURE(n);
      CAPTURE(density);
      CHECK(same_in_one_launch(gs::recipe{.density = density}, n, data::law::laplace, n % 3));
    }
}

TEST_CASE("small: the largest") {
  CHECK(same_in_one_launch(gs::recipe{.density = 0.01}, 262'144));
  CHECK(same_in_one_launch(gs::recipe{.density = 0.036, .selector = gs::laplacian{}}, 262'143));
}

TEST_CASE("small: laws") {
  for (auto const law : data::all_laws) {
    CAPTURE(data::name(law));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.03}, 9001, law));
  }
  for (auto const law : {data::law::laplace, data::law::two_values, data::law::mostly_zeros}) {
    CAPTURE(data::name(law));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.08, .selector = gs::laplacian{}}, 15'001, law));
  }
}

TEST_CASE("small: candidates that do not suffice, with and without layers that pass through") {
  for (auto const& layers : {gs::layout::flat(6001), steps::mixed_layers()}) {
    CAPTURE(layers.count());
    auto const make = [&](std::uint64_t step) {
      auto values = jumping(layers.size(), step);
      if (layers.count() > 1)  // a selector that looked at what passes through would find it
        for (std::size_t const each : {1, 5, 6})
          std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(layers.offset(each)), layers[each].size, 4.0f);
      return values;
    };
    CHECK(same_in_one_launch(gs::recipe{.density = 0.01}, layers, 4, make));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.1, .selector = gs::laplacian{}}, layers, 4, make));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.01, .selector = gs::laplacian{.warm = false}}, layers, 3, make));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.01, .selector = gs::fixed_threshold{.magnitude = 0.5f}}, layers, 4,
                             make));
    CHECK(same_in_one_launch(gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}}, layers, 4, make));
  }
}

TEST_CASE("small: formats, rotating owners, bad elements") {
  std::uint64_t const n = 10'007;
  CHECK(same_in_one_launch<gs::bfloat16>(gs::recipe{.density = 0.02}, n, data::law::laplace, 3));
  CHECK(same_in_one_launch<gs::bfloat16>(gs::recipe{.density = 0.05, .residual = gs::in_bfloat16<gs::error_feedback>{}},
                                         n));
  CHECK(same_in_one_launch(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}}, n));
  CHECK(same_in_one_launch(gs::recipe{.density = 0.02}, gs::layout::flat(n), 3, [&](std::uint64_t step) {
    auto values = data::make(data::law::laplace, n, step + 1);
    values[3] = std::numeric_limits<float>::infinity();
    values[n - 1] = std::numeric_limits<float>::quiet_NaN();
    values[1700] = 3e38f;
    return values;
  }));
}

TEST_CASE("small: entries that are not what is given up") {
  auto const make = [](int rank, std::uint64_t step) { return steps::gradient(5000, rank, step); };
  same_on_ranks(gs::recipe{.density = 0.02, .exchange = gs::index_union{}}, gs::layout::flat(5000), 2, 3, make);
}

TEST_CASE("small: layers that are skipped, and others that pass through and are clamped") {
  auto const layers = steps::mixed_layers();
  auto const make = [&](int rank, std::uint64_t step) {
    auto values = steps::gradient(layers.size(), rank, step);
    if (step == 0) std::fill_n(values.begin() + 1500, 16, 0.9f * gs::largest_value<float>);  // conv.bias
    return values;
  };
  auto const skipped = [](std::uint64_t step) {
    return step == 2 ? std::vector<unsigned char>{0, 1, 0, 0, 1, 0, 0, 0, 0} : no_layers(step);
  };
  same_on_ranks(gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}, layers, 2, 4, make, skipped);
}

TEST_CASE("small: ranks, and a step that another rank ends before it selects") {
  std::uint64_t const n = 5000;
  gs::recipe const recipe{.density = 0.02, .on_non_finite = gs::non_finite::fail};
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::staged const transport{comm};
    gs::compressor host{gs::host{.threads = 1}, gs::layout::flat(n), recipe};
    gs::compressor device{where, gs::layout::flat(n), recipe};
    array<float> const gradient{where, n};
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto expected = steps::gradient(n, comm.rank(), step);
      if (step == 2 && comm.rank() == 1) expected[7] = std::numeric_limits<float>::quiet_NaN();
      gradient.put(expected);
      auto const of_host = steps::ending([&] { host.exchange(comm, std::span{expected}); });
      auto const of_device = steps::ending([&] { device.exchange(transport, gradient.span()); });
      found.expect(of_host.empty() == of_device.empty(), "end of step " + std::to_string(step));
      found.expect(!of_host.empty() || steps::same_bits(gradient.get(), expected), "update of " + std::to_string(step));
      found.expect(device.step() == host.step(), "number of step " + std::to_string(step));
    }
    found.expect(steps::same_bits(steps::states_of(device), steps::states_of(host)), "states");
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("small: a handshake that breaks before the selection") {
  std::uint64_t const n = 5000;
  gs::recipe const recipe{.density = 0.02, .on_non_finite = gs::non_finite::fail};
  bool broken = false;
  breaking const transport{{}, &broken};
  gs::device const where{};
  gs::compressor one{where, gs::layout::flat(n), recipe};
  gs::compressor several{gs::device{nullptr, where.memory, 1}, gs::layout::flat(n), recipe};
  for (std::uint64_t step = 0; step < 4; ++step) {
    broken = step == 2;
    array<float> const gradient{where, steps::gradient(n, 0, step)};
    array<float> const same{where, steps::gradient(n, 0, step)};
    CHECK(steps::ending([&] { one.exchange(transport, gradient.span()); }).empty() != broken);
    CHECK(steps::ending([&] { several.exchange(transport, same.span()); }).empty() != broken);
    CHECK(one.step() == several.step());
    CHECK(steps::same_bits(gradient.get(), same.get()));
  }
  CHECK(steps::same_bits(one.state(), several.state()));
}

TEST_CASE("small: what a step that breaks has counted is not the next one's") {
  std::uint64_t const n = 5000;
  bool broken = true;
  breaking const transport{{}, &broken};
  gs::device const where{};
  gs::compressor one{where, gs::layout::flat(n), gs::recipe{.density = 0.02}};
  for (std::uint64_t step = 0; step < 3; ++step) {
    broken = step == 0;
    auto values = steps::gradient(n, 0, step);
    if (step != 1) values[7] = std::numeric_limits<float>::quiet_NaN();
    array<float> const gradient{where, values};
    CHECK(steps::ending([&] { one.exchange(transport, gradient.span()); }).empty() != broken);
    auto const report = one.report().get();  // of a step that selects nothing, what the host knows
    CHECK(report.non_finite == (step == 2 ? 1 : 0));
    CHECK(report.selected == (broken ? 0 : 100));
  }
}
