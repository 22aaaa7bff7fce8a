// A step that a rank cannot go on with: no rank waits for it, every rank learns of it, nothing is lost, and the next
// step works.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
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

#include "data.hpp"
#include "groups.hpp"
#include "steps.hpp"
#include "watchdog.hpp"

namespace gs = gradsieve;
using groups::backwards;
using groups::order_type;
using groups::plan_of;
using groups::shuffle;
using groups::some_borders;
using steps::communicator;
using steps::contains;

namespace {

struct backward_failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What came in on this rank and what went out for all, as exact sums of whole numbers, group by group.
struct ledger {
  std::vector<double> came_in;
  std::vector<double> went_out;
};

/// A compressor that keeps a ledger.
template <class Compressor>
struct counted {
  Compressor inner;
  ledger* sums;

  gs::step_report exchange(communicator const& comm, std::span<float> gradient) {
    sums->came_in.resize(gradient.size());
    sums->went_out.resize(gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) sums->came_in[i] += gradient[i];
    auto const report = inner.exchange(comm, gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      sums->went_out[i] += static_cast<double>(gradient[i]) * comm.size();
    return report;
  }
  void fail(communicator const& comm, std::span<float> gradient) { inner.fail(comm, gradient); }
};

/// Small whole numbers, so that sums and means over 2 or 4 ranks are exact.
std::vector<float> whole_numbers(std::uint64_t n, int rank, std::uint64_t step) {
  data::generator random{step * 977 + static_cast<std::uint64_t>(rank) * 31 + 5};
  std::vector<float> values(n);
  for (auto& each : values) each = static_cast<float>(random.below(64)) - 32.0f;
  return values;
}

/// Steps in which the ranks of `who(step)` throw in their backward pass after `after(step, rank)` layers: the others
/// are told, counters stay equal, and what came in is sent or still there.
template <class Recipe, class Who, class After>
std::string check_balance(int ranks, Recipe const& recipe, std::uint64_t steps_done, Who const& who,
                          After const& after) {
  auto const layers = steps::mixed_layers();
  auto const order = backwards(layers.count());
  auto const chosen = plan_of(layers, order, {2, 5, 6, 9});
  std::vector<std::vector<ledger>> ledgers(steps::at(ranks));
  std::vector<std::vector<std::vector<float>>> left(steps::at(ranks));
  std::vector<std::vector<std::uint64_t>> counters(steps::at(ranks));
  auto const said = steps::on_ranks(ranks, [&](communicator comm) {
    steps::findings found;
    auto& mine = ledgers[steps::at(comm.rank())];
    mine.resize(chosen.groups().size());
    std::size_t next = 0;
    auto const make = [&](gs::layout const& part) {
      return counted<gs::compressor<gs::host, Recipe>>{gs::compressor{gs::host{.threads = 1}, part, recipe},
                                                       &mine[next++]};
    };
    auto exchange = gs::overlap{comm, layers, chosen, make};
    for (std::uint64_t step = 0; step < steps_done; ++step) {
      auto gradient = whole_numbers(layers.size(), comm.rank(), step);
      bool const throws = who(step, comm.rank());
      bool any = false;
      for (int r = 0; r < comm.size(); ++r) any = any || who(step, r);
      auto const thrown = steps::ending([&] {
        exchange.run(gradient, [&](auto const& ready) {
          std::size_t calls = 0;
          for (auto const layer : order) {
            if (throws && calls++ == after(step, comm.rank())) throw backward_failed("backward failed");
            ready(layer);
          }
          if (throws) throw backward_failed("backward failed");
        });
      });
      auto const where = "step " + std::to_string(step) + ": ";
      if (throws)
        found.expect(thrown == "exception: backward failed", where + thrown);
      else if (!any)
        found.expect(thrown.empty(), where + thrown);
      else
        found.expect(contains(thrown, " failed in this step; nothing was sent"), where + thrown);
    }
    for (std::size_t g = 0; g < mine.size(); ++g) {
      auto& inner = exchange.exchange_of(g).inner;
      counters[steps::at(comm.rank())].push_back(inner.step());
      left[steps::at(comm.rank())].push_back(steps::residual_of(inner));
    }
    return found.text();
  });
  if (auto const text = steps::joined(said); !text.empty()) return text;
  for (std::size_t r = 1; r < counters.size(); ++r)
    if (counters[r] != counters[0]) return "ranks ended with different step counters";
  for (std::size_t g = 0; g < left[0].size(); ++g)
    for (std::size_t i = 0; i < left[0][g].size(); ++i) {
      double came_in = 0;
      double kept = 0;
      for (std::size_t r = 0; r < left.size(); ++r) {
        if (!ledgers[r][g].came_in.empty()) came_in += ledgers[r][g].came_in[i];
        kept += left[r][g][i];
      }
      double const went_out = ledgers[0][g].went_out.empty() ? 0 : ledgers[0][g].went_out[i];
      if (came_in != went_out + kept)
        return "group " + std::to_string(g) + ", element " + std::to_string(i) + ": " + std::to_string(came_in) +
               " came in, " + std::to_string(went_out) + " went out, " + std::to_string(kept) + " are kept";
    }
  return {};
}

template <class Recipe>
std::string check_balance(Recipe const& recipe) {
  auto const one = [](std::uint64_t step, int rank) { return step % 3 == 1 && rank == static_cast<int>(step / 3) % 4; };
  auto const some = [](std::uint64_t step, int rank) {
    return step % 3 == 1 && gs::mix(step * 4 + gs::mix(static_cast<std::uint64_t>(rank))) % 2 == 0;
  };
  auto const all = [](std::uint64_t step, int) { return step % 3 == 1; };
  auto const anywhere = [](std::uint64_t step, int rank) {
    return (step * 5 + static_cast<std::uint64_t>(rank) * 3) % 10;
  };
  return check_balance(4, recipe, 24, one, anywhere) + check_balance(4, recipe, 24, some, anywhere) +
         check_balance(4, recipe, 24, all, anywhere) + check_balance(2, recipe, 24, one, anywhere);
}

/// A compressor that says when an exchange is through.
struct announced {
  gs::compressor<gs::host, gs::recipe<>> inner;
  std::atomic<int>* through;

