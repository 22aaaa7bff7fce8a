// Densities, warm-ups and budgets.
#include <doctest/doctest.h>

#include <array>
#include <gradsieve/gradsieve.hpp>
#include <limits>
#include <set>

namespace gs = gradsieve;

TEST_CASE("a density is the same in every step") {
  gs::density_schedule const constant = 0.125;
  CHECK(constant(0) == 0.125);
  CHECK(constant(1'000'000) == 0.125);
  CHECK(constant.most() == 0.125);
  for (double const good : {0.0, 1.0, 1e-9}) CHECK_NOTHROW(gs::density_schedule{good}.check());
}

TEST_CASE("a warm-up falls geometrically, in stairs or smoothly, and stays") {
  gs::density_schedule const stairs = gs::warm_up{.initial = 0.25, .final = 0.001, .steps = 400, .stages = 4};
  std::array const expected{0.25, 0.0629, 0.0158, 0.00398};
  for (std::uint64_t step = 0; step < 400; ++step)
    CHECK(stairs(step) == doctest::Approx(expected[step / 100]).epsilon(0.005));
  CHECK(stairs(99) == stairs(0));
  CHECK(stairs(400) == 0.001);
  CHECK(stairs(~std::uint64_t{0}) == 0.001);
  CHECK(stairs.most() == 0.25);

  gs::density_schedule const smooth = gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 10};
  CHECK(smooth(0) == 0.25);
  CHECK(smooth(5) == doctest::Approx(0.05));
  for (std::uint64_t step = 0; step < 12; ++step) CHECK(smooth(step + 1) <= smooth(step));
  CHECK(smooth(10) == 0.01);

  gs::density_schedule const uneven =
      gs::warm_up{.initial = 0.5, .final = 0.01, .steps = 10, .stages = 3};  // stairs of 4, 3, 3
  std::set<double> levels;
  for (std::uint64_t step = 0; step < 10; ++step) {
    levels.insert(uneven(step));
    CHECK(uneven(step + 1) <= uneven(step));
  }
  CHECK(levels.size() == 3);
  CHECK(gs::density_schedule{gs::warm_up{.initial = 0.01, .final = 0.5, .steps = 4}}.most() == 0.5);
}

TEST_CASE("a density outside [0, 1] is refused by name and value") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(gs::density_schedule{1.5}.check(), "gradsieve: density is 1.5, expected 0 to 1",
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS(gs::density_schedule{-0.1}.check(), doctest::Contains("-0.1"), gs::invalid_argument);
  CHECK_THROWS_AS(gs::density_schedule{nan}.check(), gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::density_schedule{gs::warm_up{.initial = 2, .final = 0.5, .steps = 1}}.check()),
                       "gradsieve: warm-up runs from density 2 to 0.5, expected both above 0 and up to 1",
                       gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = 0, .final = 0.5, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = nan, .final = 0.5, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = 0.5, .final = 0, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::compressor{gs::host{}, gs::layout::flat(4), gs::recipe{.density = 7.0}}), gs::invalid_argument);
}

TEST_CASE("the budget is ceil(density * elements)") {
  CHECK(gs::budget_of(0, 100) == 0);
  CHECK(gs::budget_of(0.5, 0) == 0);
  CHECK(gs::budget_of(1, 100) == 100);
  CHECK(gs::budget_of(0.01, 100) == 1);
  CHECK(gs::budget_of(0.011, 100) == 2);
  CHECK(gs::budget_of(1e-12, 100) == 1);
  CHECK(gs::budget_of(0.001, 25'000'000) == 25'000);
  CHECK(gs::budget_of(1, 4'294'967'295u) == 4'294'967'295u);
  CHECK(gs::budget_of(0.5, 4'294'967'295u) == 2'147'483'648u);
  CHECK(gs::budget_of(0.1, 16'777'217) == 1'677'722);
}
