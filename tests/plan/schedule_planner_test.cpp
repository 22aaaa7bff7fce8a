// Planners against all partitions, against each other, and against what is known of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "../../examples/simulate/optimal_rs_ag.hpp"
#include "../../examples/simulate/optimal_sparse.hpp"
#include "../../examples/simulate/robust.hpp"
#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

namespace {

auto const is_about = [](double value, double expected) { return value == doctest::Approx(expected).epsilon(1e-9); };

/// The layers of a trace by when they are ready.
gs::trace ready_at(std::vector<std::pair<double, std::uint64_t>> const& pairs) {
  std::vector<gs::traced_layer> layers;
  double before = 0;
  for (auto const& [ready, bytes] : pairs) {
    layers.push_back({"l", bytes, ready - before, 0, 0});
    before = ready;
  }
  return gs::trace{layers};
}

template <class Policy, class Cost>
std::vector<std::size_t> ends(gs::trace const& of, Cost const& cost, Policy const& policy) {
  return ends_of(of, gs::make_plan(of, cost, policy));
}

using groups = std::vector<std::size_t>;

/// The published greedy as it is published: all start times anew after each merge.
groups greedy_anew(std::vector<gradient> all, gs::affine const& cost) {
  std::vector<bool> merged(all.size(), false);
  auto const starts = [&] {
    std::vector<double> start(all.size());
    double through = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      start[i] = std::max(through, all[i].ready);
      through = merged[i] ? start[i] : start[i] + cost(all[i].bytes);
    }
    return start;
  };
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    auto const start = starts();
    if (all[i + 1].ready - start[i] >= cost.a) continue;
    merged[i] = true;
    all[i + 1].bytes += all[i].bytes;
  }
  groups ends;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (!merged[i]) ends.push_back(i + 1);
  return ends;
}

/// Any cost that is not one of the library's: the general planner.
template <class Cost>
auto opaque(Cost const& cost) {
  return [cost](std::uint64_t bytes) { return cost(bytes); };
}

}  // namespace

TEST_CASE("the greedy's counter-examples") {
  gs::affine const halves{1, 0.5};  // the sizes are doubled, so that they are whole
  auto const x1 = ready_at({{0, 2}, {0.5, 1}, {1, 1}, {2, 2}});
  CHECK(gs::make_plan(x1, halves, gs::wfbp{}).finish() == 7);
  CHECK(gs::make_plan(x1, halves, gs::single{}).finish() == 6);
  CHECK(gs::make_plan(x1, halves, gs::mgwfbp{}).finish() == 6);
  CHECK(ends(x1, halves, gs::mgwfbp{}) == groups{3, 4});
  for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
    CHECK(gs::make_plan(x1, halves, gs::optimal{rule}).finish() == 5);
    CHECK(ends(x1, halves, gs::optimal{rule}) == groups{1, 4});
  }

  gs::affine const whole{1, 1};
  auto const x2 = ready_at({{0, 1}, {0.9, 1}, {2, 1}});
  CHECK(is_about(gs::make_plan(x2, whole, gs::mgwfbp{}).finish(), 5.9));
  CHECK(is_about(gs::make_plan(x2, whole).finish(), 5));
  CHECK(ends(x2, whole, gs::optimal{}) == groups{1, 3});

  gs::affine const fast{1, 0.01};
  auto const x3 = ready_at({{0, 1}, {0.1, 1}});
  CHECK(is_about(gs::make_plan(x3, fast, gs::mgwfbp{}).finish(), 1.12));
  CHECK(is_about(gs::make_plan(x3, fast).finish(), 1.12));
  CHECK(is_about(gs::make_plan(x3, fast, gs::free_merge{}).finish(), 2.02));
}

TEST_CASE("where gradients arrive faster than a startup the greedy waits for all of them") {
  gs::trace const drift{std::vector<gs::traced_layer>(2000, {"l", 1, 0.9, 0, 0})};
  gs::affine const cost{1, 0.85};
  auto const greedy = gs::make_plan(drift, cost, gs::mgwfbp{});
  CHECK(greedy.groups().size() == 1);
  CHECK(is_about(greedy.finish(), 3501));
  CHECK(std::abs(gs::make_plan(drift, cost).finish() - 1818) < 0.5);
  CHECK(*greedy.certificate() >= greedy.finish() - gs::make_plan(drift, cost).finish());
}

