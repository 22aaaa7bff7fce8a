// Planners compiled with -ffast-math, which lets a compiler assume that there is no infinity and no NaN: what is
// refused elsewhere is refused here, and forbidden sizes are avoided.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <gradsieve/plan.hpp>
#include <vector>

#include "../../examples/simulate/optimal_rs_ag.hpp"
#include "../../examples/simulate/optimal_sparse.hpp"
#include "../../examples/simulate/robust.hpp"
#include "../../examples/simulate/simulate.hpp"
#include "data.hpp"

namespace gs = gradsieve;

namespace {

// From memory, as a compiler may drop a NaN or an infinity that it sees.
std::uint64_t const volatile nan_bits = 0x7FF8'0000'0000'0000u;
std::uint64_t const volatile infinite_bits = 0x7FF0'0000'0000'0000u;
double not_a_number() { return std::bit_cast<double>(std::uint64_t{nan_bits}); }
double infinite() { return std::bit_cast<double>(std::uint64_t{infinite_bits}); }

/// Seconds by a table in memory, one for each number of bytes.
struct by_bytes {
  std::vector<double> seconds;
  double operator()(std::uint64_t bytes) const { return seconds[bytes]; }
};

/// The least finish of all ways to cut layers without empty ones, or -1.
double least_finish(gs::trace const& of, by_bytes const& cost) {
  double least = -1;
  for (std::uint64_t borders = 0; borders < std::uint64_t{1} << (of.count() - 1); ++borders) {
    double end = 0;
    std::uint64_t bytes = 0;
    for (std::size_t l = 0; l < of.count() && end >= 0; ++l) {
      bytes += of[l].bytes;
      if (l + 1 < of.count() && (borders >> l & 1) == 0) continue;
      bool const finite = (std::bit_cast<std::uint64_t>(cost.seconds[bytes]) & infinite_bits) != infinite_bits;
      end = finite ? std::max(end, of.ready(l)) + cost.seconds[bytes] : -1;
      bytes = 0;
    }
    if (end >= 0 && (least < 0 || end < least)) least = end;
  }
  return least;
}

}  // namespace

TEST_CASE("forbidden sizes are avoided with -ffast-math") {
  data::generator random{1};
  int refused = 0;
  for (int n = 0; n < 2000; ++n) {
    std::vector<gs::traced_layer> layers(1 + random.below(8), {"l", 0, 0, 0, 0});
    std::uint64_t all = 0;
    for (auto& each : layers) {
      all += each.bytes = 1 + random.below(6);
      each.backward = random.uniform();
    }
    gs::trace const of{layers};
    by_bytes cost;
    double const base = random.uniform();
    double const jump = n % 2 == 0 ? 1e300 : 1e12;
    for (std::uint64_t bytes = 0; bytes <= all; ++bytes)
      cost.seconds.push_back(random.below(4) == 0   ? not_a_number()
                             : random.below(4) == 0 ? infinite()
                             : random.below(4) == 0 ? jump
                                                    : base + 0.1 * static_cast<double>(bytes));
    double const best = least_finish(of, cost);
    for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
      if (best < 0) {
        ++refused;
        CHECK_THROWS_AS((void)gs::make_plan(of, cost, gs::optimal{rule}), gs::invalid_argument);
        CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::optimal_sparse{}), gs::invalid_argument);
        continue;
      }
      auto const made = gs::make_plan(of, cost, gs::optimal{rule});
      CHECK(made.finish() <= best * (1 + 1e-11));
      CHECK(made.finish() >= best * (1 - 1e-11));
      CHECK(gs::make_plan(of, cost, tools::optimal_sparse{}).finish() <= best * (1 + 1e-11));
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("NaN and infinity are refused with -ffast-math") {
  gs::trace const of{{"a", 4, 1, 1, 0}, {"b", 4, 1, 1, 0}};
  gs::affine const cost{1, 1};
  auto const made = gs::make_plan(of, cost);
  for (double const wrong : {not_a_number(), infinite(), -infinite()}) {
    CHECK_THROWS_AS((gs::trace{{"a", 4, wrong, 0, 0}}), gs::invalid_argument);
    CHECK_THROWS_AS((void)of.scaled_to(wrong, 1), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, gs::affine{wrong, 1}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, gs::affine{1, wrong}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, gs::envelope{{cost, {wrong, 1}}}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, gs::table{{{4, wrong}}}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::robust{.a = wrong}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, cost, gs::fusion_buffer{.cycle = wrong}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::optimal_rs_ag{.share = wrong}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, by_bytes{std::vector<double>(9, wrong)}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, by_bytes{std::vector<double>(9, wrong)}, gs::mgwfbp{}),
                    gs::invalid_argument);
    CHECK_THROWS_AS((void)tools::simulate(of, made, by_bytes{std::vector<double>(9, wrong)}), gs::invalid_argument);
    CHECK_THROWS_AS((void)tools::simulate(of, made, cost, {.jitter = wrong}), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::ring_cost({wrong, 1, 0}, 4), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::fit_affine({{1000, 1.0}, {2000, wrong}}), gs::invalid_argument);
    CHECK_THROWS_AS((gs::plan{{4}, {{0, 1, 4, 1, wrong}}}), gs::invalid_argument);
    CHECK_THROWS_AS((gs::plan{{4}, {{0, 1, 4, 1, 2}}, wrong}), gs::invalid_argument);
  }
  gs::table const ends{{{4, 1.0}, {5, infinite()}}};
  CHECK(gs::make_plan(of, ends).groups().size() == 2);
  CHECK(gs::make_plan(of, ends, gs::single{}).groups().size() == 2);
}
