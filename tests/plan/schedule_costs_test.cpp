// Planners with costs that jump, fall, vanish, or forbid sizes: against all partitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "../../examples/simulate/optimal_rs_ag.hpp"
#include "../../examples/simulate/optimal_sparse.hpp"
#include "../../examples/simulate/robust.hpp"
#include "../../examples/simulate/simulate.hpp"
#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

namespace {

constexpr double rounding = 1e-12;  // of a finish: what a certificate leaves aside

using function = std::function<double(std::uint64_t)>;
using groups = std::vector<std::size_t>;

/// A number in [0, 1) that belongs to these bytes.
double drawn(std::uint64_t seed, std::uint64_t bytes) {
  return static_cast<double>(gs::mix(seed + gs::mix(bytes)) >> 11) * 0x1p-53;
}

/// A size up to which a trace's groups have about `share` of all bytes.
std::uint64_t some_size(data::generator& random, gs::trace const& of) { return 1 + random.below(of.bytes() + 1); }

double jump(data::generator& random) { return std::vector{1e2, 1e5, 1e12, 1e16, 1e50, 1e150, 1e300}[random.below(7)]; }

/// Never falls; with `forbids` it is infinite or NaN from some size on.
function rising(data::generator& random, gs::trace const& of, bool forbids) {
  auto const base = random_affine(random, random.below(2) == 0);
  auto const limit = some_size(random, of);
  auto const factor = jump(random);
  double const nothing = random.below(2) == 0 ? infinity : not_a_number;
  switch (random.below(forbids ? 6 : 4)) {
    case 0:
      return [=](std::uint64_t bytes) { return bytes > limit ? (base(bytes) + 1) * factor : base(bytes); };
    case 1:  // plateaus
      return [=](std::uint64_t bytes) { return base.a + std::floor(double(bytes) / (1 + double(limit) / 4)) * factor; };
    case 2:
      return [=](std::uint64_t bytes) { return bytes > limit ? factor : 0.0; };
    case 3:
      return [](std::uint64_t) { return 0.0; };
    case 4:
      return [=](std::uint64_t bytes) { return bytes > limit ? nothing : base(bytes); };
    default:
      return [=](std::uint64_t bytes) { return bytes > limit ? nothing : bytes > limit / 2 ? factor : 0.0; };
  }
}

/// Falls as well as rises.
function uneven(data::generator& random, gs::trace const& of) {
  auto const base = random_affine(random, random.below(2) == 0);
  auto const limit = some_size(random, of);
  auto const factor = jump(random);
  auto const seed = random.bits();
  double const nothing = random.below(2) == 0 ? infinity : not_a_number;
  switch (random.below(6)) {
    case 0:
      return [=](std::uint64_t bytes) { return drawn(seed, bytes); };
    case 1:
      return [=](std::uint64_t bytes) { return drawn(seed, bytes) < 0.3 ? nothing : base(bytes); };
    case 2:
      return [=](std::uint64_t bytes) { return drawn(seed, bytes) < 0.3 ? factor : base(bytes); };
    case 3:  // large groups only
      return [=](std::uint64_t bytes) { return bytes < limit ? nothing : base(bytes); };
    case 4:
      return [=](std::uint64_t bytes) { return bytes < limit ? base(bytes) * factor : base(bytes); };
    default:  // padded to even numbers of blocks, a free size here and there
      return [=](std::uint64_t bytes) {
        return drawn(seed, bytes) < 0.1 ? 0 : drawn(seed, bytes) < 0.2 ? nothing : 1.0;
      };
  }
}

gs::table steep_table(data::generator& random, gs::trace const& of) {
  gs::table cost;
  double seconds = std::vector{0.0, 1e-300, 1e-3, 1.0}[random.below(4)];
  std::uint64_t bytes = 0;
  for (std::uint64_t p = 0; p < 1 + random.below(6); ++p) {
    cost.points.push_back({bytes += 1 + random.below(2 + of.bytes() / 4), seconds});
    switch (random.below(4)) {
      case 0:
        if (seconds < infinity) seconds = std::min(1e300, (seconds + random.uniform()) * jump(random));
        break;
      case 1:
        seconds += random.uniform();
        break;
      case 2:
        if (random.below(3) == 0) seconds = infinity;
        break;
      default:
        break;  // a plateau
    }
  }
  return cost;
}

gs::affine steep_affine(data::generator& random) {
  std::vector<double> const scales{0, 1e-300, 1e-9, 1e-3, 1, 1e6, 1e9};
  return {scales[random.below(7)] * random.uniform(), scales[random.below(7)] * random.uniform()};
}

template <class Cost>
bool fits(gs::trace const& of, groups const& ends, Cost const& cost, gs::merge_constraints const& constraints) {
  auto const all = gradients_of(of);
  for (std::size_t g = 0, begin = 0; g < ends.size(); begin = ends[g++])
    if (!allowed(all, begin, ends[g], constraints) || !std::isfinite(cost(bytes_of(all, begin, ends[g])))) return false;
  return true;
}

/// How one kind of cost went.
struct tally {
  int planned = 0;
  int refused = 0;
  int forbidden = 0;  ///< planned, though some group is forbidden by its cost
};

/// `optimal` against all partitions, by both rules.
template <class Cost>
void check_optimal(gs::trace const& of, Cost const& cost, gs::merge_constraints const& constraints, tally& went) {
  auto const all = gradients_of(of);
  if (all.empty()) return;
  double const best = brute_force(of, cost, constraints);
  if (!std::isfinite(best)) {
    ++went.refused;
    for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest})
      CHECK_THROWS_WITH_AS((void)gs::make_plan(of, cost, gs::optimal{rule}, constraints),
                           doctest::Contains("no plan is finite"), gs::invalid_argument);
    return;
  }
  ++went.planned;
  went.forbidden += !std::isfinite(cost(of.bytes()));
  // Where the last group begins: latest and first of the best plans, and of those that are the best but for a rounding.
  std::size_t last = 0;
  std::size_t last_near = 0;
  std::size_t first = all.size();
  std::size_t first_near = all.size();
  for_every_cut(all.size(), [&](auto const& cut) {
    double const end = finish(all, cut, cost);
    std::size_t const begin = cut.size() > 1 ? cut[cut.size() - 2] : 0;
    if (!(end <= best * (1 + 8 * rounding)) || !fits(of, cut, cost, constraints)) return;
    last_near = std::max(last_near, begin);
    first_near = std::min(first_near, begin);
    if (end > best) return;
    last = std::max(last, begin);
    first = std::min(first, begin);
  });
  for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
    auto const made = gs::make_plan(of, cost, gs::optimal{rule}, constraints);
    auto const ends = ends_of(of, made);
    CHECK(fits(of, ends, cost, constraints));
    CHECK(made.certificate() == 0.0);
    double const end = finish(all, ends, cost);
    CHECK_MESSAGE(end <= best * (1 + 2 * rounding), made << " is through after " << end << ", the best after " << best);
    CHECK(made.finish() == doctest::Approx(end).epsilon(rounding));
    std::size_t const begin = ends.size() > 1 ? ends[ends.size() - 2] : 0;
    CHECK(begin >= (rule == gs::ties::latest ? last : first_near));
    CHECK(begin <= (rule == gs::ties::latest ? last_near : first));
  }
}

}  // namespace

