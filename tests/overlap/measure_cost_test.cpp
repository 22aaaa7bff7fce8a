// Costs fitted to measured times: known ones are found, outliers do not matter, all ranks hold the same.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/overlap/measure_cost.hpp>

#include "data.hpp"

namespace gs = gradsieve;

namespace {

std::vector<gs::measured_point> exact(gs::affine const& cost) {
  std::vector<gs::measured_point> points;
  for (std::uint64_t bytes = 64; bytes <= 1u << 24; bytes *= 2) points.push_back({bytes, cost(bytes)});
  return points;
}

bool near(double a, double b, double relative) { return std::abs(a - b) <= relative * std::abs(b); }

}  // namespace

TEST_CASE("a known cost is found again, from microseconds to hours") {
  for (double const scale : {1e-3, 1.0, 1e4})
    for (gs::affine const cost : {gs::affine{5e-4, 1e-9}, gs::affine{1e-3, 0}, gs::affine{0, 2e-9}}) {
      gs::affine const known{scale * cost.a, scale * cost.b};
      auto const fit = gs::fit_affine(exact(known));
      CAPTURE(known);
      CAPTURE(fit);
      CHECK(std::abs(fit.cost.a - known.a) <= 1e-9 * scale * 1e-3);
      CHECK(std::abs(fit.cost.b - known.b) <= 1e-9 * scale * 1e-9);
      CHECK(fit.max_error < 1e-9);
      CHECK(fit.r2 > (known.b > 0 ? 1 - 1e-9 : -1));
    }
}

TEST_CASE("noise of a few per cent moves the fit by as much, outliers by little more") {
  gs::affine const known{4e-4, 8e-10};
  data::generator random{3};
  auto points = exact(known);
  for (auto& each : points) each.seconds *= 1 + 0.03 * (2 * random.uniform() - 1);
  auto const noisy = gs::fit_affine(points);
  CHECK(near(noisy.cost.a, known.a, 0.03));
  CHECK(near(noisy.cost.b, known.b, 0.03));
  CHECK(noisy.max_error < 0.06);
  CHECK(noisy.r2 > 0.95);

  points[2].seconds *= 8;   // a small one
  points[15].seconds /= 5;  // a large one
  auto const hit = gs::fit_affine(points);
  CAPTURE(hit);
  CHECK(near(hit.cost.a, known.a, 0.06));
  CHECK(near(hit.cost.b, known.b, 0.12));
  CHECK(hit.max_error > 0.7);
}

TEST_CASE("three of 19 points may lie anywhere") {
  data::generator random{1};
  int off = 0;
  for (int run = 0; run < 4000; ++run) {
    gs::affine const known{std::exp(-9 + 4 * random.uniform()), std::exp(-21 + 3 * random.uniform())};
    auto points = exact(known);
    for (auto& each : points) each.seconds *= 1 + 0.05 * (2 * random.uniform() - 1);
    for (int outlier = 0; outlier < 3; ++outlier)
      points[random.below(points.size())].seconds *=
          random.uniform() < 0.5 ? 0.1 + 0.3 * random.uniform() : 3 + 10 * random.uniform();
    auto const fit = gs::fit_affine(points);
    bool good = true;
    for (std::uint64_t const bytes : {1u << 10, 1u << 18, 1u << 22})
      good = good && near(fit.cost(bytes), known(bytes), 0.15);
    off += good ? 0 : 1;
  }
  CHECK(off <= 25);  // of 4000: 17; 41 from a start that is not a median
}

TEST_CASE("no term is negative") {
  std::vector<gs::measured_point> const steeper{
      {1000, 1e-6}, {2000, 3e-6}, {4000, 7.2e-6}};  // a < 0 by a straight line
  auto const through_zero = gs::fit_affine(steeper);
  CHECK(through_zero.cost.a == 0);
  CHECK(near(through_zero.cost.b, 1.5e-9, 0.25));
  auto const falling = gs::fit_affine({{1000, 3e-3}, {2000, 2e-3}, {4000, 1e-3}});
  CHECK(falling.cost.b == 0);
  CHECK(falling.cost.a > 1e-3);
  CHECK(falling.cost.a < 3e-3);
  auto const one = gs::fit_affine({{1000, 3e-3}});
  CHECK(one.cost == gs::affine{3e-3, 0});
}

