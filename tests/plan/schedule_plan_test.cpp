// Traces, costs and plans as values: what they accept, what they say, how they travel.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "schedules.hpp"
#if defined(GRADSIEVE_TEST_JSON)
#include <nlohmann/json.hpp>
#endif

namespace gs = gradsieve;
using namespace schedules;

namespace {

double const not_a_number = std::numeric_limits<double>::quiet_NaN();
double const infinity = std::numeric_limits<double>::infinity();

gs::trace const sample{{"fc", 8, 0.5, 0.25, 0}, {"relu, \"a\"", 0, 0.25, 0.5, 0}, {"conv", 12, 1, 0.5, 1}};

gs::plan some_plan(data::generator& random) {
  auto const of = random_trace(random, 20, false);
  return gs::make_plan(of, gs::affine{random.uniform(), random.uniform() / 500});
}

bool near(double value, double expected) { return value == doctest::Approx(expected).epsilon(1e-12); }

}  // namespace

TEST_CASE("a trace adds up") {
  CHECK(sample.bytes() == 20);
  CHECK(sample.backward() == 1.75);
  CHECK(sample.forward() == 1.25);
  CHECK(sample.compute() == 3);
  CHECK(sample.ready(1) == 0.75);
  auto const scaled = sample.scaled_to(3.5, 0);
  CHECK(scaled.ready(0) == 1);
  CHECK(scaled.forward() == 0);
  CHECK(scaled.bytes() == 20);
  CHECK(gs::trace{}.compute() == 0);

  gs::arrivals const in{sample};
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
  CHECK_THROWS_AS((void)sample.scaled_to(-1, 0), gs::invalid_argument);
  CHECK_THROWS_AS((void)(gs::trace{{"a", 1, 0, 0, 0}}.scaled_to(1, 0)), gs::invalid_argument);
}

TEST_CASE("costs of collectives") {
  gs::network_link const link{1, 0.25, 0.5};
  CHECK(gs::ring_cost(link, 4) == gs::affine{6, 0.75});
  CHECK(gs::tree_cost(link, 5) == gs::affine{6, 3});
  CHECK(gs::recursive_doubling_cost(link, 4) == gs::affine{2, 1.5});
  CHECK(gs::halving_doubling_cost(link, 4) == gs::affine{4, 0.75});
  CHECK(gs::halving_doubling_cost(link, 5) == gs::affine{6, 1.75});
  CHECK(gs::double_tree_cost(link, 4) == gs::affine{4, 1});
  CHECK(gs::double_tree_cost(link, 4, 1) == gs::affine{4, 0.75});
  CHECK(gs::hierarchical_cost(link, 2, link, 4) == gs::affine{8, 0.5 + 0.375});
  CHECK(gs::gather_cost(link, 5, 0.25) == gs::affine{8, 0.5});
  CHECK(gs::leader_cost(link, 4, 0.5) == gs::affine{11, 0.5});
  CHECK(gs::index_union_cost(link, 4, 0.5) == gs::affine{18, 0.46875});
  CHECK(gs::shared_choice_cost(link, 4, 0.5) == gs::affine{9, 0.375});
  CHECK(gs::reduce_scatter_cost(link, 4, 0.5) == gs::affine{9, 0.1875});
  CHECK(gs::ok_topk_cost(link, 4, 0.5) == gs::affine{24, 0.375});
  CHECK(gs::gtopk_cost(link, 4, 0.5) == gs::affine{13, 0.7578125});
  for (auto const& cost :
       {gs::ring_cost(link, 1), gs::tree_cost(link, 1), gs::recursive_doubling_cost(link, 1),
        gs::halving_doubling_cost(link, 1), gs::double_tree_cost(link, 1), gs::hierarchical_cost(link, 1, link, 1),
        gs::gather_cost(link, 1, 0.5), gs::leader_cost(link, 1, 0.5), gs::index_union_cost(link, 1, 0.5),
        gs::shared_choice_cost(link, 1, 0.5), gs::reduce_scatter_cost(link, 1, 0.5), gs::ok_topk_cost(link, 1, 0.5),
        gs::gtopk_cost(link, 1, 0.5)})
    CHECK(cost == gs::affine{0, 0});
  CHECK_THROWS_AS((void)gs::ring_cost(link, 0), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::tree_cost({-1, 0, 0}, 2), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::gather_cost({not_a_number, 0, 0}, 2, 0.1), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::gather_cost(link, 2, 1.5), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::leader_cost(link, 2, not_a_number), gs::invalid_argument);

  gs::affine const fit{3e-3, 2e-9};
  auto const again = gs::ring_cost(gs::link_of_ring(fit, 16), 16);
  CHECK(near(again.a, fit.a));
  CHECK(near(again.b, fit.b));
  CHECK(near(gs::double_tree_cost(gs::link_of_double_tree(fit, 16), 16).a, fit.a));
  CHECK_THROWS_AS((void)gs::link_of_ring(fit, 1), gs::invalid_argument);
}

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

