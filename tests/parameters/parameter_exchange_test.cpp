// Parameters that each rank steps for itself: nothing is lost, the common ones are equal, and Adam gets somewhere.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/parameters.hpp>

#include "allocations.hpp"
#include "nodes.hpp"
#include "parameters.hpp"

using namespace parameters;

namespace {

/// Of steps behind the first one.
template <class T>
std::uint64_t allocations_of() {
  std::vector<T> own(20'000);
  gs::recipe const recipe{};
  gs::parameter_exchange exchange{gs::compressor{here, gs::layout::flat(own.size()), recipe}, std::span{own}};
  exchange.exchange_parameters(gs::self{}, own);
  auto const before = allocations.load();
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < own.size(); i += 7) own[i] = gs::from_float<T>(0.5f);
    exchange.exchange_parameters(gs::self{}, own);
  }
  return allocations.load() - before;
}

/// Steps of ranks with weights, some of which fail; what went wrong.
template <class T, class Recipe>
std::string weighted_steps(Recipe const& recipe) {
  using exchange_type = gs::parameter_exchange<gs::compressor<gs::host, Recipe>, T>;
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    member<T, exchange_type> mine{recipe};
    auto const rank = static_cast<std::uint64_t>(comm.rank());
    auto written = mine.own;
    std::ranges::fill(mine.income, 0.0);
    for (std::uint64_t step = 0; step < 30; ++step) {
      auto const entered = mine.exchange.compressor().accumulated();
      auto const by = gradient(mine.own.size(), comm.rank(), step);
      for (std::size_t i = 0; i < by.size(); ++i)
        mine.own[i] = gs::from_float<T>(gs::to_float(mine.own[i]) + 0.004f * by[i]);
      auto const changed = mine.own;
      double const weight = step % 4 == rank ? 0.0 : 1.0 + static_cast<double>(gs::mix(3 * step + rank) % 30);
      float const factor = gs::mean_factor(comm, weight);
      found.expect((factor == 0) == (weight == 0), "another factor");
      if (weight == 0) mine.own[11] = gs::from_float<T>(not_a_number);  // has no part in the mean
      bool const fails = step % 5 == 2 && weight != 0;
      if (fails) mine.own[5] = gs::from_float<T>(not_a_number);
      auto const how = ending([&] {
        if (step % 7 == 3) {
          mine.exchange.compressor().exchange(comm, mine.exchange.take_update(mine.own, factor));
          mine.exchange.apply_mean(mine.own, comm.size());
        } else if (step % 7 == 4) {
          mine.exchange.exchange_parameters(cut_off{comm}, mine.own, {}, factor);
        } else {
          mine.exchange.exchange_parameters(comm, mine.own, {}, factor);
        }
      });
      if (mine.exchange.compressor().accumulated() == entered) {  // own is as it was
        found.expect(contains(how, "non_finite_gradient"), how);
        if (step % 7 == 3) mine.exchange.discard_step(mine.own);
        if (fails) mine.own[5] = changed[5];
        for (std::size_t i = 0; i < by.size() && weight != 0; ++i)
          found.expect(std::abs(gs::to_float(mine.own[i]) - gs::to_float(changed[i])) < 0.01f, "the change is lost");
        if (weight == 0) written = mine.own;
        continue;
      }
      found.expect(how.empty() || step % 7 == 4, how);
      found.expect(mine.is_as_written(), "own is not common and the rest");
      found.expect(!how.empty() || mine.exchange.weight() * factor < 1.001f, "a rank sees its changes more than once");
      for (std::size_t i = 0; i < by.size(); ++i)
        mine.income[i] += static_cast<double>(factor) *
                          static_cast<double>(gs::to_float(changed[i]) - gs::to_float(written[i]));
      written = mine.own;
    }
    mine.exchange.check_common(comm);
    return found.text() + mine.balance(comm);
  });
  return joined(said);
}

}  // namespace

TEST_CASE("whatever happens, common and residuals hold the first parameters and all changes") {
  all<float>(gs::recipe{});
  all<gs::float16>(gs::recipe{});
  all<gs::bfloat16>(gs::recipe{});
}

