// Layouts: sizes, limits, hashes.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <set>
#include <vector>

namespace gs = gradsieve;

TEST_CASE("a layout sums its layers") {
  gs::layout const layers{{"a", 3}, {"empty", 0}, {"b", 4}};
  CHECK(layers.size() == 7);
  CHECK(layers.count() == 3);
  CHECK(layers.offset(0) == 0);
  CHECK(layers.offset(1) == 3);
  CHECK(layers.offset(2) == 3);
  CHECK(layers[2].name == "b");
  CHECK(gs::layout{}.size() == 0);
  CHECK(gs::layout::flat(5).size() == 5);
  CHECK(gs::layout(7, {{"a", 3}, {"b", 4}}).count() == 2);
}

TEST_CASE("a layout refuses 2^32 elements, and says where") {
  CHECK(gs::layout{{"most", 4'294'967'295u}}.size() == 4'294'967'295u);
  CHECK_THROWS_WITH_AS((gs::layout{{"fc", 4'294'967'296u}}), doctest::Contains("'fc' (4294967296 elements)"),
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::layout{{"conv", 4'294'967'295u}, {"bias", 1}}), doctest::Contains("'bias'"),
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::layout{{"conv", 5}, {"huge", ~std::uint64_t{0}}}), doctest::Contains("fewer than 2^32"),
                       gs::invalid_argument);
}

TEST_CASE("a layout is held against the gradient's size") {
  CHECK_THROWS_WITH_AS((gs::layout(8, {{"a", 3}, {"b", 4}})),
                       doctest::Contains("sum to 7 elements, the gradient has 8"), gs::invalid_argument);
}

TEST_CASE("different layouts have different hashes") {
  std::vector<gs::layout> const layouts{{},
                                        {{"", 0}},
                                        {{"a", 1}},
                                        {{"b", 1}},
                                        {{"a", 2}},
                                        {{"a", 256}},
                                        {{"a", 1}, {"a", 1}},
                                        {{"a", 1}, {"b", 1}},
                                        {{"b", 1}, {"a", 1}},
                                        {{"ab", 1}, {"", 1}},
                                        {{"", 1}, {"ab", 1}},
                                        {{"a", 2}, {"", 0}},
                                        {{"a", 0}, {"", 2}}};
  std::set<std::uint64_t> seen;
  for (auto const& each : layouts) seen.insert(each.hash());
  CHECK(seen.size() == layouts.size());
  CHECK(gs::layout{{"a", 1}}.hash() == gs::layout{{"a", 1}}.hash());
  CHECK(gs::layout{{"a", 1}} == gs::layout{{"a", 1}});
  CHECK_FALSE(gs::layout{{"a", 1}} == gs::layout{{"b", 1}});
  CHECK(gs::layout{{"conv1.weight", 9408}}.hash() == 0x77c1'037e'2753'3830u);  // the same on every machine
}