TEST_CASE("optimal is the best of all partitions, under constraints too") {
  data::generator random{1};
  int capped = 0;
  for (int n = 0; n < 12'000; ++n) {
    bool const round = n % 2 == 0;
    auto const of = random_trace(random, 12, round);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    auto const rule = n % 4 < 2 ? gs::ties::fewest_groups : gs::ties::latest;
    capped += constraints.most_bytes < of.bytes();
    auto const check = [&](auto const& cost) {
      auto const made = gs::make_plan(of, cost, gs::optimal{rule}, constraints);
      auto const all = gradients_of(of);
      auto const found = ends_of(of, made);
      bool fits = true;
      for (std::size_t g = 0, begin = 0; g < found.size(); begin = found[g++])
        fits = fits && allowed(all, begin, found[g], constraints);
      CHECK_MESSAGE(fits, made);
      double const best = brute_force(of, cost, constraints);
      CHECK_MESSAGE(is_about(finish(all, found, cost), best), made << ", the best is " << best);
      if (!all.empty()) CHECK(is_about(made.finish(), best));
      CHECK(made.certificate() == 0.0);
    };
    switch (n % 5) {
      case 0:
      case 1:
        check(random_affine(random, round));
        break;
      case 2:
        check(opaque(random_affine(random, round)));
        break;
      case 3:
        check(gs::envelope{{random_affine(random, round), random_affine(random, round)}});
        break;
      default: {
        gs::table cost;
        double seconds = 0;
        std::uint64_t bytes = 0;
        for (std::uint64_t p = 0; p < 1 + random.below(4); ++p)
          cost.points.push_back({bytes += 1 + random.below(round ? 4 : 900), seconds += random.uniform()});
        check(cost);
      }
    }
  }
  CHECK(capped > 1000);
}

TEST_CASE("with affine costs no optimal partition has fewer groups, none of the others begins its last one later") {
  data::generator random{9};
  int fewer = 0;
  for (int n = 0; n < 3000; ++n) {
    auto const of = random_trace(random, 11, true);
    auto const cost = random_affine(random, true);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    auto const all = gradients_of(of);
    if (all.empty()) continue;
    double const best = brute_force(of, cost, constraints);
    std::size_t fewest = all.size();
    std::size_t last = 0;
    for_every_cut(all.size(), [&](auto const& cut) {
      bool fits = finish(all, cut, cost) == best;  // all numbers are multiples of 1/64
      for (std::size_t g = 0, begin = 0; fits && g < cut.size(); begin = cut[g++])
        fits = allowed(all, begin, cut[g], constraints);
      if (!fits) return;
      fewest = std::min(fewest, cut.size());
      last = std::max(last, cut.size() > 1 ? cut[cut.size() - 2] : 0);
    });
    auto const few = ends_of(of, gs::make_plan(of, cost, gs::optimal{gs::ties::fewest_groups}, constraints));
    auto const late = ends_of(of, gs::make_plan(of, cost, gs::optimal{gs::ties::latest}, constraints));
    CHECK(few.size() == fewest);
    CHECK((late.size() > 1 ? late[late.size() - 2] : 0) == last);
    fewer += few.size() < late.size();
  }
  CHECK(fewer > 300);
}

TEST_CASE("the queues find what all pairs find") {
  data::generator random{2};
  for (int n = 0; n < 600; ++n) {
    bool const round = n % 2 == 0;
    auto const of = random_trace(random, n < 500 ? 100 : 600, round);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    auto const same = [&](auto const& cost) {
      for (auto const rule : {gs::ties::fewest_groups, gs::ties::latest}) {
        auto const quick = gs::make_plan(of, cost, gs::optimal{rule}, constraints);
        auto const slow = gs::make_plan(of, opaque(cost), gs::optimal{rule}, constraints);
        CHECK(is_about(quick.finish(), slow.finish()));
        if (round) CHECK_MESSAGE(quick.hash() == slow.hash(), quick << " and " << slow);  // ties are ties in both
      }
    };
    auto const cost = random_affine(random, round);
    same(cost);
    if (n % 2 == 0) same(gs::envelope{{cost, random_affine(random, round), random_affine(random, round)}});
  }
}

