// What a report counts.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <string>

#include "printed.hpp"

namespace gs = gradsieve;

TEST_CASE("a report says what a step did") {
  gs::step_report report;
  CHECK(report.build_up() == 0);
  report.budget = 10;
  report.union_size = 25;
  CHECK(report.build_up() == 2.5);
  report.seconds = {1, 2, 3, 4, 5};
  CHECK(report.seconds.total() == 15);
  CHECK(printed(report).find("budget 10, entries sent 0 (at most 0), in the update 25 (build-up 2.5), ") !=
        std::string::npos);
}