TEST_CASE("a rank that leaves, and ranks that join") {
  auto const recipe = gs::recipe{.density = 0.03, .partitioner = gs::deft{}};
  using exchange_type = gs::parameter_exchange<gs::compressor<gs::host, std::remove_const_t<decltype(recipe)>>>;
  auto const n = mixed_layers().size();
  for (bool const late : {false, true}) {  // with changes that wait to be exchanged
    CAPTURE(late);
    std::vector<std::unique_ptr<member<float, exchange_type>>> ranks;
    std::vector<double> expected(n);
    auto const add_rank = [&] { ranks.push_back(std::make_unique<member<float, exchange_type>>(recipe)); };
    std::uint64_t step = 0;
    auto const train = [&](bool exchange_last) {
      int const world = static_cast<int>(ranks.size());
      auto const said = on_ranks(world, [&](communicator comm) {
        auto& mine = *ranks[at(comm.rank())];
        for (std::uint64_t s = 0; s < 10; ++s) {
          mine.change(comm.rank(), step + s);
          if (s < 9 || exchange_last) mine.exchange.exchange_parameters(comm, mine.own);
        }
        mine.exchange.check_common(comm);
        return std::string{};
      });
      CHECK(joined(said) == "");
      step += 10;
      for (auto const& each : ranks)
        for (std::size_t i = 0; i < n; ++i) {
          expected[i] += each->income[i] / world;
          each->income[i] = 0;
        }
    };
    for (int r = 0; r < 4; ++r) add_rank();
    for (std::size_t i = 0; i < n; ++i) expected[i] = static_cast<double>(first_parameter(i));
    train(true);
    auto const left = ranks[3]->exchange.state();
    ranks.pop_back();
    ranks[1]->exchange.absorb(left, ranks[1]->own);
    for (auto const& each : ranks) each->exchange.rescale(3.0f / 4.0f, each->own);
    train(true);
    auto const any = ranks[2]->exchange.state();
    for (auto const& each : ranks) each->exchange.rescale(5.0f / 3.0f, each->own);
    for (int r = 0; r < 2; ++r) {
      add_rank();
      ranks.back()->exchange.join(any, ranks.back()->own);
    }
    train(!late);
    if (late) {  // what is not exchanged yet is in own
      for (auto const& each : ranks) each->exchange.rescale(1.0f, each->own);
      step += 1;
      train(true);
    }
    std::vector<double> found(n);
    for (auto const& each : ranks) {
      auto const unsent = each->exchange.compressor().residual();
      for (std::size_t i = 0; i < n; ++i) found[i] += static_cast<double>(unsent[i]) / 5;
    }
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(found[i] + static_cast<double>(ranks[0]->exchange.common()[i]) - expected[i]));
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("an exchange that fails loses nothing and doubles nothing") {
  auto const recipe = gs::recipe{.density = 0.02, .on_non_finite = gs::non_finite::fail};
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    member<float, gs::parameter_exchange<gs::compressor<gs::host, std::remove_const_t<decltype(recipe)>>>> mine{recipe};
    for (std::uint64_t step = 0; step < 12; ++step) {
      mine.change(comm.rank(), step);
      auto const before = mine.own;
      if (step % 4 == 1) {  // another size on one rank
        auto const part = std::span{mine.own}.first(comm.rank() == 1 ? n - 1 : n);
        auto const how = ending([&] { mine.exchange.exchange_parameters(comm, part); });
        found.expect(contains(how, comm.rank() == 1 ? "invalid_argument" : "communication_error"), "size: " + how);
        if (comm.rank() == 1) found.expect(mine.own == before, "own has changed");
      } else if (step % 4 == 2) {  // in the middle, on all ranks
        auto const how = ending([&] { mine.exchange.exchange_parameters(cut_off{comm}, mine.own); });
        found.expect(contains(how, "cut off"), "cut off: " + how);
      } else if (step % 4 == 3) {  // before anything changes
        if (comm.rank() == 0) mine.own[7] = not_a_number;
        auto const how = ending([&] { mine.exchange.exchange_parameters(comm, mine.own); });
        found.expect(contains(how, "non_finite_gradient"), "not finite: " + how);
        float worst = 0;
        for (std::size_t i = 0; i < n; ++i)
          if (i != 7) worst = std::max(worst, std::abs(mine.own[i] - before[i]));
        found.expect(worst < 1e-6f, "own is not as it was");
        mine.own[7] = before[7];
      }
      mine.exchange.exchange_parameters(comm, mine.own);
      found.expect(mine.is_as_written(), "own is not common and the rest");
    }
    return found.text() + mine.balance(comm);
  });
  CHECK(joined(said) == "");
}