TEST_CASE("mgwfbp is the published rule, and its certificate holds") {
  data::generator random{3};
  int suboptimal = 0;
  int certified = 0;
  for (int n = 0; n < 10'000; ++n) {
    bool const round = n % 2 == 0;
    auto of = random_trace(random, 11, round);
    auto const cost = random_affine(random, round);
    gs::merge_constraints const mixed{
        .most_bytes = std::numeric_limits<std::uint64_t>::max(), .barriers = {}, .mix_dtypes = true};
    gs::arrivals const in{of, mixed};
    auto const made = gs::mgwfbp{}(in, cost);
    auto const all = gradients_of(of);
    if (all.empty()) continue;
    CHECK(made.ends == greedy_anew(all, cost));
    double const best = brute_force(of, cost, mixed);
    double const excess = finish(all, made.ends, cost) - best;
    CHECK(made.certificate.has_value());
    CHECK(excess <= *made.certificate + 1e-9 * best);
    suboptimal += excess > 1e-9 * best;
    certified += *made.certificate == 0;

    // the sum of the waits alone, without the other bound
    double waited = 0;
    double start = all[0].ready;
    for (std::size_t i = 1, g = 0, begin = 0; i < all.size(); ++i) {
      if (made.ends[g] == i) {
        start = std::max(start + cost(bytes_of(all, begin, i)), all[i].ready);
        begin = made.ends[g++];
      } else {
        waited += std::max(0.0, all[i].ready - start);
        start = std::max(start, all[i].ready);
      }
    }
    CHECK(excess <= waited + 1e-9 * best);
    CHECK(*made.certificate <= waited + 1e-9 * best);
  }
  CHECK(suboptimal > 300);
  CHECK(certified > 1000);
}

TEST_CASE("what is known about every plan") {
  data::generator random{4};
  for (int n = 0; n < 3000; ++n) {
    bool const round = n % 2 == 0;
    auto const of = random_trace(random, 40, round);
    auto const cost = random_affine(random, round);
    auto const constraints = n % 3 == 0 ? random_constraints(random, of) : gs::merge_constraints{};
    double const best = gs::make_plan(of, cost, gs::optimal{}, constraints).finish();
    auto const all = gradients_of(of);
    auto const check = [&](auto const& policy) {
      auto const made = gs::make_plan(of, cost, policy, constraints);
      auto const found = ends_of(of, made);
      CHECK(made.finish() >= best * (1 - 1e-9));
      if (!all.empty()) CHECK(is_about(made.finish(), finish(all, found, cost)));
      for (std::size_t g = 0, begin = 0; g < found.size(); begin = found[g++])
        CHECK_MESSAGE(allowed(all, begin, found[g], constraints), policy);
      if (made.certificate()) CHECK(made.finish() - best <= *made.certificate() + 1e-9 * best);
    };
    check(gs::wfbp{});
    check(gs::single{});
    check(gs::mgwfbp{});
    check(gs::free_merge{});
    check(gs::fixed_bucket{.first = 3, .cap = 1 + random.below(3000)});
    check(gs::fusion_buffer{.cycle = 0.3, .cap = 1 + random.below(3000)});
    check(tools::robust{});

    if (!all.empty() && n % 3 != 0) {  // without constraints
      gs::merge_constraints mixed;
      mixed.mix_dtypes = true;
      CHECK(gs::make_plan(of, cost, gs::single{}, mixed).finish() <=
            2 * gs::make_plan(of, cost, gs::optimal{}, mixed).finish() * (1 + 1e-9));
    }
  }
}

TEST_CASE("merging what is ready together costs nothing") {
  data::generator random{5};
  for (int n = 0; n < 2000; ++n) {
    auto const of = random_trace(random, 30, n % 2 == 0);
    auto const cost = random_affine(random, n % 2 == 0);
    gs::merge_constraints mixed;
    mixed.mix_dtypes = true;
    std::vector<gs::traced_layer> fused;
    for (auto const& each : of) {
      if (!fused.empty() && each.backward == 0)
        fused.back().bytes += each.bytes;
      else
        fused.push_back(each);
    }
    double const before = gs::make_plan(of, cost, gs::optimal{}, mixed).finish();
    double const after = gs::make_plan(gs::trace{fused}, cost, gs::optimal{}, mixed).finish();
    if (of.bytes() > 0) CHECK(is_about(after, before));
  }
}

