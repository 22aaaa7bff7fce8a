// What a report counts.
#include <doctest/doctest.h>

#include <algorithm>
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
  CHECK(report.ring_ratio() == 0);
  report.world = 4;
  report.baseline_bytes = 1000;
  report.bytes_received = 100;
  CHECK(report.ring_ratio() == 15);  // 2 * 3 / 4 of 1000
  CHECK(printed(report).find("received 100 B (uncompressed 1000 B, ring ratio 15), not finite 0") != std::string::npos);
  report.seconds = {1, 2, 3, 4, 5};
  CHECK(report.seconds.total() == 15);
  CHECK(printed(report).find("budget 10, entries sent 0 (at most 0), in the update 25 (build-up 2.5), ") !=
        std::string::npos);
}

TEST_CASE("a report is a line of JSON and of CSV, with a name for each number, whatever the program's locale") {
  gs::step_report report;
  report.step = 1'234'567;
  report.budget = 10;
  report.union_size = 25;
  report.thresholds.by[1] = 3;
  report.staged = true;
  report.seconds = {0.25, 1e-9, 3, 4, 5};
  CHECK(report.json() ==
        R"({"step": 1234567, "world": 1, "budget": 10, "selected": 0, "capacity": 0, "passthrough_layers": 0, )"
        R"("passthrough_elements": 0, "skipped_elements": 0, "union_size": 25, "build_up": 2.5, "non_finite": 0, )"
        R"("saturated": 0, "bytes_sent": 0, "bytes_received": 0, "baseline_bytes": 0, "thresholds_estimated": 0, )"
        R"("thresholds_remembered": 3, "thresholds_corrected": 0, "probes": 0, "staged": 1, )"
        R"("seconds_accumulate": 0.25, "seconds_partition": 1e-09, "seconds_select": 3, "seconds_exchange": 4, )"
        R"("seconds_apply": 5, "ring_ratio": 0})");
  CHECK(report.csv() == "1234567,1,10,0,0,0,0,0,25,2.5,0,0,0,0,0,0,3,0,0,1,0.25,1e-09,3,4,5,0");
  auto const names = gs::step_report::csv_names();
  CHECK(names.starts_with("step,world,budget,selected,"));
  CHECK(std::ranges::count(names, ',') == std::ranges::count(report.csv(), ','));
}
