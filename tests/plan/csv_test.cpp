// Traces as CSV, and the log of the authors of MG-WFBP.
#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

TEST_CASE("a trace comes back from CSV") {
  std::stringstream text;
  gs::write_csv(text, small_trace);
  CHECK(gs::read_csv(text) == small_trace);
  std::stringstream marked;  // as spreadsheets write it
  marked << "\xEF\xBB\xBF";
  gs::write_csv(marked, small_trace);
  CHECK(gs::read_csv(marked) == small_trace);
  std::stringstream damaged{"\xEF\xBB,bytes,backward\n"};
  CHECK_THROWS_AS((void)gs::read_csv(damaged), gs::invalid_argument);
  data::generator random{3};
  for (int n = 0; n < 200; ++n) {
    auto layers = random_trace(random, 10, false).layers();
    for (auto& each : layers)
      for (std::uint64_t c = random.below(6); c-- > 0;) each.name += "a,\"\n\r é"[random.below(8)];
    gs::trace const of{layers, "name"};
    std::stringstream stream;
    gs::write_csv(stream, of);
    CHECK(gs::read_csv(stream, "name") == of);
  }
}

TEST_CASE("CSV that is no trace is refused with its line") {
  auto const read = [](std::string const& text) {
    std::istringstream in{text};
    return gs::read_csv(in);
  };
  std::string const head = "name,bytes,backward,forward,dtype\n";
  CHECK(read(head).count() == 0);
  CHECK(read(head + "a,1,2,3,0\r\n\n").count() == 1);
  CHECK(read("backward,name,bytes\n2,a,1\n") == gs::trace{{"a", 1, 2, 0, 0}});
  CHECK(read("bytes,backward\n1,2\n") == gs::trace{{"", 1, 2, 0, 0}});
  for (auto const* columns : {"name,bytes", "bytes,backward,bytes", "bytes,backward,", "bytes,backward,time"})
    CHECK_THROWS_WITH_AS(read(columns), doctest::Contains(columns), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(read(""), doctest::Contains("expected 'name,bytes"), gs::invalid_argument);
  CHECK_THROWS_AS(read("name,bytes\n"), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(read(head + "a,1,2,3,0\nb,1,2\n"), doctest::Contains("line 3"), gs::invalid_argument);
  for (auto const* row : {"a,x,2,3,0", "a,-1,2,3,0", "a,1.5,2,3,0", "a,1,2 s,3,0", "a,1,2,,0", "a,1,nan,3,0",
                          "a,1,-2,3,0", "a,1,inf,3,0", "a,1,2,3,-1", "a,1,2,3,0,0", "\"a,1,2,3,0"})
    CHECK_THROWS_AS(read(head + row + "\n"), gs::invalid_argument);
}

TEST_CASE("a log of the authors' program") {
  auto const read = [](std::string const& text) {
    std::istringstream in{text};
    return gs::read_mgwfbp_log(in);
  };
  auto const of = read(
      "I0219 x.cpp:112] [0, 10, 30.5, 1169, 0]\nI0219 x.cpp:112] [1, 2, 30.5, 0, 0]\nnoise [1]\n"
      "I0219 x.cpp:112] [2, 7, 20, 5, 0]\nI0219 x.cpp:112] [0, 10, 99, 1169, 7]\n");
  REQUIRE(of.count() == 2);
  CHECK(of[0].bytes == 28);
  CHECK(near(of[0].backward, 20e-6));
  CHECK(of[1].bytes == 48);
  CHECK(near(of[1].backward, 30.5e-6));
  CHECK(near(of.forward(), of.backward() / 2));
  CHECK_THROWS_AS(read(""), gs::invalid_argument);
  CHECK_THROWS_AS(read("[1, 10, 30, 0, 0]\n"), gs::invalid_argument);
  CHECK_THROWS_AS(read("[0, 9007199254740992, 30, 0, 0]\n"), gs::invalid_argument);
  CHECK_THROWS_AS(read("[0, 1, nan, 0, 0]\n"), gs::invalid_argument);
}