TEST_CASE("fixed rules cut where they say") {
  auto const mib = std::uint64_t{1} << 20;
  std::vector<gs::traced_layer> layers;
  for (int l = 0; l < 40; ++l) layers.push_back({"l", 2 * mib, 1e-3, 0, 0});
  gs::trace const of{layers};
  gs::affine const cost{1e-3, 1e-9};
  CHECK(ends(of, cost, gs::wfbp{}).size() == 40);
  CHECK(ends(of, cost, gs::single{}) == groups{40});
  CHECK(ends(of, cost, gs::fixed_bucket{}) == groups{1, 14, 27, 40});  // 25 MiB are reached by the 13th
  CHECK(ends(of, cost, gs::fixed_bucket{.first = 5 * mib, .cap = 5 * mib}).front() == 3);
  CHECK(ends(of, cost, gs::fusion_buffer{.cycle = 1e-3, .cap = 128 * mib}).size() == 40);
  CHECK(ends(of, cost, gs::fusion_buffer{.cycle = 1, .cap = 10 * mib}) == groups{5, 10, 15, 20, 25, 30, 35, 40});
  gs::merge_constraints fourth;
  fourth.barriers = {4};
  CHECK(ends_of(of, gs::make_plan(of, cost, gs::single{}, fourth)) == groups{4, 40});
}

TEST_CASE("between equal plans the rule decides") {
  gs::trace const of{std::vector<gs::traced_layer>(6, {"l", 1, 1, 0, 0})};
  CHECK(ends(of, gs::affine{0, 2}, gs::optimal{gs::ties::fewest_groups}) == groups{1, 3, 6});
  CHECK(ends(of, gs::affine{0, 2}, gs::optimal{gs::ties::latest}) == groups{1, 2, 3, 4, 5, 6});
  CHECK(ends(of, gs::affine{1, 0}, gs::optimal{gs::ties::fewest_groups}) == groups{6});
  CHECK(ends(of, gs::affine{1, 0}, gs::optimal{gs::ties::latest}) == groups{1, 2, 3, 4, 5, 6});
  CHECK(ends(of, gs::affine{0, 0}, gs::optimal{}) == groups{6});
}

TEST_CASE("nothing, one layer, no bytes, one worker") {
  gs::affine const cost{1, 1};
  auto const check = [&](auto const& policy) {
    CHECK(gs::make_plan(gs::trace{}, cost, policy).groups().empty());
    gs::trace const empty{{"a", 0, 1, 0, 0}, {"b", 0, 2, 0, 0}};
    auto const nothing = gs::make_plan(empty, cost, policy);
    REQUIRE(nothing.groups().size() == 1);
    CHECK(nothing.groups()[0].bytes == 0);
    CHECK(nothing.finish() == 3);
    gs::trace const one{{"a", 0, 1, 0, 0}, {"b", 4, 2, 0, 0}, {"c", 0, 5, 0, 0}};
    auto const made = gs::make_plan(one, cost, policy);
    REQUIRE(made.groups().size() == 1);
    CHECK(made.groups()[0].end == 3);  // nobody waits for the layer behind it
    CHECK(made.groups()[0].start == 3);
    CHECK(made.finish() >= 5);
  };
  check(gs::wfbp{});
  check(gs::single{});
  check(gs::mgwfbp{});
  check(gs::free_merge{});
  check(gs::fixed_bucket{});
  check(gs::fusion_buffer{});
  check(gs::optimal{});
  check(tools::robust{});
  check(tools::optimal_sparse{});
  check(tools::optimal_rs_ag{});
  gs::trace const two{{"a", 3, 1, 0, 0}, {"b", 4, 2, 0, 0}};
  CHECK(gs::make_plan(two, tools::network_named("1gbe").cost(1)).finish() == 3);
}

TEST_CASE("sparse exchanges: the best of all partitions, with the selection on the compute stream") {
  data::generator random{6};
  for (int n = 0; n < 2000; ++n) {
    auto const of = random_trace(random, 9, n % 2 == 0);
    auto const cost = random_affine(random, n % 2 == 0);
    tools::selection_seconds const selection{random.uniform(), 0.01 * random.uniform(),
                                          n % 3 == 0 ? 0.01 * random.uniform() : 0};
    gs::merge_constraints mixed;
    mixed.mix_dtypes = true;
    auto const all = gradients_of(of);
    if (all.empty()) continue;
    double best = std::numeric_limits<double>::infinity();
    for_every_cut(all.size(),
                  [&](auto const& cut) { best = std::min(best, finish_of_sparse(all, cut, cost, selection)); });
    auto const made = gs::make_plan(of, cost, tools::optimal_sparse{selection, 1000}, mixed);
    CHECK(is_about(made.finish(), best));
    CHECK(made.certificate() == 0.0);
    auto const thinned = gs::make_plan(of, cost, tools::optimal_sparse{selection, 2}, mixed);
    CHECK(thinned.finish() >= best * (1 - 1e-9));
    if (thinned.certificate()) CHECK(is_about(thinned.finish(), best));
  }
}