TEST_CASE("measured times are a cost that never falls") {
  auto const rising = gs::fit_affine({{10, 2.0}, {20, 1.5}, {40, 4.0}}).measured();
  CHECK_NOTHROW(rising.check());
  CHECK(rising(20) == 2.0);
  CHECK(rising(30) == doctest::Approx(3.0));
}

TEST_CASE("bad times and options are refused") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS((void)gs::fit_affine({}), "gradsieve: a fit to 0 measured times; the least is 1",
                       gs::invalid_argument);
  for (double const bad : {0.0, -1.0, nan, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS((void)gs::fit_affine({{8, bad}}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::fit_affine({{0, 1.0}}), gs::invalid_argument);
  CHECK_THROWS_WITH_AS((void)gs::fit_affine({{8, 1.0}, {8, 1.0}}),
                       "gradsieve: 8 bytes were measured after 8; sizes rise", gs::invalid_argument);
  auto const refused = [](gs::measure_options const& options) {
    CHECK_THROWS_AS((void)gs::measure_all_reduce(gs::self{}, options), gs::invalid_argument);
  };
  refused({.smallest = 0});
  refused({.smallest = 100, .largest = 99});
  refused({.per_octave = 0});
  refused({.passes = 0});
  refused({.seconds = -1});
  refused({.seconds = nan});
}

TEST_CASE("sizes are spaced evenly on a logarithmic scale and end with the largest") {
  auto const sizes = gs::detail::sizes_of({.smallest = 4, .largest = 100});
  CHECK(sizes == std::vector<std::uint64_t>{4, 8, 16, 32, 64, 100});
  CHECK(gs::detail::sizes_of({.smallest = 64, .largest = 64}) == std::vector<std::uint64_t>{64});
  CHECK(gs::detail::sizes_of({.smallest = 64, .largest = 1024, .per_octave = 4}).size() == 17);
}

TEST_CASE("all ranks get the same fit, of the slowest rank's times") {
  gs::measure_options const options{.smallest = 1 << 10, .largest = 1 << 14, .passes = 3, .seconds = 10};
  std::vector<gs::affine_fit> fits(3);
  std::atomic<int> calls{0};
  gs::threads::run(3, [&](auto comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    fits[rank] = gs::measure_cost(
        comm,
        [&](std::uint64_t bytes) {
          return [&calls, rank, bytes] {
            ++calls;
            if (rank == 1) std::this_thread::sleep_for(std::chrono::microseconds{2000 + bytes / 2});
          };
        },
        options);
  });
  for (auto const& each : fits) {
    CHECK(each.cost == fits[0].cost);
    CHECK(each.r2 == fits[0].r2);
    CHECK(each.points == fits[0].points);
  }
  CHECK(fits[0].points.size() == 5);
  CHECK(calls == 3 * 5 * 4);  // each size once to warm up, and three times
  for (auto const& each : fits[0].points)
    CHECK(each.seconds >= 2e-3 + static_cast<double>(each.bytes) * 0.5e-6);  // sleep_for() never sleeps less
}

TEST_CASE("a budget of no time measures the smallest size alone") {
  int calls = 0;
  auto const fit = gs::measure_cost(gs::self{}, [&](std::uint64_t) { return [&] { ++calls; }; }, {.seconds = 0});
  CHECK(fit.points.size() == 1);
  CHECK(calls == 2);
}

TEST_CASE("the library's own exchanges can be measured") {
  gs::measure_options const options{.smallest = 1 << 12, .largest = 1 << 16, .passes = 2, .seconds = 10};
  auto const recipe = gs::recipe{.density = 0.01};
  auto const make = [&](gs::layout const& layers) { return gs::compressor{gs::host{.threads = 1}, layers, recipe}; };
  std::vector<gs::affine_fit> fits(2);
  gs::threads::run(2, [&](auto comm) {
    auto const reduce = gs::measure_all_reduce(comm, options);
    auto const exchange = gs::measure_exchange(comm, make, options);
    if (comm.rank() == 0) fits = {reduce, exchange};
  });
  for (auto const& each : fits) {
    CHECK(each.points.size() == 5);
    CHECK_NOTHROW(each.cost.check());
    CHECK(each.cost(1 << 16) > 0);
  }
}
