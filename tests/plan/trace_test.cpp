// Traces: sums, what is refused, JSON, and the shipped ones.
#include <doctest/doctest.h>

#include <cstddef>
#include <sstream>

#include "schedules.hpp"
#if defined(GRADSIEVE_TEST_JSON)
#include <nlohmann/json.hpp>
#endif

namespace gs = gradsieve;
using namespace schedules;

TEST_CASE("a trace adds up") {
  CHECK(small_trace.bytes() == 20);
  CHECK(small_trace.backward() == 1.75);
  CHECK(small_trace.forward() == 1.25);
  CHECK(small_trace.compute() == 3);
  CHECK(small_trace.ready(1) == 0.75);
  auto const scaled = small_trace.scaled_to(3.5, 0);
  CHECK(scaled.ready(0) == 1);
  CHECK(scaled.forward() == 0);
  CHECK(scaled.bytes() == 20);
  CHECK(gs::trace{}.compute() == 0);

  gs::arrivals const in{small_trace};
  CHECK(in.count() == 2);
  CHECK(in.ready(1) == 1.75);  // the empty layer's time counts with the next
  CHECK(in.layer_end(1) == 1);
  CHECK(in.layer_end(2) == 3);
  CHECK(in.first_with(2) == 1);  // of another dtype
}

TEST_CASE("a trace refuses what cannot be") {
  auto const one = [](std::uint64_t bytes, double backward, double forward) {
    return gs::trace{{"bad", bytes, backward, forward, 0}};
  };
  CHECK_THROWS_WITH_AS(one(1, -1, 0), doctest::Contains("backward seconds of layer 'bad' is -1"), gs::invalid_argument);
  CHECK_THROWS_AS(one(1, not_a_number, 0), gs::invalid_argument);
  CHECK_THROWS_AS(one(1, infinity, 0), gs::invalid_argument);
  CHECK_THROWS_AS(one(1, 0, -1), gs::invalid_argument);
  CHECK_THROWS_AS(one(1, 0, not_a_number), gs::invalid_argument);
  CHECK_THROWS_AS(one(std::uint64_t{1} << 53, 0, 0), gs::invalid_argument);
  auto const half = std::uint64_t{1} << 52;
  CHECK_THROWS_AS((gs::trace{{"a", half, 0, 0, 0}, {"b", half, 0, 0, 0}}), gs::invalid_argument);
  CHECK_THROWS_AS((void)small_trace.scaled_to(-1, 0), gs::invalid_argument);
  CHECK_THROWS_AS((void)(gs::trace{{"a", 1, 0, 0, 0}}.scaled_to(1, 0)), gs::invalid_argument);
}

TEST_CASE("the shipped traces have the tensors of their models") {
  auto const check = [](char const* name, std::size_t tensors, std::uint64_t parameters) {
    auto const of = shipped(name);
    CHECK(of.count() == tensors);
    CHECK(of.bytes() == 4 * parameters);
    CHECK(of.forward() == doctest::Approx(of.backward() / 2).epsilon(1e-3));
  };
  check("resnet50", 161, 25'557'032);
  check("resnet152", 467, 60'192'808);
  check("densenet161", 484, 28'681'000);
  check("densenet201", 604, 20'013'928);
  check("vgg16", 32, 138'357'544);
  check("bert_base", 206, 110'106'428);
  check("bert_large", 398, 336'226'108);
}

#if defined(GRADSIEVE_TEST_JSON)
TEST_CASE("a trace as JSON says the same") {
  std::ostringstream text;
  gs::write_json(text, gs::trace{{{"a\"\\\n\x01é", 8, 0.1, 0.25, 3}, {"", 0, 1e-9, 0, 0}}, "model"});
  auto const read = nlohmann::json::parse(text.str());
  CHECK(read["name"] == "model");
  REQUIRE(read["layers"].size() == 2);
  CHECK(read["layers"][0]["name"] == "a\"\\\n\x01é");
  CHECK(read["layers"][0]["bytes"] == 8);
  CHECK(read["layers"][0]["backward"] == 0.1);
  CHECK(read["layers"][0]["dtype"] == 3);
  CHECK(read["layers"][1]["backward"] == 1e-9);
}
#endif