TEST_CASE("two halves: the best period of all partitions") {
  data::generator random{7};
  int better = 0;
  for (int n = 0; n < 2000; ++n) {
    auto const of = random_trace(random, 9, n % 2 == 0);
    auto const cost = random_affine(random, n % 2 == 0);
    gs::merge_constraints mixed;
    mixed.mix_dtypes = true;
    auto const all = gradients_of(of);
    if (all.empty()) continue;
    double const share = n % 5 == 0 ? 0.3 : 0.5;
    auto const period = [&](std::vector<std::size_t> const& cut) {
      double reduced = 0;
      std::size_t begin = 0;
      for (auto const each : cut) {
        reduced = std::max(reduced, all[each - 1].ready) + share * cost(bytes_of(all, begin, each));
        begin = each;
      }
      // all-gathers from the input on; a group's forward waits for its own
      double now = std::max(reduced, of.backward());
      double computed = now;
      for (std::size_t g = cut.size(); g-- > 0;) {
        std::size_t const from = g == 0 ? 0 : cut[g - 1];
        now += (1 - share) * cost(bytes_of(all, from, cut[g]));
        computed = std::max(computed, now) + all[cut[g] - 1].forward - (from == 0 ? 0 : all[from - 1].forward);
      }
      return computed;
    };
    double best = std::numeric_limits<double>::infinity();
    for_every_cut(all.size(), [&](auto const& cut) { best = std::min(best, period(cut)); });
    tools::optimal_rs_ag const policy{share, 1000};
    gs::arrivals const in{of, mixed};
    auto const made = policy(in, cost);
    CHECK(is_about(period(made.ends), best));
    CHECK(is_about(policy.period(in, made.ends, cost), best));
    auto const whole = ends_of(of, gs::make_plan(of, cost, gs::optimal{}, mixed));
    better += period(whole) > best * (1 + 1e-6);
  }
  CHECK(better > 100);
}

TEST_CASE("robust is never worse in its worst case than the plan for the given cost") {
  data::generator random{8};
  int better = 0;
  for (int n = 0; n < 500; ++n) {
    auto const of = random_trace(random, 30, false, false);
    if (of.count() == 0) continue;
    gs::affine const cost{random.uniform(), random.uniform() / 500};
    gs::merge_constraints mixed;
    mixed.mix_dtypes = true;
    gs::arrivals const in{of, mixed};
    auto const safe = tools::robust{.a = 3, .b = 2}(in, cost);
    auto const usual = gs::optimal{}(in, cost);
    double worst_safe = 1;
    double worst_usual = 1;
    for (double const x : {1.0 / 3, 1.0, 3.0})
      for (double const y : {0.5, 1.0, 2.0}) {
        gs::affine const turned_out{cost.a * x, cost.b * y};
        double const best = gs::finish_of(in, gs::optimal{}(in, turned_out).ends, turned_out);
        worst_safe = std::max(worst_safe, gs::finish_of(in, safe.ends, turned_out) / best);
        worst_usual = std::max(worst_usual, gs::finish_of(in, usual.ends, turned_out) / best);
      }
    CHECK(worst_safe <= worst_usual * (1 + 1e-9));
    better += worst_safe < worst_usual * (1 - 1e-6);
  }
  CHECK(better > 50);
}

TEST_CASE("planners refuse what is out of their limits") {
  gs::trace const of{{"a", 4, 1, 0, 0}, {"b", 4, 1, 0, 0}};
  gs::affine const cost{1, 1};
  CHECK_THROWS_WITH_AS((void)gs::make_plan(of, gs::affine{-1, 1}), doctest::Contains("-1"), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, gs::affine{1, not_a_number}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, gs::affine{infinity, 1}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, gs::envelope{}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, gs::table{{{4, 2}, {3, 3}}}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, gs::table{{{3, 2}, {4, 1}}}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, [](std::uint64_t) { return std::nan(""); }), gs::invalid_argument);
  gs::merge_constraints wrong;
  wrong.barriers = {3};
  CHECK_THROWS_WITH_AS((void)gs::make_plan(of, cost, gs::optimal{}, wrong), doctest::Contains("layer 3 of 2"),
                       gs::invalid_argument);
  gs::merge_constraints none;
  none.most_bytes = 0;
  CHECK_THROWS_AS((void)gs::make_plan(of, cost, gs::optimal{}, none), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, cost, gs::fusion_buffer{.cycle = 0}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::robust{.a = 0.5}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::optimal_rs_ag{.share = 2}), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::make_plan(of, cost, tools::optimal_sparse{.most_labels = 1}), gs::invalid_argument);
}

