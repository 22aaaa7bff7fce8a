// Groups of a plan, exchanged while gradients arrive: the same result as without overlap, in plan order, without a
// deadlock, whatever the order in which layers are ready.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/overlap.hpp>

#include "allocations.hpp"
#include "data.hpp"
#include "groups.hpp"
#include "steps.hpp"
#include "watchdog.hpp"

namespace gs = gradsieve;
using groups::backwards;
using groups::one_by_one;
using groups::order_type;
using groups::plan_of;
using groups::shuffle;
using groups::some_borders;
using steps::communicator;

namespace {

auto const sparse_recipe = gs::recipe{.density = 0.05};
auto const deft_recipe = gs::recipe{.density = 0.05, .selector = gs::laplacian{}, .partitioner = gs::deft{}};

template <class Recipe>
auto compressors_of(Recipe const& recipe) {
  return [recipe](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
}
auto const dense_means = [](gs::layout const&) { return gs::dense_mean{}; };

/// Four steps with layers ready in any order, another one on every rank, against the same without overlap.
template <class Make>
void check_same(int ranks, order_type const& plan_order, Make const& make) {
  auto const layers = steps::mixed_layers();
  data::generator random{static_cast<std::uint64_t>(ranks) * 31 + plan_order.front()};
  auto const chosen = plan_of(layers, plan_order, some_borders(layers.count(), random));
  auto const said = steps::on_ranks(ranks, [&](communicator comm) {
    steps::findings found;
    auto reference = one_by_one{layers, chosen, plan_order, make};
    auto tested = gs::overlap{gs::host{}, comm, layers, chosen, make, plan_order};
    data::generator mine{static_cast<std::uint64_t>(comm.rank()) + 77};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto expected = steps::gradient(layers.size(), comm.rank(), step);
      auto gradient = expected;
      auto whole = expected;
      reference.exchange(comm, expected);
      auto order = backwards(layers.count());
      shuffle(order, mine);
      tested.begin(gradient);
      for (auto const each : order) tested.ready(each);
      auto const report = tested.wait();
      found.expect(steps::same_bits(gradient, expected), "step " + std::to_string(step) + ": another result");
      if constexpr (std::same_as<typename decltype(tested)::exchange_type, gs::dense_mean>) {
        gs::dense_mean{}.exchange(comm, std::span{whole});
        found.expect(steps::same_bits(gradient, whole), "step " + std::to_string(step) + ": not the mean");
      }
      found.expect(report.exchanged.bytes_sent > 0 && report.busy >= 0 && report.exposed >= 0, "no report");
      found.expect(tested.report().exchanged.bytes_sent == report.exchanged.bytes_sent, "another report");
      for (std::size_t g = 1; g < tested.times().size(); ++g)
        found.expect(tested.times()[g].start >= tested.times()[g - 1].finish, "groups at the same time");
    }
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

/// Notes the order of the groups that go out, and fails where it is told to.
struct noted {
  std::uint64_t layers = 0;  ///< of the group, as a hash
  std::vector<std::uint64_t>* issued = nullptr;
  bool* fails = nullptr;

  gs::step_report exchange(communicator const& comm, std::span<float> gradient) {
    issued->push_back(layers);
    auto const report = gs::dense_mean{}.exchange(comm, gradient);
    if (fails && *fails) throw std::runtime_error("this exchange fails");
    return report;
  }
};

}  // namespace

TEST_CASE("the result is that of the same groups without overlap, bit by bit") {
  watchdog const guard{"equal results"};
  for (int const ranks : {1, 2, 5}) {
    auto const straight = backwards(9);
    order_type const scattered{3, 8, 0, 5, 1, 7, 2, 6, 4};  // groups of several pieces
    for (auto const& order : {straight, scattered}) {
      check_same(ranks, order, dense_means);
      check_same(ranks, order, compressors_of(sparse_recipe));
      check_same(ranks, order, compressors_of(deft_recipe));
    }
  }
}

TEST_CASE("no order in which layers are ready ends in a deadlock, on 1 to 8 ranks") {
  watchdog const guard{"random orders"};
  constexpr std::uint64_t runs = 1000;
  std::uint64_t wrong = 0;
  for (std::uint64_t run = 0; run < runs; ++run) {
    data::generator random{run + 1};
    int const ranks = static_cast<int>(run % 8) + 1;
    std::vector<gs::layer> list(random.below(12));
    for (auto& each : list) each.size = random.below(4) == 0 ? 0 : random.below(40);
    gs::layout const layers{list};
    auto plan_order = backwards(layers.count());
    if (run % 3 == 0) shuffle(plan_order, random);
    auto const chosen = plan_of(layers, plan_order, some_borders(layers.count(), random));
    std::atomic<std::uint64_t> bad{0};
    gs::threads::run(ranks, [&](communicator comm) {
      data::generator mine{run * 64 + static_cast<std::uint64_t>(comm.rank())};
      auto exchange = gs::overlap{comm, layers, chosen, dense_means, plan_order};
      std::vector<float> gradient(layers.size());
      for (int step = 0; step < 3; ++step) {
        std::fill(gradient.begin(), gradient.end(), static_cast<float>(comm.rank() + step));
        exchange.begin(gradient);
        auto order = backwards(layers.count());
        shuffle(order, mine);
        auto const half = static_cast<std::ptrdiff_t>(order.size() / 2);
        std::thread other{[&] {
          for (auto at = order.begin() + half; at != order.end(); ++at) exchange.ready(*at);
        }};
        for (auto at = order.begin(); at != order.begin() + half; ++at) exchange.ready(*at);
        other.join();
        exchange.wait();
        float const mean = static_cast<float>(ranks - 1) / 2 + static_cast<float>(step);
        for (float const value : gradient) bad += value == mean ? 0 : 1;
      }
    });
    wrong += bad;
  }
  CHECK(wrong == 0);
}

TEST_CASE("groups go out in the plan's order, whichever is complete first") {
  watchdog const guard{"plan order"};
  gs::layout const layers{{"a", 3}, {"b", 5}, {"c", 7}, {"d", 2}};
  auto const chosen = plan_of(layers, backwards(4), {1, 2, 4});  // {d} {c} {b, a}
  auto const said = steps::on_ranks(3, [&](communicator comm) {
    steps::findings found;
    std::vector<std::uint64_t> issued;
    auto exchange =
        gs::overlap{comm, layers, chosen, [&](gs::layout const& part) { return noted{part.hash(), &issued}; }};
    std::vector<float> gradient(layers.size());
    issued.reserve(6);
    for (auto const& order : std::array<order_type, 2>{{{0, 1, 2, 3}, {2, 0, 3, 1}}}) {
      exchange.begin(gradient);
      for (auto const each : order) exchange.ready(each);
      exchange.wait();
    }
    for (std::size_t g = 0; g < 6; ++g)
      found.expect(issued.size() == 6 && issued[g] == exchange.layers_of(g % 3).hash(), "another order");
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("a group goes out as soon as its layers are ready, before the step's end") {
  watchdog const guard{"early groups"};
  gs::layout const layers{{"a", 3}, {"b", 5}};
  std::vector<float> gradient(8, 2.0f);
  std::atomic<int> calls{0};
  struct counted {
    std::atomic<int>* calls;
    gs::step_report exchange(gs::self const&, std::span<float>) {
      ++*calls;
      return {};
    }
  };
  auto exchange = gs::overlap{gs::self{}, layers, plan_of(layers, {1, 0}, {1, 2}),
                              [&](gs::layout const&) { return counted{&calls}; }};
  exchange.begin(gradient);
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // its thread waits by now: ready() must wake it
  exchange.ready(1);
  while (calls < 1) std::this_thread::yield();  // the watchdog's if it never goes
  CHECK(calls == 1);
  exchange.ready(0);
  exchange.wait();
  CHECK(calls == 2);
}

TEST_CASE("layers that nothing used in a step go out as zero, also where other ranks used them") {
  watchdog const guard{"unused layers"};
  gs::layout const layers{{"a", 3}, {"b", 4}, {"c", 5}, {"d", 2}};
  auto const chosen = plan_of(layers, backwards(4), {1, 3, 4});
  auto const said = steps::on_ranks(4, [&](communicator comm) {
    steps::findings found;
    auto exchange = gs::overlap{comm, layers, chosen, dense_means};
    for (int step = 0; step < 3; ++step) {
      std::vector<float> gradient(layers.size(), 4.0f);  // of the step before, in layers that this one does not touch
      exchange.begin(gradient);
      exchange.ready(3);
      if (comm.rank() == 2) exchange.ready(1);
      if (step == 1) exchange.flush();
      exchange.wait();
      for (std::size_t i = 0; i < gradient.size(); ++i)
        found.expect(gradient[i] == (i >= 12 ? 4.0f : i >= 3 && i < 7 ? 1.0f : 0.0f), "element " + std::to_string(i));
    }
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("empty layers, groups and layouts, and a world of one") {
  watchdog const guard{"empty layers"};
  gs::layout const layers{{"a", 0}, {"b", 4}, {"c", 0}, {"d", 0}};
  auto const chosen = plan_of(layers, backwards(4), {1, 2, 4});
  for (int const ranks : {1, 3}) {
    auto const said = steps::on_ranks(ranks, [&](communicator comm) {
      steps::findings found;
      auto exchange = gs::overlap{comm, layers, chosen, compressors_of(gs::recipe{.density = 1.0})};
      for (bool const empty_too : {true, false}) {
        std::vector<float> gradient(4, 1.0f);
        exchange.begin(gradient);
        exchange.ready(1);
        if (empty_too)
          for (std::size_t const each : {0u, 2u, 3u}) exchange.ready(each);
        found.expect(exchange.wait().exchanged.baseline_bytes == 16, "another report");
        found.expect(gradient == std::vector<float>(4, 1.0f), "another result");
      }
      auto nothing = gs::overlap{comm, gs::layout{}, gs::plan{}, dense_means};
      nothing.begin({});
      nothing.wait();
      nothing.begin({});
      found.expect(nothing.wait().hidden() == 1, "nothing to hide");
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  }
}

TEST_CASE("no group waits for a layer that has no elements") {
  gs::layout const layers{{"a", 0}, {"b", 4}, {"c", 0}, {"d", 0}};
  gs::detail::tracker counter{plan_of(layers, backwards(4), {1, 3, 4})};  // {d} {c, b} {a}
  for (int step = 0; step < 2; ++step) {
    CHECK(counter.frontier() == 1);
    CHECK(counter.on_ready(1) == 1);  // c
    CHECK(counter.on_ready(2) == 3);  // b
    CHECK(counter.on_ready(0) == 3);
    CHECK_THROWS_AS(counter.on_ready(0), gs::invalid_argument);
    counter.flush([](std::size_t) { FAIL("nothing is missing"); });
    counter.reset();
  }
}

TEST_CASE("what an exchange throws comes out of wait(), and leaves no rank waiting") {
  watchdog const guard{"exceptions"};
  gs::layout const layers{{"a", 30}, {"b", 50}, {"c", 70}};
  auto const chosen = plan_of(layers, backwards(3), {1, 2, 3});

  SUBCASE("on one rank: the others do not notice, and the next step works") {
    auto const said = steps::on_ranks(3, [&](communicator comm) {
      steps::findings found;
      std::vector<std::uint64_t> issued;
      bool fails = comm.rank() == 1;
      auto exchange = gs::overlap{comm, layers, chosen, [&](gs::layout const& part) {
                                    return noted{0, &issued, part.begin()->name == "c" ? &fails : nullptr};
                                  }};
      for (bool const second : {false, true}) {
        std::vector<float> gradient(150, 1.0f);
        exchange.begin(gradient);
        for (std::size_t const each : {2u, 1u, 0u}) exchange.ready(each);
        auto const thrown = steps::ending([&] { exchange.wait(); });
        found.expect(thrown == (fails ? "exception: this exchange fails" : ""), "thrown: " + thrown);
        found.expect(issued.size() == (second ? 6u : 3u), "groups behind the failed one are missing");
        fails = false;
      }
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  }

  SUBCASE("a compressor that fails on one rank makes all ranks throw") {
    struct fails_if_told {
      gs::compressor<gs::host, gs::recipe<>> inner;
      bool* fails;
      gs::step_report exchange(communicator const& comm, std::span<float> gradient) {
        return inner.exchange(comm, gradient.first(gradient.size() - (*fails ? 1 : 0)));
      }
    };
    auto const said = steps::on_ranks(3, [&](communicator comm) {
      steps::findings found;
      bool fails = false;
      auto exchange = gs::overlap{comm, layers, chosen, [&](gs::layout const& part) {
                                    return fails_if_told{compressors_of(gs::recipe<>{})(part), &fails};
                                  }};
      for (int step = 0; step < 3; ++step) {
        fails = step == 1 && comm.rank() == 2;
        std::vector<float> gradient(150, 1.0f);
        exchange.begin(gradient);
        for (std::size_t const each : {2u, 1u, 0u}) exchange.ready(each);
        auto const thrown = steps::ending([&] { exchange.wait(); });
        found.expect(thrown.empty() == (step != 1), "step " + std::to_string(step) + ": " + thrown);
        if (fails) found.expect(steps::contains(thrown, "69 elements"), thrown);
      }
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  }

  SUBCASE("a rank whose transport is gone in mid-step ends the others' wait()") {
    gs::threads::group all{3};
    std::vector<std::string> said(3);
    auto const work = [&](int rank) {
      auto exchange = gs::overlap{all.communicator(rank), layers, chosen, dense_means};
      std::vector<float> gradient(150, 1.0f);
      exchange.begin(gradient);
      exchange.ready(2);
      if (rank == 1) {
        all.leave(1);
        exchange.cancel();  // finds nobody to cancel with, and returns
      } else {
        said[steps::at(rank)] = steps::ending([&] { exchange.wait(); });
      }
    };
    {
      std::vector<std::jthread> ranks;
      for (int r = 0; r < 3; ++r) ranks.emplace_back(work, r);
    }
    for (std::size_t const r : {0u, 2u})
      CHECK_MESSAGE(steps::contains(said[r], "communication_error: gradsieve: rank 1 has left"), said[r]);
  }
}

TEST_CASE("wrong use is refused") {
  watchdog const guard{"wrong use"};
  gs::layout const layers{{"a", 3}, {"b", 4}};
  gs::self const alone;
  auto const chosen = plan_of(layers, {1, 0}, {1, 2});
  auto exchange = gs::overlap{alone, layers, chosen, dense_means};
  std::vector<float> gradient(7, 1.0f);
  std::vector<float> shorter(6);
  CHECK_THROWS_WITH_AS(exchange.wait(), "gradsieve: flush() or wait(), but no step is open: call begin() first",
                       gs::invalid_argument);
  CHECK_THROWS_AS(exchange.flush(), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(exchange.ready(0), "gradsieve: layer 0 is ready, but no step is open: call begin() first",
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS(exchange.begin(shorter), "gradsieve: gradient has 6 elements, the layout has 7",
                       gs::invalid_argument);
  exchange.begin(gradient);
  CHECK_THROWS_AS(exchange.begin(gradient), gs::invalid_argument);
  exchange.ready(0);
  CHECK_THROWS_WITH_AS(exchange.ready(0), doctest::Contains("second time"), gs::invalid_argument);
  CHECK_THROWS_WITH_AS(exchange.ready(2), "gradsieve: layer 2 is ready, the layout has 2 layers", gs::invalid_argument);
  exchange.ready(1);
  CHECK_NOTHROW(exchange.wait());
  CHECK(gradient == std::vector<float>(7, 1.0f));
  CHECK_THROWS_AS(exchange.wait(), gs::invalid_argument);

  auto const build = [&](gs::layout const& of, gs::plan const& with, order_type const& order) {
    return steps::ending([&] { gs::overlap{alone, of, with, dense_means, order}; });
  };
  CHECK(build(layers, chosen, {}) == "");
  CHECK(build(layers, chosen, {0, 1}) == "invalid_argument: gradsieve: layer 'a' has 12 bytes, the plan says 16");
  CHECK(build(layers, chosen, {1, 1}) == "invalid_argument: gradsieve: the ready order names layer 1 twice");
  CHECK(build(layers, chosen, {1, 2}) ==
        "invalid_argument: gradsieve: the ready order names layer 2, the layout has 2");
  CHECK(build(layers, chosen, {1}) ==
        "invalid_argument: gradsieve: the layout has 2 layers, the ready order 1, the plan 2");
  CHECK(build({{"a", 3}}, chosen, {}) ==
        "invalid_argument: gradsieve: the layout has 1 layers, the ready order 1, the plan 2");
}

TEST_CASE("all ranks follow rank 0's plan; layouts and orders that differ are refused on all") {
  watchdog const guard{"agreement"};
  gs::layout const layers{{"a", 3}, {"b", 4}, {"c", 3}};
  auto const said = steps::on_ranks(4, [&](communicator comm) {
    steps::findings found;
    auto const first = plan_of(layers, backwards(3), {1, 3});
    auto const own = comm.rank() == 0 ? first : plan_of(layers, backwards(3), {3});
    auto exchange = gs::overlap{comm, layers, own, dense_means};
    found.expect(exchange.agreed() == first, "another plan");
    std::vector<float> gradient(10, static_cast<float>(comm.rank()));
    exchange.begin(gradient);
    for (std::size_t const each : {2u, 1u, 0u}) exchange.ready(each);
    exchange.wait();
    found.expect(gradient == std::vector<float>(10, 1.5f), "another result");

    auto const other = comm.rank() == 2 ? gs::layout{{"a", 3}, {"x", 4}, {"c", 3}} : layers;
    auto thrown = steps::ending([&] { gs::overlap{comm, other, first, dense_means}; });
    found.expect(thrown == "mismatch: gradsieve: rank 2 and rank 0 differ in layout", "layout: " + thrown);
    auto const order = comm.rank() == 3 ? order_type{0, 1, 2} : order_type{};
    thrown = steps::ending([&] { gs::overlap{comm, layers, first, dense_means, order}; });
    found.expect(thrown == "mismatch: gradsieve: rank 3 and rank 0 differ in ready order", "order: " + thrown);
    auto const fewer = comm.rank() == 1 ? gs::layout{{"a", 3}} : layers;
    thrown = steps::ending([&] { gs::overlap{comm, fewer, first, dense_means}; });
    found.expect(steps::contains(thrown, comm.rank() == 1 ? "invalid_argument" : "rank 1 could not set up its overlap"),
                 "plan: " + thrown);
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("a step allocates nothing") {
  REQUIRE(allocations_are_counted());
  auto const layers = steps::mixed_layers();
  auto const chosen = plan_of(layers, backwards(9), {3, 5, 9});
  std::atomic<std::uint64_t> counted{0};
  gs::threads::run(2, [&](communicator comm) {
    auto const source = steps::gradient(layers.size(), comm.rank(), 1);
    auto gradient = source;
    auto exchange = gs::overlap{comm, layers, chosen, compressors_of(sparse_recipe)};
    for (int step = 0; step < 6; ++step) {
      std::copy(source.begin(), source.end(), gradient.begin());
      float all_here = 0;
      comm.all_reduce(0, std::span{&all_here, 1}, gs::reduction::sum);
      auto const before = allocations.load();
      exchange.begin(gradient);
      for (std::size_t i = layers.count(); i-- > 0;) exchange.ready(i);
      exchange.wait();
      comm.all_reduce(0, std::span{&all_here, 1}, gs::reduction::sum);
      if (step >= 2) counted += allocations.load() - before;
    }
  });
  CHECK(counted == 0);
}

TEST_CASE("the tracker counts layers of any number of threads, step after step") {
  gs::layout const layers{std::vector<gs::layer>(60, {"", 1})};
  data::generator random{5};
  auto const chosen = plan_of(layers, backwards(60), some_borders(60, random));
  gs::detail::tracker counter{chosen};
  for (int step = 0; step < (sanitized ? 20 : 200); ++step) {
    if (step > 0) counter.reset();
    CHECK(counter.frontier() == 0);
    std::array<std::size_t, 3> last{};
    {
      std::vector<std::jthread> threads;
      for (std::size_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
          for (std::size_t i = t; i < 60; i += 3) {
            auto const now = counter.on_ready(59 - i);
            if (now < last[t]) last[t] = 1000;
            last[t] = std::max(last[t], now);
          }
        });
    }
    CHECK(counter.frontier() == counter.groups());
    CHECK(*std::max_element(last.begin(), last.end()) == counter.groups());
  }
  counter.reset();
  CHECK(counter.on_ready(59) == 0);
  std::vector<std::size_t> missing;
  counter.flush([&](std::size_t layer) { missing.push_back(layer); });
  CHECK(missing.size() == 59);
  CHECK(counter.frontier() == counter.groups());
  CHECK_THROWS_AS(counter.on_ready(60), gs::invalid_argument);
  CHECK_THROWS_AS(counter.on_ready(3), gs::invalid_argument);
}