TEST_CASE("networks by name, or by latency and bandwidth") {
  CHECK(gs::network_named("v100-10gbe").cost(16) == gs::affine{9.08e-4, 7.40e-10});
  CHECK(gs::network_named("v100-56gib").cost(8) == gs::affine{9.75e-5, 3.06e-10});
  CHECK(near(gs::network_named("v100-10gbe").cost(64).a, 9.08e-4 / 30 * 126));
  CHECK(near(gs::network_named("infocom-ring").cost(8).a, 14 * 45.25e-6));
  CHECK(near(gs::network_named("1e-4,2e-9").cost(2).b, 2e-9));
  for (auto const& each : gs::networks()) CHECK(each.cost(1) == gs::affine{0, 0});
  for (auto const* wrong : {"", "ethernet", "1e-4", "1e-4,", ",1", "1e-4,2e-9,3", "1e-4;2e-9", "a,b"})
    CHECK_THROWS_WITH_AS((void)gs::network_named(wrong), doctest::Contains("choose one of infocom-ring"),
                         gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::network_named("-1,1"), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::network_named("nan,1"), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::network_named("1gbe").cost(0), gs::invalid_argument);
}

TEST_CASE("a plan says where every gradient lies") {
  gs::plan const made{{4, 0, 8, 2}, {{0, 3, 12, 1, 2}, {3, 4, 2, 2, 3}}, 0.5};
  CHECK(made.count() == 4);
  CHECK(made.group_of(1) == 0);
  CHECK(made.slot(2) == gs::plan_slot{0, 4});
  CHECK(made.slot(3) == gs::plan_slot{1, 0});
  CHECK(made.finish() == 3);
  CHECK(made.certificate() == 0.5);
  auto const refused = [](std::vector<gs::plan_group> groups) {
    CHECK_THROWS_AS((gs::plan{{4, 0, 8, 2}, std::move(groups)}), gs::invalid_argument);
  };
  refused({});
  refused({{0, 3, 12, 1, 2}});
  refused({{1, 4, 10, 1, 2}});
  refused({{0, 0, 0, 1, 2}, {0, 4, 14, 1, 2}});
  refused({{0, 5, 14, 1, 2}});
  refused({{0, 4, 13, 1, 2}});
  refused({{0, 4, 14, 2, 1}});
  refused({{0, 4, 14, -1, 1}});
  refused({{0, 4, 14, 1, not_a_number}});
  CHECK_THROWS_AS((gs::plan{{}, {}, -1.0}), gs::invalid_argument);
  CHECK_NOTHROW(gs::plan{{}, {}});
}

TEST_CASE("a plan's hash is about borders and bytes") {
  gs::plan const made{{4, 8}, {{0, 1, 4, 1, 2}, {1, 2, 8, 2, 3}}};
  CHECK(made.hash() == gs::plan{{4, 8}, {{0, 1, 4, 1, 3}, {1, 2, 8, 3, 4}}, 1.0}.hash());
  CHECK(made.hash() != gs::plan{{4, 8}, {{0, 2, 12, 1, 2}}}.hash());
  CHECK(made.hash() != gs::plan{{8, 4}, {{0, 1, 8, 1, 2}, {1, 2, 4, 2, 3}}}.hash());
}

TEST_CASE("a plan comes back from its bytes, and damage is found") {
  data::generator random{1};
  int damaged = 0;
  for (int n = 0; n < 300; ++n) {
    auto const made = some_plan(random);
    auto const bytes = made.to_bytes();
    auto const again = gs::plan::from_bytes(bytes);
    CHECK(again == made);
    CHECK(again.hash() == made.hash());
    CHECK(again.to_bytes() == bytes);

    for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 8)
      CHECK_THROWS_AS((void)gs::plan::from_bytes(std::span{bytes}.first(size)), gs::corrupt_message);
    auto longer = bytes;
    longer.push_back(std::byte{0});
    CHECK_THROWS_AS((void)gs::plan::from_bytes(longer), gs::corrupt_message);
    for (int hit = 0; hit < 50; ++hit) {
      auto broken = bytes;
      auto const at = random.below(broken.size());
      broken[at] ^= static_cast<std::byte>(1 + random.below(255));
      CHECK_THROWS_AS((void)gs::plan::from_bytes(broken), gs::corrupt_message);
      ++damaged;
    }
  }
  CHECK(damaged == 15'000);
}

TEST_CASE("bytes that lie with a good checksum are no plan either") {
  data::generator random{2};
  gs::plan const made{{4, 8, 2}, {{0, 1, 4, 1, 2}, {1, 3, 10, 2, 3}}, 1.0};
  int accepted = 0;
  for (int n = 0; n < 20'000; ++n) {
    auto bytes = made.to_bytes();
    for (std::uint64_t hits = 1 + random.below(3); hits-- > 0;) {
      std::vector<std::uint64_t> const values{0, 1, 2, 3, ~std::uint64_t{0}, random.bits(), std::uint64_t{1} << 62};
      std::size_t const word = random.below(bytes.size() / 8);
      if (word == 4) continue;  // the checksum
      gs::wire::store_one(std::span{bytes}.subspan(8 * word), values[random.below(values.size())]);
    }
    auto const whole = std::span<std::byte const>{bytes};
    gs::wire::store_one(std::span{bytes}.subspan(32),
                        gs::wire::checksum(whole.first(32)) ^ gs::wire::checksum(whole.subspan(40)));
    try {
      auto const again = gs::plan::from_bytes(bytes);
      CHECK(again.to_bytes() == bytes);
      ++accepted;
    } catch (gs::corrupt_message const&) {
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < 10'000);
}

TEST_CASE("a trace comes back from CSV") {
  std::stringstream text;
  gs::write_csv(text, sample);
  CHECK(gs::read_csv(text) == sample);
  std::stringstream marked;  // as spreadsheets write it
  marked << "\xEF\xBB\xBF";
  gs::write_csv(marked, sample);
  CHECK(gs::read_csv(marked) == sample);
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
