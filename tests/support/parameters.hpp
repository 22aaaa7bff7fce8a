// Ranks that step parameters of their own, and what they should amount to.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/parameters.hpp>

#include "steps.hpp"

namespace parameters {

using namespace steps;

inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
inline gs::host const here{.threads = 1};

/// A user's store of one state.
struct keeps_all {
  static constexpr std::size_t states = 1;
  void accumulate_element(float gradient, gs::element_state<states>& state) const noexcept {
    state[0] = gs::add(state[0], gradient);
  }
  void remove_sent(float sent, gs::element_state<states>& state, bool) const noexcept {
    state[0] = gs::subtract(state[0], sent);
  }
  friend bool operator==(keeps_all const&, keeps_all const&) = default;
  friend std::ostream& operator<<(std::ostream& out, keeps_all const&) { return out << "keeps_all"; }
};

/// Whether a store loses nothing.
template <class Recipe>
bool is_exact(Recipe const& recipe) {
  using residual = decltype(Recipe::residual);
  if constexpr (std::same_as<residual, gs::error_feedback>)
    return recipe.residual.decay == 1.0f;
  else
    return !std::same_as<residual, gs::none>;
}

inline float first_parameter(std::size_t i) { return 0.25f + 0.5f * static_cast<float>(gs::mix(i) % 1000) / 1000.0f; }

/// A communicator whose messages fail on all ranks: the ranks have met, and the gradient is in the residual.
struct cut_off : forwarding {
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    if (sizeof...(Sizes) > 0) throw std::runtime_error("cut off");
    real.all_gather(where, mine, all, sizes...);
  }
};

/// A rank: its own parameters, and the sum of what its optimizer has changed.
template <class T, class Exchange>
struct member {
  std::vector<T> own;
  std::vector<double> income;
  std::vector<double> waiting;  // what of it no exchange has accumulated
  std::uint64_t accumulated = 0;
  Exchange exchange;
  std::vector<double> sent{std::vector<double>(own.size())}, held{sent}, moved{sent};  // with a momentum: of the mean
  double size = 0;

  template <class Recipe>
  explicit member(Recipe const& recipe, gs::parameter_options options = {})
      : own(first()),
        income(own.size()),
        waiting(own.size()),
        exchange{gs::compressor{here, mixed_layers(), recipe}, std::span<T const>{own}, options} {}

  [[nodiscard]] static std::vector<T> first() {
    std::vector<T> made(mixed_layers().size());
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = gs::from_float<T>(first_parameter(i));
    return made;
  }

  /// What an optimizer does.
  void change(int rank, std::uint64_t step) {
    note_exchange();
    auto const by = gradient(own.size(), rank, step);
    for (std::size_t i = 0; i < own.size(); ++i) {
      auto const before = static_cast<double>(gs::to_float(own[i]));
      own[i] = gs::from_float<T>(gs::to_float(own[i]) + 0.004f * by[i]);
      double const changed = static_cast<double>(gs::to_float(own[i])) - before;
      income[i] += changed;
      waiting[i] += changed;
    }
  }

  /// What is not finite counts as no change.
  void spoil(std::size_t i) {
    income[i] -= waiting[i];
    waiting[i] = 0;
    own[i] = gs::from_float<T>(i % 2 == 0 ? not_a_number : std::numeric_limits<float>::infinity());
  }

  void note_exchange() {
    if (auto const now = exchange.compressor().accumulated(); now != accumulated) {
      std::ranges::fill(waiting, 0.0);
      accumulated = now;
    }
  }

  /// `ahead`: the momentum by which own parameters are ahead.
  [[nodiscard]] bool is_as_written(double ahead = 0) {
    auto const unsent = exchange.compressor().residual();
    bool same = true;
    for (std::size_t i = 0; i < own.size(); ++i) {
      auto const before = exchange.common()[i];
      auto const moves = size > 0 ? static_cast<float>(ahead * held[i] / size) : 0.0f;
      auto const expected = gs::detail::own_parameter<T>(before + moves, unsent[i], exchange.weight());
      auto const away = std::abs(gs::to_float(own[i]) - gs::to_float(expected));
      same = same && away <= (ahead > 0 ? std::same_as<T, float> ? 1e-6f : 0.01f : 0.0f);
    }
    return same;
  }