TEST_CASE("a store that keeps nothing drops what was not sent, and not a change whose exchange has failed") {
  auto const said = on_ranks(1, [&](communicator comm) {
    findings found;
    std::vector<float> own(100, 1.0f);
    gs::parameter_exchange exchange{
        gs::compressor{here, gs::layout::flat(100), gs::recipe{.density = 1, .residual = gs::none{}}}, std::span{own}};
    for (auto& x : own) x = 2.0f;
    auto const how = ending([&] { exchange.exchange_parameters(cut_off{comm}, own); });
    found.expect(contains(how, "cut off"), "cut off: " + how);
    found.expect(own == std::vector<float>(100, 2.0f), "own has changed");
    exchange.exchange_parameters(comm, own);
    found.expect(exchange.common()[7] == 2.0f, "the change is lost");
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("weights: common and residuals hold the weighted mean of changes") {
  auto const recipe = gs::recipe{.density = 0.03, .on_non_finite = gs::non_finite::fail};
  CHECK(weighted_steps<float>(recipe) == "");
  CHECK(weighted_steps<gs::bfloat16>(recipe) == "");
}

TEST_CASE("weights of gradients: with mean_factor() exchanges compute the weighted mean, also of nodes") {
  constexpr std::size_t n = 300;
  double const weights[] = {1e300, 0, 1e300, 1e300 / 3};
  auto const weighted = [&](auto const& ranks, auto& compressor) {
    auto const factor = gs::mean_factor(ranks, weights[ranks.rank()]);
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i)
      values[i] = factor * static_cast<float>(ranks.rank() + 1) * static_cast<float>(i + 1);
    compressor.exchange(ranks, values);
    double sum = 0, all = 0;
    for (int r = 0; r < ranks.size(); ++r) {
      sum += weights[r];
      all += weights[r] * (r + 1);
    }
    bool same = true;
    for (std::size_t i = 0; i < n; ++i)
      same = same && std::abs(values[i] / static_cast<float>(i + 1) - static_cast<float>(all / sum)) < 1e-5f;
    if (!same) throw std::runtime_error("another mean: " + std::to_string(values[0]));
  };
  auto const recipe = gs::recipe{.density = 1};
  CHECK(joined(on_ranks(2, [&](communicator comm) {
    gs::compressor compressor{here, gs::layout::flat(n), recipe};
    weighted(comm, compressor);
    return std::string{};
  })) == "");
  CHECK(nodes::text(nodes::run({2, 2}, [&](nodes::pair const& ranks) {
          gs::two_level_compressor compressor{here, gs::layout::flat(n), recipe, ranks};
          weighted(ranks, compressor);
        })) == "");
}

TEST_CASE("weights that make no mean: all ranks throw alike, and none waits") {
  auto const throws = [](int world, auto const& weight_of, char const* why) {
    CAPTURE(why);
    for (auto const& each : on_ranks(world, [&](communicator comm) {
           return ending([&] { static_cast<void>(gs::mean_factor(comm, weight_of(comm.rank()))); });
         }))
      CHECK(contains(each, why));
    if (world == 4)
      for (auto const& each : nodes::run({2, 2}, [&](nodes::pair const& ranks) {
             static_cast<void>(gs::mean_factor(ranks, weight_of(ranks.rank())));
           }))
        CHECK(contains(each, why[0] == 'r' ? "a rank of node 1 is not a number from 0 to 1e300" : why));
  };
  throws(4, [](int rank) { return rank == 2 ? -1.0 : 1.0; }, "rank 2 is not a number from 0 to 1e300");
  throws(4, [](int rank) { return rank < 3 ? 1.0 : std::numeric_limits<double>::quiet_NaN(); }, "rank 3 is not a");
  throws(40, [](int rank) { return rank == 39 ? std::numeric_limits<double>::infinity() : 1; }, "rank 39 is not a");
  throws(4, [](int) { return 0.0; }, "the weights of all ranks are 0");
  // Some ranks weight and others do not; a factor that is none.
  auto const recipe = gs::recipe{.density = 0.1};
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    std::vector<float> own(100, 1.0f);
    gs::parameter_exchange exchange{gs::compressor{here, gs::layout::flat(100), recipe}, std::span{own}};
    for (int step = 0; step < 2; ++step) {
      auto const how = ending([&] {
        float const factor = comm.rank() == 1 ? gs::mean_factor(comm, 2) : 1;
        exchange.exchange_parameters(comm, own, {}, factor);
      });
      found.expect(contains(how, "whether they give a weight"), how);
      auto const bad = ending([&] { exchange.exchange_parameters(comm, own, {}, comm.rank() == 1 ? -1.0f : 1.0f); });
      found.expect(contains(bad, comm.rank() == 1 ? "negative or not finite" : "rank 1 failed in this step"), bad);
      exchange.exchange_parameters(comm, own);
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("wrong use is refused, and changes nothing") {
  auto const recipe = gs::recipe{.density = 0.1};
  std::vector<float> own(10, 1.0f);
  auto const make = [&](std::span<float const> from, gs::parameter_options options = {}) {
    return gs::parameter_exchange{gs::compressor{here, gs::layout::flat(10), recipe}, from, options};
  };
  using std::span;
  CHECK(contains(ending([&] { make(span{own}.first(9)); }), "9 own parameters, the layout has 10 elements"));
  CHECK(contains(ending([&] { make(own, {.weight = 1.5f}); }), "weight is not in [0, 1]"));
  CHECK(contains(ending([&] { make(own, {.weight = not_a_number}); }), "weight is not in [0, 1]"));
  for (float const momentum : {-0.5f, 1.0f, not_a_number})
    CHECK(contains(ending([&] { make(own, {.momentum = momentum}); }), "momentum is not in [0, 1)"));
  own[3] = not_a_number;
  CHECK(contains(ending([&] { make(own); }), "1 parameters are NaN or infinite"));
  own[3] = 1.0f;
  auto exchange = make(own);
  CHECK(contains(ending([&] { exchange.apply_mean(own, 1); }), "no update was taken"));
  CHECK(contains(ending([&] { exchange.discard_step(own); }), "no update was taken"));
  own[2] += 0.5f;
  auto const update = exchange.take_update(own);
  CHECK(update[2] == 0.5f);
  for (auto const& call : std::vector<std::function<void()>>{
           [&] { exchange.take_update(own); }, [&] { exchange.exchange_parameters(gs::self{}, own); },
           [&] { exchange.rescale(1.0f, own); }, [&] { exchange.absorb({}, own); }, [&] { exchange.restore({}, own); }})
    CHECK(contains(ending(call), "an update was taken already"));
  CHECK(contains(ending([&] { exchange.apply_mean(own, 0); }), "a mean of 0 ranks"));
  exchange.discard_step(own);
  CHECK(own[2] == 1.5f);  // it was not compressed
  exchange.exchange_parameters(gs::self{}, own);
  CHECK(exchange.common()[2] == 1.5f);
  CHECK(contains(ending([&] { exchange.rescale(not_a_number, own); }), "not finite"));
  CHECK(own[2] == 1.5f);

  auto const state = exchange.state();
  std::vector<float> eleven(11);
  auto other = gs::parameter_exchange{gs::compressor{here, gs::layout::flat(11), recipe}, eleven};
  CHECK(contains(ending([&] { other.restore(state, eleven); }),
                 "mismatch: gradsieve: parameter state belongs to another"));
  for (std::size_t at = 0; at < state.size(); ++at) {
    auto damaged = state;
    damaged[at] ^= std::byte{1};
    CAPTURE(at);
    CHECK(ending([&] { exchange.restore(damaged, own); }) != "");
    CHECK(ending([&] { exchange.restore(span{state}.first(at), own); }) != "");
  }
  for (float const weight : {-1.0f, 2.0f, 1e30f, not_a_number}) {
    auto const common = std::vector<float>(exchange.common().begin(), exchange.common().end());
    auto const wrong = gs::detail::parameter_state{
        10, exchange.compressor().layers().hash(), weight, 0, {}, {}, {}}.write(common, {}, exchange.compressor().state());
    CHECK(contains(ending([&] { exchange.restore(wrong, own); }), "corrupt_state: gradsieve: parameter state has the w"));
  }
  CHECK(exchange.state() == state);

  auto moving = make(own, {.momentum = 0.5f});
  moving.restore(state, own);  // its momentum begins at 0
  own[2] += 1.0f;
  moving.exchange_parameters(gs::self{}, own);
  CHECK(moving.common()[2] == 2.5f);
  moving.exchange_parameters(gs::self{}, own);  // (0.5 * 0.5 + 0.5 * 0) / (1 - 0.25)
  CHECK(moving.common()[2] == doctest::Approx(2.5 + 1.0 / 3));
  auto const held = moving.state();
  CHECK(held.size() == state.size() + 40);
  CHECK(contains(ending([&] { exchange.restore(held, own); }), "mismatch: gradsieve: the parameter state has a momentum"));
  CHECK(exchange.state() == state);
  for (std::size_t at = 0; at < held.size(); at += 3) {
    auto damaged = held;
    damaged[at] ^= std::byte{1};
    CHECK(ending([&] { moving.restore(damaged, own); }) != "");
    CHECK(ending([&] { moving.restore(span{held}.first(at), own); }) != "");
  }
  CHECK(moving.state() == held);
}

TEST_CASE("all members of a moved-from object throw, until another one is moved into it") {
  std::vector<float> own(10, 1.0f);
  gs::parameter_exchange first{gs::compressor{here, gs::layout::flat(10), gs::recipe{}}, own};
  auto const state = first.state();
  auto second = std::move(first);
  auto const& fixed = first;
  for (auto const& call : std::vector<std::function<void()>>{
           [&] { first.exchange_parameters(gs::self{}, own); }, [&] { first.fail(gs::self{}, own); },
           [&] { first.check_common(gs::self{}); }, [&] { first.take_update(own); },
           [&] { first.apply_mean(own, 1); }, [&] { first.discard_step(own); }, [&] { (void)first.common(); },
           [&] { (void)first.compressor(); }, [&] { (void)fixed.compressor(); }, [&] { (void)first.report(); },
           [&] { (void)first.weight(); }, [&] { (void)first.state(); }, [&] { first.restore(state, own); },
           [&] { first.join(state, own); }, [&] { first.absorb(state, own); }, [&] { first.rescale(1.0f, own); }})
    CHECK(contains(ending(call), "was moved from"));
  first = std::move(second);
  CHECK(first.state() == state);
}

TEST_CASE("a rank whose update is still taken, or that has another size, fails on all ranks, and nothing is lost") {
  auto const recipe = gs::recipe{.density = 0.02};
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    member<float, gs::parameter_exchange<gs::compressor<gs::host, std::remove_const_t<decltype(recipe)>>>> mine{recipe};
    bool const odd = comm.rank() == 1;
    auto const all_throw = [&](char const* why, auto const& of_odd) {
      auto const how = ending([&] { odd ? of_odd() : (void)mine.exchange.exchange_parameters(comm, mine.own); });
      found.expect(contains(how, odd ? why : "rank 1 failed in this step"), how);
    };
    for (std::uint64_t step = 0; step < 8; ++step) {
      mine.change(comm.rank(), step);
      bool const calls_fail = step % 2 == 1;
      auto const call = [&] {
        calls_fail ? mine.exchange.fail(comm, mine.own) : (void)mine.exchange.exchange_parameters(comm, mine.own);
      };
      if (step < 4) {  // not compressed: it returns to own
        if (odd) mine.exchange.take_update(mine.own);
        all_throw("an update was taken already", call);
        all_throw("an update was taken already", call);
        if (odd) mine.exchange.discard_step(mine.own);
      } else if (step < 6) {  // exchanged, but rank 1 has not applied the mean
        mine.exchange.compressor().exchange(comm, mine.exchange.take_update(mine.own));
        if (!odd) mine.exchange.apply_mean(mine.own, 3);
        all_throw("an update was taken already", call);
        if (odd) {
          auto const how = ending([&] { mine.exchange.discard_step(mine.own); });
          found.expect(contains(how, "can no longer be discarded"), how);
          mine.exchange.apply_mean(mine.own, 3);
        }
      } else {
        all_throw("own parameters, the layout has", [&] {
          auto const part = std::span{mine.own}.first(9);
          calls_fail ? mine.exchange.fail(comm, part) : (void)mine.exchange.exchange_parameters(comm, part);
        });
      }
      mine.exchange.exchange_parameters(comm, mine.own);
      found.expect(mine.is_as_written(), "own is not common and the rest");
      mine.exchange.check_common(comm);
    }
    return found.text() + mine.balance(comm);
  });
  CHECK(joined(said) == "");
}

TEST_CASE("own parameters that differ at first are found") {
  auto const said = on_ranks(3, [&](communicator comm) {
    std::vector<float> own(100, comm.rank() == 2 ? 1.0f : 2.0f);
    gs::parameter_exchange exchange{gs::compressor{here, gs::layout::flat(100), gs::recipe{}}, std::span{own}};
    return ending([&] { exchange.check_common(comm); });
  });
  for (auto const& each : said)
    CHECK(contains(each, "mismatch: gradsieve: the ranks have different common parameters"));
}

TEST_CASE("with a momentum own parameters are a move ahead, unless all is sent, and see less of a rest that is late") {
  constexpr std::size_t n = 1000;
  auto const step = [&](double density, gs::parameter_options options, double later) {
    std::vector<double> ahead;
    auto const said = on_ranks(2, [&](communicator comm) {
      std::vector<float> own(n, 0.5f);
      gs::density_schedule densities{density};
      if (later != density) densities = gs::warm_up{density, later, 1, 0};
      auto const recipe = gs::recipe{.density = densities, .passthrough = {.patterns = {}}};
      gs::parameter_exchange exchange{gs::compressor{here, gs::layout::flat(n), recipe}, std::span{own}, options};
      float moved = 0;
      for (int s = 0; s < 3; ++s) {
        own[7] += comm.rank() == 0 ? 1.0f : 3.0f;
        float const before = exchange.common()[7];
        exchange.exchange_parameters(comm, own);
        moved = exchange.common()[7] - before;
        if (comm.rank() == 0) ahead.push_back(static_cast<double>((own[7] - exchange.common()[7]) / moved));
      }
      if (comm.rank() == 0) ahead.push_back(static_cast<double>(exchange.weight()));
      return std::string{};
    });
    CHECK(joined(said) == "");
    return ahead;
  };
  auto const is = [](std::vector<double> const& found, double ahead, double weight) {
    INFO(found[0] << ", " << found[1] << ", " << found[2] << ", weight " << found[3]);
    for (int s = 0; s < 3; ++s) CHECK(found[at(s)] == doctest::Approx(ahead).epsilon(1e-4));
    CHECK(found[3] == weight);
  };
  is(step(0.1, {.momentum = 0.8f}, 0.1), 0.8, 0.25);
  is(step(0.01, {.momentum = 0.8f}, 0.01), 0.8, 0.125);
  is(step(0.01, {.weight = 0.3f, .momentum = 0.8f}, 0.01), 0.8, 0.3f);
  is(step(0.1, {.momentum = 0.8f, .look_ahead = false}, 0.1), 0, 0.25);
  is(step(0.01, {}, 0.01), 0, 0.5);
  is(step(1, {.momentum = 0.8f}, 1), 0, 0.25);
  is(step(1, {.momentum = 0.8f}, 0.02), 0.8, 0.125);  // a warm-up is like its end
  auto const said = on_ranks(2, [&](communicator comm) {  // nothing waits
    std::vector<float> own(n, 0.5f);
    gs::recipe<gs::radix, gs::layerwise, gs::none> const recipe{.density = 0.1, .passthrough = {.patterns = {}}};
    gs::parameter_exchange exchange{
        gs::compressor{here, gs::layout::flat(n), recipe}, std::span{own}, {.momentum = 0.8f}};
    own[7] += 1.0f;
    exchange.exchange_parameters(comm, own);
    auto const common = exchange.common();
    return std::string{std::equal(own.begin(), own.end(), common.begin()) && own[7] > 1 ? "" : "own is not common"};
  });
  CHECK(joined(said) == "");
  for (int const ranks : {2, 4, 5, 64}) {
    CHECK(gs::parameter_options{.momentum = 0.8f}.among(ranks) == (ranks > 4 ? 0.125f : 0.25f));
    CHECK(gs::parameter_options{}.among(ranks) == 0.5f);
  }
  auto const momentum_at = [](double density) { return gs::parameter_options::of_beta(0.9f, density); };
  CHECK(momentum_at(1) == 0.9f);
  CHECK(momentum_at(0.06) == 0.9f);
  CHECK(momentum_at(0.03) == doctest::Approx(0.8));
  CHECK(momentum_at(0.012) == doctest::Approx(0.5));
  CHECK(momentum_at(1e-6) == doctest::Approx(0.5));
  CHECK(gs::parameter_options::of_beta(0.5f, 0.001) == 0.0f);
}

TEST_CASE("own parameters stay finite where a format or a sum ends") {
  std::vector<gs::float16> own(4, gs::from_float<gs::float16>(60000.0f));
  gs::parameter_exchange exchange{
      gs::compressor{here, gs::layout::flat(4), gs::recipe{.density = 0.25}}, std::span{own}, {.weight = 1.0f}};
  for (int step = 0; step < 6; ++step) {
    for (auto& x : own) x = gs::from_float_saturated<gs::float16>(gs::to_float(x) + 2000.0f);
    exchange.exchange_parameters(gs::self{}, own);
    for (auto const x : own) CHECK(gs::is_finite(gs::to_float(x)));
  }
  // With weight 0 changes add up in the residual, beyond what the common parameters can take.
  std::vector<float> wide(4, 3e38f);
  auto const recipe = gs::recipe{.density = 0.25};
  auto const make = [&](float weight) {
    return gs::parameter_exchange{
        gs::compressor{here, gs::layout::flat(4), recipe}, std::span{wide}, {.weight = weight}};
  };
  auto lagging = make(0.0f);
  auto leading = make(1.0f);
  for (int step = 0; step < 8; ++step) {
    for (auto& x : wide) x = 3.4e38f;
    lagging.exchange_parameters(gs::self{}, wide);
    for (auto const x : wide) CHECK(gs::is_finite(x));
    for (auto const x : lagging.common()) CHECK(gs::is_finite(x));
    auto const saved = lagging.state();
    auto mine = wide;
    leading.restore(saved, mine);
    leading.exchange_parameters(gs::self{}, mine);
    for (auto const x : mine) CHECK(gs::is_finite(x));
  }
}

TEST_CASE("steps allocate nothing") {
  CHECK(allocations_are_counted());
  CHECK(allocations_of<float>() == 0);
  CHECK(allocations_of<gs::bfloat16>() == 0);
}

TEST_CASE("the same bits for any number of threads and any vectors") {
  auto const trace = [](gs::host where) {
    auto const n = std::size_t{100'003};
    std::vector<float> own = gradient(n, 0, 99);
    gs::parameter_exchange exchange{
        gs::compressor{where, gs::layout::flat(n), gs::recipe{.density = 0.01}},
        std::span{own},
        {.weight = 0.3f, .momentum = 0.9f}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto const change = gradient(n, 0, step);
      for (std::size_t i = 0; i < n; ++i) own[i] += 0.01f * change[i];
      exchange.exchange_parameters(gs::self{}, own);
    }
    return hash(own, hash(std::as_bytes(exchange.common())));
  };
  auto const usual = trace({.threads = 1});
  CHECK(trace({.threads = 3}) == usual);
  CHECK(trace({.threads = 1, .simd_limit = gs::simd::portable}) == usual);
  CHECK(trace({.threads = 2, .simd_limit = gs::simd::avx2}) == usual);
}

TEST_CASE("Adam at 1 %: exchanged parameters get there, exchanged gradients do not") {
  double const dense = adam_loss(way::dense);
  double const parameters = adam_loss(way::parameters);
  double const gradients = adam_loss(way::gradients);
  INFO("dense " << dense << ", parameters " << parameters << ", gradients " << gradients);
  CHECK(parameters < 2 * dense);
  CHECK(gradients > 10 * dense);
}