TEST_CASE("a jump behind the sizes that anyone needs does not blur the others") {
  // A millisecond for up to 2,000,000 bytes, 100 seconds for one byte more, and as much for each that follows.
  data::generator random{10};
  gs::table const jumps{{{1'000'000, 1e-3}, {2'000'000, 1.5e-3}, {2'000'001, 100}}};
  auto const ends_there = [&](std::uint64_t bytes) { return bytes > 2'000'000 ? infinity : jumps(bytes); };
  for (int n = 0; n < 200; ++n) {
    std::vector<gs::traced_layer> layers(10, {"l", 0, 0, 0, 0});
    for (auto& each : layers) {
      each.bytes = 100'000 + random.below(900'000);
      each.backward = 2e-3 * random.uniform();
    }
    gs::trace const of{layers};
    double const best = brute_force(of, jumps);
    for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
      auto const made = gs::make_plan(of, jumps, gs::optimal{rule});
      CHECK(made.certificate() == 0.0);
      CHECK_MESSAGE(made.finish() <= best * (1 + rounding), made << ", the best is " << best);
      CHECK(gs::make_plan(of, ends_there, gs::optimal{rule}).hash() == made.hash());
    }
  }
}

TEST_CASE("optimal is the best of all partitions for costs that jump, fall, vanish or forbid sizes") {
  data::generator random{11};
  tally rises;
  tally falls;
  tally tables;
  tally straight;
  for (int n = 0; n < 16'000; ++n) {
    auto const of = random_trace(random, n % 16 == 0 ? 12 : 8, n % 3 == 0);
    auto const constraints = n % 3 == 1 ? random_constraints(random, of) : gs::merge_constraints{};
    switch (n % 5) {
      case 0:
        check_optimal(of, rising(random, of, true), constraints, rises);
        break;
      case 1:
        check_optimal(of, uneven(random, of), constraints, falls);
        break;
      case 2:
        check_optimal(of, steep_table(random, of), constraints, tables);
        break;
      case 3:
        check_optimal(of, steep_affine(random), constraints, straight);
        break;
      default: {
        gs::envelope cost;
        for (std::uint64_t p = 0; p < 1 + random.below(4); ++p) cost.pieces.push_back(steep_affine(random));
        check_optimal(of, cost, constraints, straight);
      }
    }
  }
  for (auto const& each : {rises, falls, tables}) {
    CHECK(each.planned > 1500);
    CHECK(each.refused > 50);
    CHECK(each.forbidden > 50);
  }
  CHECK(straight.planned > 4000);
  CHECK(straight.refused == 0);
}

