// The residual store filtered: error feedback at beta 1, and below it a filter whose balance is another one.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

gs::host const here{.threads = 1};

/// ScaleCom's rule as it is written, in double.
struct by_the_book {
  double beta;
  double memory = 0;

  /// Returns what is sent: all of the accumulator, or nothing.
  double step(double gradient, bool sends) {
    double const accumulator = memory + gradient;
    double const sent = sends ? accumulator : 0.0;
    memory = (1 - beta) * memory + beta * (memory + gradient - sent);
    return sent;
  }
};

}  // namespace

TEST_CASE("filtered in plain numbers") {
  gs::element_state<2> state{99.0f, 16.0f};  // a memory of 4
  gs::filtered const quarter{.beta = 0.25f};
  quarter.accumulate_element(8.0f, state);
  CHECK(state[0] == 12.0f);
  CHECK(state[1] == 24.0f);
  for (bool const whole : {false, true}) {
    auto sent = state;
    quarter.remove_sent(12.0f, sent, whole);
    CHECK(sent[0] == 0.0f);
    CHECK(sent[1] == 12.0f);  // a memory of (1 - beta) of the 4 that there were
  }
  quarter.remove_sent(10.0f, state, false);  // rounded by a codec
  CHECK(state[0] == 2.0f);
  CHECK(state[1] == 14.0f);
}

TEST_CASE("filtered follows ScaleCom's rule, and came in = sent + what waits") {
  data::generator random{5};
  for (float const beta : {1.0f, 0.75f, 0.5f, 0.1f, 0.01f}) {
    CAPTURE(beta);
    gs::filtered const policy{.beta = beta};
    by_the_book rule{static_cast<double>(beta)};
    gs::element_state<2> state{};
    double came_in = 0;
    double sent_in_all = 0;
    double worst = 0;
    for (int step = 0; step < 200; ++step) {
      auto const g = static_cast<float>(random.gauss());
      bool const sends = random.below(4) == 0;
      policy.accumulate_element(g, state);
      float const sent = sends ? state[0] : 0.0f;
      if (sends) policy.remove_sent(sent, state, false);
      double const expected = rule.step(static_cast<double>(g), sends);
      came_in += static_cast<double>(g);
      sent_in_all += static_cast<double>(sent);
      worst = std::max({worst, std::fabs(static_cast<double>(sent) - expected),
                        std::fabs(static_cast<double>(beta) * static_cast<double>(state[1]) - rule.memory)});
    }
    CHECK(worst < 1e-5);
    CHECK(std::fabs(came_in - sent_in_all - static_cast<double>(state[1])) < 1e-4);
  }
}

TEST_CASE("a constant gradient that is sent every T steps: below beta 1 it goes out late, but all of it") {
  // From an empty memory the c-th sending gives g ((T - 1) (1 - (1 - beta)^c) + 1): the closed form of the rule.
  for (float const beta : {1.0f, 0.5f, 0.1f})
    for (int const period : {1, 2, 7}) {
      CAPTURE(beta);
      CAPTURE(period);
      gs::filtered const policy{.beta = beta};
      gs::element_state<2> state{};
      float last = 0;
      for (int c = 1; c <= 200; ++c) {
        for (int step = 1; step <= period; ++step) policy.accumulate_element(3.0f, state);
        last = state[0];
        policy.remove_sent(last, state, false);
        double const kept = std::pow(1 - static_cast<double>(beta), c);
        CHECK(static_cast<double>(last) == doctest::Approx(3 * ((period - 1) * (1 - kept) + 1)).epsilon(1e-5));
      }
      CHECK(last == doctest::Approx(3.0 * period).epsilon(1e-5));
    }
}

TEST_CASE("at beta 1 filtered is error feedback, bit for bit") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe, auto other) {
    for (int const world : {1, 3}) {
      CAPTURE(world);
      auto const said = on_ranks(world, [&](communicator comm) {
        findings found;
        gs::compressor filtered{here, mixed_layers(), recipe};
        gs::compressor plain{here, mixed_layers(), other};
        for (std::uint64_t step = 0; step < 20; ++step) {
          auto a = gradient(n, comm.rank(), step);
          if (step == 3) a[17] = std::numeric_limits<float>::quiet_NaN();
          if (step == 4) a[18] = a[19] = std::numeric_limits<float>::max();
          if (step == 5) a[18] = a[19] = std::numeric_limits<float>::max();
          auto b = a;
          filtered.exchange(comm, std::span{a});
          plain.exchange(comm, std::span{b});
          found.expect(same_bits(a, b), "updates differ in step " + std::to_string(step));
          if (step % 5 == 2) filtered.discard_step(), plain.discard_step();
          if (step % 5 == 3) filtered.rescale(0.5f), plain.rescale(0.5f);
          auto const states = states_of(filtered);
          auto const residual = residual_of(plain);
          found.expect(same_bits(std::span<float const>{states}.first(n), std::span<float const>{residual}),
                       "accumulators differ");
          found.expect(same_bits(std::span<float const>{states}.last(n), std::span<float const>{residual}),
                       "the memory differs");
        }
        return found.text();
      });
      CHECK(joined(said) == "");
    }
  };
  check(gs::recipe{.density = 0.02, .residual = gs::filtered{}}, gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}, .residual = gs::filtered{}},
        gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}, .residual = gs::filtered{}},
        gs::recipe{.density = 0.02, .partitioner = gs::deft{}});
}