  /// The mean of what ranks have sent in all exchanges.
  [[nodiscard]] std::vector<double> sent_so_far(communicator comm) {
    auto const unsent = exchange.compressor().residual();
    std::vector<double> sums(own.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      sums[i] = (income[i] - static_cast<double>(unsent[i])) / comm.size();
    comm.all_reduce(here, std::span{sums}, gs::reduction::sum);
    return sums;
  }

  /// After an exchange: its mean moves what a momentum makes of all of them.
  void follow(communicator comm, double momentum) {
    auto const now = sent_so_far(comm);
    size = momentum * size + (1 - momentum);
    for (std::size_t i = 0; i < now.size(); ++i) {
      held[i] = momentum * held[i] + (1 - momentum) * (now[i] - sent[i]);
      moved[i] += held[i] / size;
    }
    sent = now;
  }

  /// What is wrong with the sum over all ranks, after an exchange.
  [[nodiscard]] std::string balance(communicator comm, bool has_momentum = false) {
    auto const sums = has_momentum ? moved : sent_so_far(comm);
    double worst = 0;
    for (std::size_t i = 0; i < own.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(exchange.common()[i]) -
                                       static_cast<double>(gs::to_float(first()[i])) - sums[i]));
    return worst < 1e-5 ? "" : "the balance is off by " + std::to_string(worst) + "; ";
  }
};

/// Steps with all that may happen between them; what went wrong.
template <class T, class Recipe>
std::string run(Recipe const& recipe, int world, std::uint64_t count, gs::parameter_options options = {}) {
  using exchange_type = gs::parameter_exchange<gs::compressor<gs::host, Recipe>, T>;
  auto const said = on_ranks(world, [&](communicator comm) {
    findings found;
    member<T, exchange_type> mine{recipe, options};
    auto const n = mine.own.size();
    std::uint64_t not_finite = 0;
    for (std::uint64_t step = 0; step < count; ++step) {
      auto const event = step + 1 == count ? 7 : gs::mix(step) % 10;
      auto const odd = static_cast<int>(gs::mix(step + 1000) % static_cast<std::uint64_t>(world));
      auto& exchange = mine.exchange;
      mine.change(comm.rank(), step);
      if (event == 0) {  // layers that are skipped
        std::vector<unsigned char> skipped(mixed_layers().count());
        for (std::size_t i = 0; i < skipped.size(); ++i) skipped[i] = gs::mix(step + 10 * i) % 2 == 0;
        exchange.exchange_parameters(comm, mine.own, skipped);
      } else if (event == 1) {  // one rank fails
        auto const before = mine.own;
        auto const how = ending([&] {
          if (comm.rank() == odd)
            exchange.fail(comm, mine.own);
          else
            exchange.exchange_parameters(comm, mine.own);
        });
        found.expect(comm.rank() == odd ? how.empty() : contains(how, "failed in this step"), "fail: " + how);
      } else if (event == 2) {  // an update that is discarded after its exchange
        auto const update = exchange.take_update(mine.own);
        exchange.compressor().exchange(comm, update);
        exchange.discard_step(mine.own);
      } else if (event == 3) {  // a transport of one's own
        auto const update = exchange.take_update(mine.own);
        exchange.compressor().exchange(comm, update);
        exchange.apply_mean(mine.own, world);
      } else if (event == 4) {  // a checkpoint, into another object
        exchange.exchange_parameters(comm, mine.own);
        auto const saved = exchange.state();
        auto const own = mine.own;
        exchange_type other{gs::compressor{here, mixed_layers(), recipe},
                            std::span<T const>{member<T, exchange_type>::first()}, options};
        other.restore(saved, mine.own);
        found.expect(hash(own) == hash(mine.own), "a checkpoint has other own parameters");
        found.expect(other.state() == saved, "a checkpoint has another state");
        exchange = std::move(other);
        mine.accumulated = 0;
      } else if (event == 5) {  // what is not finite
        if (comm.rank() == odd) {
          mine.spoil(5);
          mine.spoil(1600);
        }
        not_finite = exchange.exchange_parameters(comm, mine.own).non_finite;
        found.expect(not_finite == (comm.rank() == odd ? 2u : 0u), "a report counts other non-finite updates");
      } else if (event != 6) {  // 6: a step without an exchange
        exchange.exchange_parameters(comm, mine.own);
      }
      if (options.momentum > 0 && event != 1 && event != 2 && event != 6)
        mine.follow(comm, static_cast<double>(options.momentum));
      if (event != 1 && event != 6) {
        float const weight = options.among(world);
        bool const keeps = !std::same_as<decltype(Recipe::residual), gs::none>;
        found.expect(exchange.weight() == (keeps ? weight : 0.0f) || (event == 2 && exchange.weight() == 0.0f),
                     "another weight");
        double const ahead = options.look_ahead ? static_cast<double>(options.momentum) : 0.0;
        found.expect((ahead > 0 && !is_exact(recipe)) || mine.is_as_written(ahead),
                     "own is not common, what it is ahead, and the rest after event " + std::to_string(event));
        found.expect(std::ranges::all_of(mine.own, [](T x) { return gs::is_finite(gs::to_float(x)); }), "not finite");
      }
      auto const how = ending([&] { exchange.check_common(comm); });
      found.expect(how.empty(), how);
    }
    bool moved = false;
    for (std::size_t i = 0; i < n; ++i) moved = moved || mine.exchange.common()[i] != gs::to_float(mine.first()[i]);
    found.expect(moved, "nothing was sent");
    auto const sum = mine.balance(comm, options.momentum > 0);
    return found.text() + (is_exact(recipe) ? sum : "");
  });
  return joined(said);
}