TEST_CASE("the queues find what all pairs find on steep pieces") {
  data::generator random{12};
  for (int n = 0; n < 400; ++n) {
    auto const of = random_trace(random, 150, n % 2 == 0);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    gs::envelope cost;
    for (std::uint64_t p = 0; p < 1 + random.below(4); ++p) cost.pieces.push_back(steep_affine(random));
    auto const function_of = [&](std::uint64_t bytes) { return cost(bytes); };
    for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
      auto const quick = gs::make_plan(of, cost, gs::optimal{rule}, constraints);
      auto const slow = gs::make_plan(of, function_of, gs::optimal{rule}, constraints);
      CHECK(quick.finish() == doctest::Approx(slow.finish()).epsilon(2 * rounding));
      CHECK(quick.certificate() == 0.0);
    }
  }
}

TEST_CASE("small gradients behind 2^50 bytes, which another piece of the cost pays for") {
  data::generator random{15};
  for (int n = 0; n < 300; ++n) {
    std::vector<gs::traced_layer> layers{{"large", std::uint64_t{1} << 50, 0, 0, 0}};
    for (int l = 0; l < 8; ++l) layers.push_back({"small", 1 + random.below(4), 30 * random.uniform(), 0, 0});
    gs::envelope const cost{{{random.uniform(), random.uniform()}, {100 * random.uniform(), 0}}};
    tally went;
    check_optimal(gs::trace{layers}, cost, {}, went);
    CHECK(went.planned == 1);
  }
}