TEST_CASE("a plan is the same in every build") {
  // Found once; another compiler, other optimisation or another rounding shows here.
  auto const of = shipped("resnet50");
  auto const made = gs::make_plan(of, tools::network_named("v100-10gbe").cost(64));
  CHECK_MESSAGE(made.hash() == 574'141'064'478'386'527u, made.hash());
}

TEST_CASE("on the shipped traces nothing is ahead of optimal, on any network, for any number of workers") {
  for (auto const* name : {"resnet50", "resnet152", "vgg16", "densenet161", "densenet201", "inception_v4", "bert_base",
                           "bert_large", "gpt2", "lstm"}) {
    auto const of = shipped(name);
    for (auto const& network : tools::networks()) {
      double before = 0;
      for (int workers = 4; workers <= 2048; workers *= 2) {
        auto const cost = network.cost(workers);
        auto const best = gs::make_plan(of, cost);
        CHECK(is_about(gs::make_plan(of, cost, gs::optimal{gs::ties::latest}).finish(), best.finish()));
        double const limit = best.finish() * (1 - 1e-9);
        auto const wfbp = gs::make_plan(of, cost, gs::wfbp{});
        bool const ahead = gs::make_plan(of, cost, gs::mgwfbp{}).finish() < limit || wfbp.finish() < limit ||
                           gs::make_plan(of, cost, gs::single{}).finish() < limit ||
                           gs::make_plan(of, cost, gs::fixed_bucket{}).finish() < limit ||
                           gs::make_plan(of, cost, gs::fusion_buffer{}).finish() < limit ||
                           gs::make_plan(of, cost, gs::free_merge{}).finish() < limit ||
                           gs::make_plan(of, cost, tools::robust{}).finish() < limit;
        CHECK_MESSAGE(!ahead, name << " on " << network.name << ", " << workers);
        if (workers >= 32) CHECK(wfbp.finish() >= before * (1 - 1e-9));  // grows with the startups
        before = wfbp.finish();
      }
    }
  }
}

TEST_CASE("the shape of the curves: rings make the greedy wait, trees do not") {
  auto const of = shipped("resnet50");
  auto const ring = tools::network_named("v100-10gbe");
  auto const tree = tools::network_named("v100-10gbe-tree");
  auto const ms = [&](tools::network const& on, int workers, auto const& policy) {
    return 1e3 * gs::make_plan(of, on.cost(workers), policy).finish();
  };
  auto const near = [](double value, double expected) { return std::abs(value - expected) <= 0.51; };
  CHECK(near(ms(ring, 16, gs::wfbp{}), 222));
  CHECK(near(ms(ring, 16, gs::single{}), 245));
  CHECK(std::abs(ms(ring, 16, gs::mgwfbp{}) - 169.5) < 0.051);
  CHECK(std::abs(ms(ring, 16, gs::optimal{}) - 169.5) < 0.051);
  CHECK(near(ms(ring, 64, gs::wfbp{}), 694));
  CHECK(std::abs(ms(ring, 64, gs::mgwfbp{}) - 172.5) < 0.051);
  CHECK(std::abs(ms(ring, 64, gs::optimal{}) - 172.4) < 0.051);
  CHECK(std::abs(ms(ring, 128, gs::mgwfbp{}) - 256.3) < 0.051);  // one group
  CHECK(std::abs(ms(ring, 128, gs::optimal{}) - 176.4) < 0.051);
  CHECK(near(ms(ring, 2048, gs::wfbp{}), 20031));
  CHECK(near(ms(ring, 2048, gs::optimal{}), 345));
  CHECK(near(ms(tree, 2048, gs::wfbp{}), 478));
  CHECK(near(ms(tree, 2048, gs::single{}), 247));
  CHECK(std::abs(ms(tree, 2048, gs::mgwfbp{}) - 171.1) < 0.051);
  CHECK(std::abs(ms(tree, 2048, gs::optimal{}) - 171.1) < 0.051);
}