  gs::step_report exchange(communicator const& comm, std::span<float> gradient) {
    auto const report = inner.exchange(comm, gradient);
    ++*through;
    return report;
  }
  void fail(communicator const& comm, std::span<float> gradient) { inner.fail(comm, gradient); }
  void discard_step() { inner.discard_step(); }
};

auto const dense_means = [](gs::layout const&) { return gs::dense_mean{}; };
auto const compressors = [](gs::layout const& part) {
  return gs::compressor{gs::host{.threads = 1}, part, gs::recipe{.density = 0.05}};
};

}  // namespace

TEST_CASE("a backward pass that throws on some ranks: what came in is sent or still there, and counters are equal") {
  watchdog const guard{"cancelled steps"};
  CHECK(check_balance(gs::recipe{.density = 0.05}) == "");
  CHECK(check_balance(gs::recipe{.density = 0.05, .partitioner = gs::deft{}}) == "");
  CHECK(check_balance(gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}}) == "");
  CHECK(check_balance(gs::recipe{.density = 0.05, .on_non_finite = gs::non_finite::fail}) == "");
}

TEST_CASE("groups that all ranks handed over count, later ones do not, and the others throw with the failed rank") {
  watchdog const guard{"which groups count"};
  gs::layout const layers{{"a", 100}, {"b", 200}, {"c", 300}};
  auto const chosen = plan_of(layers, backwards(3), {1, 2, 3});  // {c} {b} {a}
  auto const said = steps::on_ranks(3, [&](communicator comm) {
    steps::findings found;
    std::atomic<int> through{0};
    auto exchange = gs::overlap{comm, layers, chosen,
                                [&](gs::layout const& part) { return announced{compressors(part), &through}; }};
    auto const inner = [&](std::size_t g) -> auto& { return exchange.exchange_of(g).inner; };
    std::vector<std::vector<float>> residuals(3);
    for (std::uint64_t step = 0; step < 2; ++step) {
      auto gradient = whole_numbers(600, comm.rank(), step);
      exchange.begin(gradient);
      for (std::size_t const each : {2u, 1u, 0u}) exchange.ready(each);
      exchange.wait();
    }
    for (std::size_t g = 0; g < 3; ++g) residuals[g] = steps::residual_of(inner(g));

    auto const given = whole_numbers(600, comm.rank(), 2);
    auto gradient = given;
    exchange.begin(gradient);
    exchange.ready(2);
    std::string thrown;
    if (comm.rank() == 1) {
      while (through < 7) std::this_thread::yield();  // the group c of this step
      exchange.cancel();
      exchange.cancel();  // nothing is open
      thrown = steps::ending([&] { exchange.wait(); });
      found.expect(contains(thrown, "no step is open"), "after cancel(): " + thrown);
    } else {
      exchange.ready(1);
      exchange.ready(0);
      thrown = steps::ending([&] { exchange.wait(); });
      found.expect(thrown == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent", thrown);
    }
    std::vector<std::uint64_t> const counters{inner(0).step(), inner(1).step(), inner(2).step()};
    found.expect(counters == std::vector<std::uint64_t>{3, 2, 2}, "which groups count");

    // discard_step() takes the group that counts back as well: then nothing was sent.
    exchange.discard_step();
    exchange.discard_step();
    for (std::size_t g = 0; g < 3; ++g) {
      auto expected = residuals[g];
      auto const first = layers.offset(2 - g);
      bool const entered = g == 0 || comm.rank() != 1;
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += entered ? given[first + i] : 0.0f;
      found.expect(steps::same_bits(steps::residual_of(inner(g)), expected),
                   "group " + std::to_string(g) + ": another residual");
    }

    auto next = whole_numbers(600, comm.rank(), 3);
    exchange.begin(next);
    for (std::size_t const each : {0u, 1u, 2u}) exchange.ready(each);
    exchange.wait();
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("means: the other ranks throw, also where gradients hold NaNs of their own") {
  watchdog const guard{"means"};
  gs::layout const layers{{"a", 3}, {"b", 4}, {"c", 5}};
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  for (auto const& order : {backwards(3), order_type{2, 0, 1}}) {  // the second has a group of two pieces
    auto const chosen = plan_of(layers, order, {2, 3});
    auto const said = steps::on_ranks(3, [&](communicator comm) {
      steps::findings found;
      auto exchange = gs::overlap{comm, layers, chosen, dense_means, order};
      for (int step = 0; step < 6; ++step) {
        std::vector<float> gradient(12, static_cast<float>(comm.rank()));
        if (step >= 3 && comm.rank() == 2) std::fill(gradient.begin(), gradient.end(), nan);
        bool const cancels = step % 3 == 1 && comm.rank() == 0;
        auto const thrown = steps::ending([&] {
          exchange.run(gradient, [&](auto const& ready) {
            ready(2);
            if (cancels) throw backward_failed("backward failed");
            ready(0);
            ready(1);
          });
        });
        auto const where = "step " + std::to_string(step) + ": ";
        if (cancels)
          found.expect(thrown == "exception: backward failed", where + thrown);
        else if (step % 3 == 1)
          found.expect(thrown == "communication_error: gradsieve: another rank failed in this step; there is no mean",
                       where + thrown);
        else
          found.expect(thrown.empty() && (step >= 3 ? gradient[0] != gradient[0] : gradient[0] == 1.0f),
                       where + "another mean; " + thrown);
      }
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  }

  std::vector<double> numbers{1, 2};
  gs::dense_mean{}.fail(gs::self{}, std::span{numbers});
  CHECK(numbers[0] != numbers[0]);
  CHECK_NOTHROW(gs::dense_mean{}.exchange(gs::self{}, std::span{numbers}));
  gs::dense_mean{}.fail(gs::self{}, std::span<float>{});
}

TEST_CASE("destroyed in mid-step: the other ranks throw, and whatever is destroyed first is safe after cancel()") {
  watchdog const guard{"destructors"};
  gs::layout const layers{{"a", 30}, {"b", 50}, {"c", 70}};
  auto const chosen = plan_of(layers, backwards(3), {1, 2, 3});
  enum class way { destructor, cancelled, run };
  for (auto const how : {way::destructor, way::cancelled, way::run}) {
    for (bool const means : {false, true}) {
      auto const with = [&](auto const& make) {
        return steps::on_ranks(3, [&](communicator comm) {
          steps::findings found;
          auto const others = [&](auto& exchange, std::vector<float>& gradient) {
            auto const thrown = steps::ending([&] {
              exchange.run(gradient, [](auto const& ready) {
                for (std::size_t const each : {2u, 1u, 0u}) ready(each);
              });
            });
            found.expect(contains(thrown, " failed in this step"), "thrown: " + thrown);
          };
          std::vector<float> early(150, 1.0f);
          auto exchange = std::optional<decltype(gs::overlap{comm, layers, chosen, make})>{std::in_place, comm, layers,
                                                                                           chosen, make};
          if (comm.rank() != 1) {
            others(*exchange, early);
          } else if (how == way::destructor) {
            exchange->begin(early);
            exchange->ready(2);
            exchange.reset();
          } else if (how == way::cancelled) {
            std::vector<float> late(150, 1.0f);  // goes before the overlap
            exchange->begin(late);
            exchange->ready(2);
            exchange->cancel();
          } else {
            try {
              std::vector<float> late(150, 1.0f);
              exchange->run(late, [](auto const& ready) {
                ready(2);
                throw backward_failed("backward failed");
              });
            } catch (backward_failed const&) {
            }
          }
          return found.text();
        });
      };
      auto const said = means ? with(dense_means) : with(compressors);
      CHECK(steps::joined(said) == "");
    }
  }
}

TEST_CASE("a gradient of another size on one rank: all ranks throw, and the next step works") {
  watchdog const guard{"another size"};
  gs::layout const layers{{"a", 30}, {"b", 50}};
  auto const chosen = plan_of(layers, backwards(2), {1, 2});
  auto const with = [&](auto const& make) {
    return steps::on_ranks(3, [&](communicator comm) {
      steps::findings found;
      auto exchange = gs::overlap{comm, layers, chosen, make};
      for (int step = 0; step < 3; ++step) {
        std::vector<float> gradient(step == 1 && comm.rank() == 2 ? 79 : 80, 1.0f);
        auto const thrown = steps::ending([&] {
          exchange.run(gradient, [](auto const& ready) {
            ready(1);
            ready(0);
          });
        });
        if (step != 1)
          found.expect(thrown.empty(), thrown);
        else if (comm.rank() == 2)
          found.expect(thrown == "invalid_argument: gradsieve: gradient has 79 elements, the layout has 80", thrown);
        else
          found.expect(contains(thrown, " failed in this step"), thrown);
      }
      return found.text();
    });
  };
  CHECK(steps::joined(with(dense_means)) == "");
  CHECK(steps::joined(with(compressors)) == "");
}

TEST_CASE("no steps that ranks cancel at random end in a deadlock, on 1 to 6 ranks") {
  watchdog const guard{"random cancels"};
  std::uint64_t wrong = 0;
  for (std::uint64_t run = 0; run < (sanitized ? 60u : 300u); ++run) {
    data::generator random{run + 9};
    int const ranks = static_cast<int>(run % 6) + 1;
    std::vector<gs::layer> list(1 + random.below(9));
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
      for (int step = 0; step < 6; ++step) {
        std::fill(gradient.begin(), gradient.end(), static_cast<float>(comm.rank() + step));
        auto order = backwards(layers.count());
        shuffle(order, mine);
        bool const cancels = mine.below(4) == 0;
        auto const half = static_cast<std::ptrdiff_t>(mine.below(order.size() + 1));
        exchange.begin(gradient);
        {
          std::jthread const other{[&] {
            for (auto at = order.begin() + half; at != order.end() && !cancels; ++at) exchange.ready(*at);
          }};
          for (auto at = order.begin(); at != order.begin() + half; ++at) exchange.ready(*at);
        }
        std::string thrown;
        if (cancels)
          exchange.cancel();
        else
          thrown = steps::ending([&] { exchange.wait(); });
        float failed = thrown.empty() && !cancels ? 0.0f : 1.0f;
        float const mine_failed = failed;
        comm.all_reduce(0, std::span{&failed, 1}, gs::reduction::max);
        bad += layers.size() > 0 && mine_failed != failed ? 1 : 0;  // on all ranks or on none
        float const mean = static_cast<float>(ranks - 1) / 2 + static_cast<float>(step);
        for (float const value : gradient) bad += failed > 0 || value == mean ? 0 : 1;
      }
    });
    wrong += bad;
  }
  CHECK(wrong == 0);
}

TEST_CASE("exchanges without fail() go on as they were: the destructor leaves an open step") {
  watchdog const guard{"without fail"};
  struct plain {
    gs::step_report exchange(gs::self const&, std::span<float>) { return {}; }
  };
  gs::layout const layers{{"a", 3}, {"b", 4}};
  std::vector<float> gradient(7);
  auto exchange =
      gs::overlap{gs::self{}, layers, plan_of(layers, {1, 0}, {1, 2}), [](gs::layout const&) { return plain{}; }};
  static_assert(!gs::failing_exchange<plain, gs::self, float>);
  static_assert(gs::failing_exchange<gs::dense_mean, gs::self, float>);
  static_assert(gs::failing_exchange<gs::compressor<gs::host, gs::recipe<>>, gs::self, float>);
  CHECK(steps::ending([&] { exchange.begin(std::span{gradient}.first(6)); }) ==
        "invalid_argument: gradsieve: gradient has 6 elements, the layout has 7");
  exchange.begin(gradient);
  exchange.ready(1);
}