TEST_CASE("below beta 1: came in = sent + what waits on every element, also after a restart with another beta") {
  auto const n = mixed_layers().size();
  for (int const world : {1, 2, 4}) {
    CAPTURE(world);
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      std::vector<double> open(n);  // of all ranks: came in - applied - what waits
      std::vector<std::byte> saved;
      std::vector<float> states;
      for (float const beta : {0.25f, 0.75f, 0.1f}) {
        auto const recipe =
            gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = beta}};
        gs::compressor compressor{here, mixed_layers(), recipe};
        if (!saved.empty()) compressor.restore(saved);
        for (std::uint64_t step = 0; step < 20; ++step) {
          auto update = gradient(n, comm.rank(), compressor.step());
          for (std::size_t i = 0; i < n; ++i) open[i] += static_cast<double>(update[i]);
          compressor.exchange(comm, std::span{update});
          for (std::size_t i = 0; i < n; ++i) open[i] -= static_cast<double>(update[i]);
        }
        saved = compressor.state();
        states = states_of(compressor);
      }
      double residual_differs = 0;
      for (std::size_t i = 0; i < n; ++i) {
        open[i] -= static_cast<double>(states[n + i]);
        residual_differs += std::fabs(static_cast<double>(states[i]) - static_cast<double>(states[n + i]));
      }
      comm.all_reduce(here, std::span{open}, gs::reduction::sum);
      for (std::size_t i = 0; i < n; ++i)
        found.expect(std::fabs(open[i]) < 1e-3,
                     "element " + std::to_string(i) + " is off by " + std::to_string(open[i]));
      found.expect(residual_differs > 1, "a filter that does not filter");
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

TEST_CASE("layers that pass through are the dense mean in every step, and leave nothing behind") {
  auto const layers = gs::layout{{"w", 300}, {"bias", 50}};
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{
        here, layers, gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = 0.3f}}};
    gs::compressor whole{here, layers, gs::recipe{.density = 1.0, .residual = gs::filtered{.beta = 0.3f}}};
    for (std::uint64_t step = 0; step < 10; ++step) {
      auto update = gradient(350, comm.rank(), step);
      auto all = update;
      auto mean = update;
      comm.all_reduce(here, std::span{mean}, gs::reduction::sum);
      for (float& each : mean) each /= 3.0f;
      compressor.exchange(comm, std::span{update});
      whole.exchange(comm, std::span{all});
      found.expect(std::equal(update.begin() + 300, update.end(), mean.begin() + 300), "a layer is not the dense mean");
      found.expect(all == mean, "density 1 is not the dense mean");
      auto const states = states_of(compressor);
      for (std::size_t i = 300; i < 350; ++i)
        found.expect(states[i] == 0 && states[350 + i] == 0, "a layer left something behind");
      auto const of_whole = states_of(whole);
      found.expect(std::all_of(of_whole.begin(), of_whole.end(), [](float x) { return x == 0; }),
                   "density 1 left something behind");
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("discard_step() below beta 1: as if nothing had been sent") {
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.05, .residual = gs::filtered{.beta = 0.5f}};
  gs::compressor compressor{here, mixed_layers(), recipe};
  for (std::uint64_t step = 0; step < 6; ++step) {
    auto const before = states_of(compressor);
    auto const g = gradient(n, 0, step);
    compressor.compress(std::span<float const>{g});
    if (step % 2 == 0) continue;
    compressor.discard_step();
    auto const after = states_of(compressor);
    bool right = true;
    for (std::size_t i = 0; i < n; ++i) {
      right = right && after[i] == gs::multiply_add(0.5f, before[n + i], g[i]);
      right = right && after[n + i] == before[n + i] + g[i];
    }
    CHECK(right);
  }
}

TEST_CASE("filtered's beta is above 0 and up to 1, and stands in the recipe's text") {
  auto const made = [](float beta) {
    return ending([&] { gs::compressor{here, gs::layout::flat(10), gs::recipe{.residual = gs::filtered{beta}}}; });
  };
  CHECK(made(1.0f) == "");
  CHECK(made(std::numeric_limits<float>::denorm_min()) == "");
  CHECK(made(0.0f) == "invalid_argument: gradsieve: filtered's beta is 0, expected above 0 to 1");
  CHECK(made(1.5f) == "invalid_argument: gradsieve: filtered's beta is 1.5, expected above 0 to 1");
  CHECK(contains(made(-0.5f), "beta is -0.5"));
  CHECK(contains(made(std::numeric_limits<float>::quiet_NaN()), "beta is nan"));
  CHECK(gs::recipe{.residual = gs::filtered{.beta = 0.1f}}.hash() != gs::recipe{.residual = gs::filtered{}}.hash());
}