/// Everything about one recipe.
template <class T = float, class Recipe>
void all(Recipe recipe) {
  INFO(recipe);
  recipe.density = 0.03;
  for (int const world : {1, 3, 4}) {
    CAPTURE(world);
    CHECK(run<T>(recipe, world, 40) == "");
  }
  CHECK(run<T>(recipe, 3, 40, {.weight = 1.0f, .momentum = 0.8f}) == "");
  CHECK(run<T>(recipe, 3, 10, {.momentum = 0.8f, .look_ahead = false}) == "");
  CHECK(run<T>(recipe, 3, 40, {.weight = 0.0f}) == "");
}

// ---- Adam ----------------------------------------------------------------------------------------------------

enum class way { dense, gradients, parameters, with_factors, with_momentum };

/// Four ranks minimise a quadratic with curvatures over three decades, each with noise of its own; what is left of it.
inline double adam_loss(way how, float noise = 0.5f, float most_rate = 0.02f) {
  constexpr std::size_t n = 2000;
  constexpr int steps = 600;
  auto const curvature = [](std::size_t i) {
    return std::pow(10.0f, -3.0f * static_cast<float>(gs::mix(i) % 1000) / 1000.0f);
  };
  double loss = 0;
  gs::threads::run(4, [&](communicator comm) {
    data::generator random{static_cast<std::uint64_t>(comm.rank()) + 7};
    std::vector<float> x(n, 1.0f), mean(n), square(n), g(n);
    auto const recipe = gs::recipe{.density = how == way::dense ? 1.0 : 0.01, .passthrough = {.patterns = {}}};
    gs::compressor reducer{here, gs::layout::flat(n), recipe};
    bool const apart = how == way::with_momentum;  // no momentum in the optimizer
    gs::parameter_exchange exchange{gs::compressor{here, gs::layout::flat(n), recipe}, std::span{x},
                                    {.momentum = apart ? 0.9f : 0.0f}};
    gs::second_moments moments{here, gs::layout::flat(n)};
    bool const own = how == way::parameters || how == way::with_factors || apart;
    for (int step = 1; step <= steps; ++step) {
      for (std::size_t i = 0; i < n; ++i) g[i] = curvature(i) * (x[i] + noise * static_cast<float>(random.gauss()));
      if (!own) reducer.exchange(comm, g);
      if (how == way::with_factors || apart) moments.measure(comm, g);
      float const factor = moments.factors()[0];
      auto const s = static_cast<float>(step);
      float const rate = most_rate * (1.0f - s / (steps + 1));
      for (std::size_t i = 0; i < n; ++i) {
        mean[i] = apart ? g[i] * (1 - std::pow(0.9f, s)) : 0.9f * mean[i] + 0.1f * g[i];
        square[i] = 0.99f * square[i] + 0.01f * factor * g[i] * g[i];
        x[i] -= rate * (mean[i] / (1 - std::pow(0.9f, s))) / (std::sqrt(square[i] / (1 - std::pow(0.99f, s))) + 1e-8f);
      }
      if (own) exchange.exchange_parameters(comm, x);
    }
    auto const last = own ? exchange.common() : std::span<float const>{x};
    if (comm.rank() == 0)
      for (std::size_t i = 0; i < n; ++i) loss += 0.5 * static_cast<double>(curvature(i) * last[i] * last[i]);
  });
  return loss;
}

}  // namespace parameters