TEST_CASE("certificates hold for steep costs, of whatever planner") {
  data::generator random{13};
  int certified = 0;
  for (int n = 0; n < 1500; ++n) {
    auto const of = random_trace(random, 8, n % 2 == 0);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    gs::affine const straight = steep_affine(random);
    auto const bent = rising(random, of, true);
    auto const check = [&](auto const& cost, auto const& policy) {
      double const best = brute_force(of, cost, constraints);
      try {
        auto const made = gs::make_plan(of, cost, policy, constraints);
        if (of.bytes() == 0) return;
        CHECK(fits(of, ends_of(of, made), cost, constraints));
        CHECK(made.finish() >= best * (1 - rounding));
        if (!made.certificate()) return;
        ++certified;
        CHECK_MESSAGE(made.finish() - best <= *made.certificate() + rounding * best, policy);
      } catch (gs::invalid_argument const& problem) {
        CHECK_MESSAGE(!std::isfinite(best),
                      policy << ": " << problem.what());  // these costs rise: all can avoid infinity
      }
    };
    auto const check_both = [&](auto const& policy) {
      check(straight, policy);
      check(bent, policy);
    };
    check_both(gs::optimal{});
    check_both(gs::wfbp{});
    check_both(gs::single{});
    check_both(gs::fixed_bucket{.first = some_size(random, of), .cap = some_size(random, of)});
    check_both(gs::fusion_buffer{.cycle = 3 * random.uniform(), .cap = some_size(random, of)});
    check_both(gs::mgwfbp{});
    check_both(gs::free_merge{});
    check(straight, tools::robust{.a = 1 + 1e3 * random.uniform(), .b = 1 + 1e3 * random.uniform()});
  }
  CHECK(certified > 10'000);
}

TEST_CASE("rules that know no cost end a group before it becomes infinite") {
  gs::trace const of{std::vector<gs::traced_layer>(10, {"l", 2, 1, 0, 0})};
  auto const up_to = [](std::uint64_t most) {
    return [=](std::uint64_t bytes) { return bytes > most ? infinity : 1.0; };
  };
  auto const ends = [&](auto const& cost, auto const& policy) { return ends_of(of, gs::make_plan(of, cost, policy)); };
  CHECK(ends(up_to(20), gs::single{}) == groups{10});
  CHECK(ends(up_to(7), gs::single{}) == groups{3, 6, 9, 10});
  CHECK(ends(up_to(7), gs::fixed_bucket{.first = 4, .cap = 10}) == groups{2, 5, 8, 10});
  CHECK(ends(up_to(7), gs::fusion_buffer{.cycle = 5}) == groups{3, 5, 8, 10});
  auto const four_or_six = [](std::uint64_t bytes) { return bytes == 4 || bytes == 6 ? 1.0 : not_a_number; };
  CHECK(ends(four_or_six, gs::fixed_bucket{.first = 4, .cap = 4}) == groups{2, 4, 6, 8, 10});
  CHECK(ends(four_or_six, gs::fixed_bucket{.first = 4, .cap = 10}) == groups{2, 5, 8, 10});
  CHECK(ends(four_or_six, gs::optimal{}).back() == 10);
  auto const refused = [&](auto const& policy) {
    CHECK_THROWS_WITH_AS((void)gs::make_plan(of, four_or_six, policy),
                         "gradsieve: a group of 2 bytes costs nan seconds, expected a finite number",
                         gs::invalid_argument);
  };
  refused(gs::wfbp{});
  refused(gs::single{});  // three at a time leave one over
  refused(gs::mgwfbp{});
  CHECK_THROWS_AS((void)gs::make_plan(of, up_to(1), gs::single{}), gs::invalid_argument);
}

TEST_CASE("sparse exchanges and two halves avoid what is forbidden, and are the best of the others") {
  data::generator random{14};
  tally sparse;
  tally halves;
  for (int n = 0; n < 3000; ++n) {
    auto const of = random_trace(random, 8, n % 2 == 0);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    function const cost = n % 2 == 0 ? rising(random, of, true) : uneven(random, of);
    tools::selection_seconds const selection{random.uniform(), 0.01 * random.uniform(), 0};
    auto const all = gradients_of(of);
    if (all.empty()) continue;
    auto const check = [&](auto const& policy, auto const& value, tally& went) {
      double best = infinity;
      for_every_cut(all.size(), [&](auto const& cut) {
        if (fits(of, cut, cost, constraints)) best = std::min(best, value(cut));
      });
      if (!std::isfinite(best)) {
        ++went.refused;
        CHECK_THROWS_WITH_AS((void)gs::make_plan(of, cost, policy, constraints), doctest::Contains("no plan is finite"),
                             gs::invalid_argument);
        return;
      }
      ++went.planned;
      auto const made = gs::make_plan(of, cost, policy, constraints);
      CHECK(fits(of, ends_of(of, made), cost, constraints));
      CHECK(value(ends_of(of, made)) <= best * (1 + rounding));
      CHECK(made.certificate() == 0.0);
    };
    gs::arrivals const in{of, constraints};
    check(
        tools::optimal_sparse{selection, 1000},
        [&](groups const& cut) { return finish_of_sparse(all, cut, cost, selection); }, sparse);
    for (double const share : {0.0, 0.4, 1.0}) {  // period() itself is checked beside optimal_rs_ag
      tools::optimal_rs_ag const policy{share, 1000};
      check(policy, [&](groups const& cut) { return policy.period(in, cut, cost); }, halves);
    }
  }
  CHECK(sparse.planned > 1500);
  CHECK(sparse.refused > 100);
  CHECK(halves.planned > 5000);
}

TEST_CASE("negative costs are refused, and so are plans that cannot be") {
  gs::trace const of{{"a", 4, 1, 0, 0}, {"none", 0, 1, 0, 0}, {"b", 4, 1, 0, 0}, {"c", 8, 1, 0, 0}};
  auto const check = [&](auto const& policy) {
    for (double const wrong : {-1.0, -1e-300, -infinity})
      CHECK_THROWS_WITH_AS((void)gs::make_plan(
                               of, [=](std::uint64_t) { return wrong; }, policy),
                           doctest::Contains("seconds, expected 0 or more"), gs::invalid_argument);
    for (double const none : {infinity, not_a_number, -not_a_number})
      CHECK_THROWS_AS((void)gs::make_plan(of, [=](std::uint64_t) { return none; }, policy), gs::invalid_argument);
    CHECK_THROWS_AS((void)gs::make_plan(of, [](std::uint64_t) { return 1.7e308; }, gs::wfbp{}), gs::invalid_argument);
    CHECK(gs::make_plan(of, [](std::uint64_t) { return -0.0; }, policy).finish() == 4);
    CHECK(gs::make_plan(gs::trace{}, [](std::uint64_t) { return infinity; }, policy).groups().empty());
    gs::trace const empty{{"a", 0, 1, 0, 0}};
    CHECK(gs::make_plan(empty, [](std::uint64_t) { return infinity; }, policy).finish() == 1);
  };
  check(gs::wfbp{});
  check(gs::single{});
  check(gs::fixed_bucket{});
  check(gs::fusion_buffer{});
  check(gs::mgwfbp{});
  check(gs::free_merge{});
  check(gs::optimal{});
  check(gs::optimal{gs::ties::latest});
  check(tools::optimal_sparse{});
  check(tools::optimal_rs_ag{});
  auto const not_the_last = [](std::uint64_t bytes) { return bytes >= 8 ? infinity : 1.0; };
  CHECK_THROWS_WITH_AS(
      (void)gs::make_plan(of, not_the_last),
      "gradsieve: no plan is finite: each has a group of infinite or NaN cost; there is a finite one for the first 3 "
      "of 4 layers only",
      gs::invalid_argument);
  // A cost that is negative where no plan needs it, met on the way.
  CHECK_THROWS_WITH_AS((void)gs::make_plan(of, [](std::uint64_t bytes) { return bytes == 16 ? -2.0 : 1.0; }),
                       "gradsieve: a group of 16 bytes costs -2 seconds, expected 0 or more", gs::invalid_argument);
}

TEST_CASE("noise in a table: the running maximum") {
  gs::table const noisy{{{1, 1.0}, {2, 0.5}, {3, 2.0}, {4, 1.99}}};
  CHECK_THROWS_AS(noisy.check(), gs::invalid_argument);
  CHECK(noisy.rising() == gs::table{{{1, 1.0}, {2, 1.0}, {3, 2.0}, {4, 2.0}}});
  noisy.rising().check();
}

TEST_CASE("a table that ends") {
  gs::table const cost{{{10, 1}, {20, 2}, {30, infinity}, {40, infinity}}};
  CHECK_NOTHROW(cost.check());
  CHECK(cost(15) == 1.5);
  CHECK(cost(20) == 2);
  for (std::uint64_t const bytes : {21u, 30u, 31u, 40u, 1000u}) CHECK(cost(bytes) == infinity);
  CHECK(gs::table{{{10, infinity}}}(5) == infinity);
  CHECK(gs::table{{{10, 0}, {20, 1e308}}}(std::uint64_t{1} << 52) == infinity);
  gs::trace const of{std::vector<gs::traced_layer>(6, {"l", 8, 1, 0, 0})};
  CHECK(ends_of(of, gs::make_plan(of, cost, gs::single{})) == groups{2, 4, 6});
  for (gs::table const& wrong : {gs::table{{{10, infinity}, {20, 1}}}, gs::table{{{10, not_a_number}}},
                                 gs::table{{{10, -infinity}}}, gs::table{{{10, 1}, {20, not_a_number}}}})
    CHECK_THROWS_AS(wrong.check(), gs::invalid_argument);
}

TEST_CASE("plans of 1e300 seconds are plans") {
  gs::trace const of{{"a", 4, 1, 0, 0}, {"b", 4, 1, 0, 0}};
  auto const made = gs::make_plan(of, [](std::uint64_t bytes) { return bytes > 4 ? 1e300 : 1e290; });
  CHECK(made.finish() == 2e290);
  CHECK(gs::plan::from_bytes(made.to_bytes()) == made);
}

TEST_CASE("the simulator needs the costs of the pieces that it sends, and no others") {
  gs::trace const of{{"a", 8, 1, 1, 0}, {"b", 8, 1, 1, 0}};
  auto const eights = [](std::uint64_t bytes) { return bytes == 8 ? 2.0 : not_a_number; };
  auto const made = gs::make_plan(of, eights);
  CHECK(made.groups().size() == 2);
  tools::simulation_options options;
  for (options.streams = 1; options.streams < 3; ++options.streams)
    CHECK(tools::simulate(of, made, eights, options).metrics.iteration ==
          doctest::Approx(of.forward() + made.finish() - (options.streams - 1)));
  options.chunk = 4;
  CHECK_THROWS_WITH_AS((void)tools::simulate(of, made, eights, options),
                       "gradsieve: a group of 4 bytes costs nan seconds, expected a finite number",
                       gs::invalid_argument);
  for (double const wrong : {-1.0, infinity, not_a_number})
    CHECK_THROWS_AS((void)tools::simulate(of, made, [=](std::uint64_t) { return wrong; }), gs::invalid_argument);
}
