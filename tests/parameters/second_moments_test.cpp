// Factors and norms of the mean gradient from samples: near the truth, the same on all ranks, and no more than asked
// for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/parameters.hpp>

#include "allocations.hpp"
#include "parameters.hpp"

using namespace parameters;

namespace {

gs::layout layers() {
  return {{"signal", 30'000}, {"noise", 50'000}, {"none", 0}, {"zero", 40}, {"even", 9'000}, {"one", 1}};
}

/// "signal" is the same on all ranks, "noise" is not, "even" is half of each.
std::vector<float> gradient_of(int rank, std::uint64_t step) {
  data::generator same{step + 1};
  data::generator own{1000 * (step + 1) + static_cast<std::uint64_t>(rank)};
  std::vector<float> made(layers().size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    auto const s = static_cast<float>(same.gauss());
    auto const n = static_cast<float>(own.gauss());
    made[i] = i < 30'000 ? s : i < 80'000 ? 0.1f * n : i < 80'040 ? 0.0f : s + n;
  }
  return made;
}

/// Options that differ from these in one each.
std::vector<gs::moment_options> other_options(gs::moment_options const& from) {
  std::vector<gs::moment_options> all(5, from);
  all[0].density /= 2;
  all[1].window = 5;
  all[2].every += 1;
  all[3].norms = !from.norms;
  all[4].seed += 1;
  return all;
}

}  // namespace

TEST_CASE("factors are what the mean gradient has of own squares, within 1 / P and 1") {
  for (int const world : {1, 2, 4}) {
    CAPTURE(world);
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      gs::second_moments moments{here, layers()};
      for (auto const each : moments.factors()) found.expect(each == 1.0f, "a factor of nothing is not 1");
      for (std::uint64_t step = 0; step < 60; ++step) moments.measure(comm, gradient_of(comm.rank(), step));
      auto const f = moments.factors();
      float const least = 1.0f / static_cast<float>(world);
      found.expect(f[0] > 0.999f, "signal: " + std::to_string(f[0]));
      found.expect(f[1] >= least && f[1] < 1.15f * least, "noise: " + std::to_string(f[1]));
      found.expect(f[3] == 1.0f, "zero: " + std::to_string(f[3]));
      found.expect(std::abs(f[4] - (1 + least) / 2) < 0.08f, "even: " + std::to_string(f[4]));
      std::vector<float> all(at(world) * f.size());
      comm.all_gather(here, std::as_bytes(f), std::as_writable_bytes(std::span{all}));
      for (std::size_t i = 0; i < all.size(); ++i) found.expect(all[i] == f[i % f.size()], "ranks have other factors");
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

TEST_CASE("norm() is about the mean gradient's, and all ranks clip to it alike") {
  auto const said = on_ranks(4, [&](communicator comm) {
    findings found;
    gs::second_moments moments{here, layers()};
    for (std::uint64_t step = 0; step < 60; ++step) {
      auto gradient = gradient_of(comm.rank(), step);
      moments.measure(comm, gradient);
      if (step < 20) continue;
      auto mean = gradient;
      comm.all_reduce(here, std::span{mean}, gs::reduction::sum);
      double squares = 0;
      for (float const x : mean) squares += static_cast<double>(x) * static_cast<double>(x) / 16;
      auto const truth = std::sqrt(squares);
      found.expect(std::abs(static_cast<double>(moments.norm()) / truth - 1) < 0.03,
                   "norm: " + std::to_string(moments.norm()) + " for " + std::to_string(truth));
      auto clipped = gradient;
      moments.clip(clipped, 1.0f);
      found.expect(std::abs(clipped[7] * moments.norm() / gradient[7] - 1) < 1e-5f, "clipped by something else");
      moments.clip(gradient, 1e6f);
      found.expect(gradient[7] * 1.0f != clipped[7], "clipped without need");
    }
    float own = moments.norm();
    float largest = own;
    comm.all_reduce(here, std::span{&largest, 1}, gs::reduction::max);
    found.expect(own == largest, "ranks have other norms");
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE_TEMPLATE("half precision: exact where a norm is", T, gs::float16, gs::bfloat16) {
  std::vector<T> gradient(2000, gs::from_float<T>(0.5f));
  gs::second_moments moments{here, gs::layout::flat(2000)};
  moments.measure(gs::self{}, gradient);
  CHECK(moments.norm() == doctest::Approx(std::sqrt(500.0)));
  CHECK(moments.factors()[0] == 1.0f);
  moments.clip(gradient, moments.norm() / 4);
  CHECK(gs::to_float(gradient[1999]) == doctest::Approx(0.125));
}

TEST_CASE("a checkpoint goes on with the same bits; damaged ones are refused") {
  gs::moment_options const options{.density = 0.01, .every = 2, .seed = 5};
  gs::second_moments moments{here, layers(), options};
  gs::second_moments other{here, layers(), options};
  for (std::uint64_t step = 0; step < 7; ++step) moments.measure(gs::self{}, gradient_of(0, step));
  auto const saved = moments.state();
  other.restore(saved);
  CHECK(other.state() == saved);
  CHECK(other.step() == 7);
  for (std::uint64_t step = 7; step < 12; ++step) {
    moments.measure(gs::self{}, gradient_of(0, step));
    other.measure(gs::self{}, gradient_of(0, step));
    CHECK(moments.state() == other.state());
    CHECK(moments.norm() == other.norm());
  }
  auto const kept = other.state();
  for (std::size_t at = 0; at < saved.size(); ++at) {
    auto damaged = saved;
    damaged[at] ^= std::byte{16};
    CAPTURE(at);
    CHECK(contains(ending([&] { other.restore(damaged); }), "corrupt_state"));
    CHECK(contains(ending([&] { other.restore(std::span{saved}.first(at)); }), "corrupt_state"));
  }
  gs::second_moments elsewhere{here, gs::layout::flat(10), options};
  CHECK(contains(ending([&] { elsewhere.restore(saved); }), "moments' state belongs to another layout"));
  for (auto const& each : other_options(options)) {
    gs::second_moments differs{here, layers(), each};
    CHECK(contains(ending([&] { differs.restore(saved); }), "belongs to other options"));
    CHECK(differs.step() == 0);
  }
  CHECK(other.state() == kept);
}

TEST_CASE("what is not finite, and a rank without a gradient, change no factor") {
  auto const said = on_ranks(2, [&](communicator comm) {
    findings found;
    gs::second_moments moments{here, layers(), {.density = 1.0}};
    for (std::uint64_t step = 0; step < 3; ++step) moments.measure(comm, gradient_of(comm.rank(), step));
    auto const before = std::vector<float>(moments.factors().begin(), moments.factors().end());
    auto gradient = gradient_of(comm.rank(), 3);
    if (comm.rank() == 1) gradient[40'000] = not_a_number;
    moments.measure(comm, gradient);
    found.expect(moments.factors()[1] == before[1] && moments.factors()[4] != before[4], "NaN has changed its factor");
    found.expect(!gs::is_finite(moments.norm()), "a finite norm of NaN");
    auto clipped = gradient;
    moments.clip(clipped, 1e-3f);
    found.expect(clipped[0] == gradient[0], "clipped by a norm that is none");
    auto const state = moments.state();
    auto const how = ending([&] {
      moments.measure(comm, std::span{std::as_const(gradient)}.first(comm.rank() == 0 ? 5 : gradient.size()));
    });
    found.expect(comm.rank() == 0 ? contains(how, "has 5 elements") : how.empty(), how);
    found.expect(std::equal(state.begin() + 56, state.end(), moments.state().begin() + 56),
                 "no gradient has changed it");
    moments.measure(comm, gradient_of(comm.rank(), 4));
    found.expect(gs::is_finite(moments.norm()), "it does not recover");
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("what is sent: samples in each step that measures, norms in each if they are wanted") {
  auto const count = layers().count();
  auto const sent = [&](gs::moment_options options, int steps) {
    traffic moved;
    gs::threads::run(1, [&](communicator comm) {
      gs::second_moments moments{here, layers(), options};
      for (int step = 0; step < steps; ++step) moments.measure(counting{{comm}, &moved}, gradient_of(0, 0));
    });
    return moved.sent / 4;
  };
  std::uint64_t const samples = 31 + 51 + 16 + 16 + 1;
  std::uint64_t const sums = 3 * count;  // of one kind
  std::uint64_t const met = 24;          // the first call compares the ranks
  CHECK(sent({}, 1) == met + samples + 2 * sums);
  CHECK(sent({.every = 3}, 4) == met + 2 * (samples + 2 * sums) + 2 * sums);
  CHECK(sent({.every = 3, .norms = false}, 4) == met + 2 * (samples + 2 * sums));
  CHECK(sent({.density = 1.0}, 1) == met + layers().size() + 2 * sums);
  CHECK(sent({.density = 0.0}, 1) == met + 3 * 16 + 16 + 1 + 2 * sums);
}

TEST_CASE("options that make no sense are refused") {
  auto const make = [](gs::moment_options options) {
    return ending([&] { gs::second_moments{here, layers(), options}; });
  };
  CHECK(contains(make({.density = 1.5}), "density is not in [0, 1]"));
  CHECK(contains(make({.density = static_cast<double>(not_a_number)}), "density is not in [0, 1]"));
  CHECK(contains(make({.window = 0}), "window or every is 0"));
  CHECK(contains(make({.every = 0}), "window or every is 0"));
  gs::second_moments moments{here, layers()};
  std::vector<float> gradient(layers().size());
  CHECK(contains(ending([&] { moments.clip(gradient, 0.0f); }), "a norm above 0"));
  auto const state = moments.state();
  auto const moved = std::move(moments);
  for (auto const& call : std::vector<std::function<void()>>{
           [&] { moments.measure(gs::self{}, gradient); }, [&] { (void)moments.factors(); },
           [&] { (void)moments.norm(); }, [&] { moments.clip(gradient, 1.0f); }, [&] { (void)moments.bytes(); },
           [&] { (void)moments.step(); }, [&] { (void)moments.layers(); }, [&] { (void)moments.options(); },
           [&] { (void)moments.state(); }, [&] { moments.restore(state); }})
    CHECK(contains(ending(call), "moved from"));
}

TEST_CASE("ranks that differ in layout, options or step: all throw, in the first call of a world") {
  gs::moment_options const usual{.density = 0.01, .every = 2};
  auto others = other_options(usual);
  others.push_back(usual);  // with another layout
  for (std::size_t i = 0; i <= others.size(); ++i) {
    CAPTURE(i);
    auto const said = on_ranks(2, [&](communicator comm) {
      bool const odd = comm.rank() == 1;
      bool const restored = i == others.size();
      gs::second_moments moments{here, odd && i + 1 == others.size() ? gs::layout::flat(layers().size()) : layers(),
                                 odd && !restored ? others[i] : usual};
      if (odd && restored) {
        gs::second_moments ahead{here, layers(), usual};
        ahead.measure(gs::self{}, gradient_of(0, 0));
        moments.restore(ahead.state());
      }
      return ending([&] { moments.measure(comm, gradient_of(comm.rank(), 0)); });
    });
    auto const part = i < others.size() - 1 ? "options" : i < others.size() ? "layout" : "step: restore()";
    for (auto const& each : said)
      CHECK(contains(each, std::string{"mismatch: gradsieve: the ranks' second_moments differ in their "} + part));
  }
}

TEST_CASE("gradients of any magnitude: the same factors, and norms that clip") {
  auto const trace = [&](float scale) {
    std::vector<float> all;
    auto const said = on_ranks(2, [&](communicator comm) {
      gs::second_moments moments{here, layers()};
      auto gradient = gradient_of(comm.rank(), 0);
      for (auto& x : gradient) x *= scale;
      moments.measure(comm, gradient);
      auto const norm = moments.norm();
      moments.clip(gradient, norm / 4);
      if (comm.rank() == 0) all.assign(moments.factors().begin(), moments.factors().end());
      if (comm.rank() == 0) all.insert(all.end(), {norm / scale, gradient[7] / scale});
      return std::string{};
    });
    return all;
  };
  auto const usual = trace(1.0f);
  CHECK(usual[layers().count() + 1] == doctest::Approx(gradient_of(0, 0)[7] / 4));
  for (float const scale : {0x1p-110f, 0x1p-80f, 0x1p-51f, 0x1p45f, 0x1p52f, 0x1p80f, 0x1p110f}) {
    CAPTURE(scale);
    auto const near = [](float a, float b) { return std::abs(a - b) <= 1e-6f * std::abs(b); };
    CHECK(std::ranges::equal(trace(scale), usual, near));
  }
  // Beyond the range of binary32: the norm is the largest number, and clipping knows better.
  std::vector<float> huge(10'000, 3e38f);
  gs::second_moments moments{here, gs::layout::flat(huge.size())};
  moments.measure(gs::self{}, huge);
  CHECK(moments.norm() == std::numeric_limits<float>::max());
  moments.clip(huge, 1.0f);
  CHECK(huge[9] == doctest::Approx(0.01));
}

TEST_CASE("no allocation in a step; the same bits for any number of threads and any vectors") {
  CHECK(allocations_are_counted());
  auto const trace = [](gs::host where) {
    gs::second_moments moments{where, layers(), {.density = 0.02}};
    auto gradient = gradient_of(0, 0);
    moments.measure(gs::self{}, gradient);
    auto const before = allocations.load();
    for (int step = 0; step < 3; ++step) moments.measure(gs::self{}, gradient);
    moments.clip(gradient, 1.0f);
    CHECK(allocations.load() == before);
    return hash(moments.state()) ^ hash(gradient);
  };
  auto const usual = trace({.threads = 1});
  CHECK(trace({.threads = 3}) == usual);
  CHECK(trace({.threads = 1, .simd_limit = gs::simd::portable}) == usual);
  CHECK(trace({.threads = 2, .simd_limit = gs::simd::avx2}) == usual);
}

TEST_CASE("Adam with noise: with factors the rate of the dense run is right") {
  double const dense = adam_loss(way::dense, 5.0f, 0.01f);
  double const without = adam_loss(way::parameters, 5.0f, 0.01f);
  double const with = adam_loss(way::with_factors, 5.0f, 0.01f);
  double const common = adam_loss(way::with_momentum, 5.0f, 0.01f);
  INFO("dense " << dense << ", without " << without << ", with " << with << ", and a common momentum " << common);
  CHECK(with < 1.1 * dense);
  CHECK(common < 1.1 * dense);
  CHECK(without > 2 * dense);
}
