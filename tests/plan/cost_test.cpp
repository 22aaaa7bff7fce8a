// Costs at any size.
#include <doctest/doctest.h>

#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

TEST_CASE("costs are read at any size") {
  gs::envelope const two{{{1, 1}, {10, 0.5}}};
  CHECK(two(0) == 0);
  CHECK(two(4) == 5);
  CHECK(two(100) == 60);
  gs::table const measured{{{10, 2}, {20, 3}, {40, 3}, {50, 5}}};
  CHECK(measured(0) == 0);
  CHECK(measured(1) == 2);
  CHECK(measured(10) == 2);
  CHECK(measured(15) == 2.5);
  CHECK(measured(20) == 3);
  CHECK(measured(30) == 3);
  CHECK(measured(45) == 4);
  CHECK(near(measured(60), 7));
  CHECK(gs::table{{{10, 2}}}(1000) == 2);
}
