// The mass balance of a recipe, checked element by element while ranks exchange.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>


#include "steps.hpp"

namespace balance {

using namespace steps;

inline constexpr std::uint64_t step_count = sanitized ? 8 : 50;

inline constexpr double usual_density = 0.03;

/// gradient(), made once.
inline std::vector<float> const& pooled(std::uint64_t n, int rank, std::uint64_t step) {
  static std::vector<std::vector<float>> const pool = [n] {
    std::vector<std::vector<float>> all;
    for (int r = 0; r < 8; ++r)
      for (std::uint64_t s = 0; s < 50; ++s) all.push_back(steps::gradient(n, r, s));
    return all;
  }();
  return pool[at(rank) * 50 + step];
}

/// A compressor without its type, so that the checks below are compiled once and not for every recipe.
struct any_compressor {
  std::size_t states = 1;
  bool momentum = false;
  bool lossy_messages = false;  // encoding rounds values: an element may leave in part
  bool lossy_exchange = false;  // and so does the exchange
  bool codes_full = false;      // segments that are sent in full are encoded
  std::function<gs::step_report(communicator const&, std::span<float>, gs::skipped_layers)> exchange;
  std::function<gs::selection_view(std::span<float const>)> compress;
  std::function<gs::step_report()> report;
  std::function<std::vector<float>()> saved;                             // all states
  std::function<void(float, gs::element_state<2>&)> accumulate_element;  // the residual store's
  std::function<void(float, gs::element_state<2>&, bool)> remove_sent;
};
using maker = std::function<any_compressor(gs::host, double density)>;

/// Makes of all ranks' shards the whole update. @throws std::logic_error if there was anything else than a shard, and
/// what passes through.
inline void join_shards(communicator const& comm, std::span<float> gradient);

/// True if ranks keep sums of their shards, of up to 8 ranks.
template <class Exchange>
bool keeps_sums(Exchange const& exchange) {
  if constexpr (requires { exchange.returned; }) return exchange.returned < 8;
  return false;
}

template <class Recipe>
any_compressor erase(gs::host where, Recipe recipe, double density) {
  using residual = decltype(Recipe::residual);
  constexpr bool lossy = requires(gs::message_info info, std::vector<gs::index_type> places,
                                  std::vector<float> values) { recipe.codec.quantise(info, places, values); };
  recipe.density = density;
  constexpr bool scatters = std::is_same_v<decltype(Recipe::exchange), gs::reduce_scatter>;
  auto const made = std::make_shared<gs::compressor<gs::host, Recipe>>(where, mixed_layers(), recipe);
  return {residual::states,
          std::is_same_v<residual, gs::momentum_correction>,
          lossy,
          lossy || keeps_sums(recipe.exchange),
          gs::detail::codes_full(recipe),
          [made](communicator const& comm, std::span<float> gradient, gs::skipped_layers skipped) {
            auto const report = made->exchange(comm, gradient, skipped);
            if constexpr (scatters) join_shards(comm, gradient);
            return report;
          },
          [made](std::span<float const> gradient) { return made->compress(gradient); },
          [made] { return made->report(); },
          [made] { return states_of(*made); },
          [policy = recipe.residual](float gradient, gs::element_state<2>& state) {
            gs::element_state<residual::states> own{};
            std::copy_n(state.value, residual::states, own.value);
            policy.accumulate_element(gradient, own);
            std::copy_n(own.value, residual::states, state.value);
          },
          [policy = recipe.residual](float sent, gs::element_state<2>& state, bool full_layer) {
            gs::element_state<residual::states> own{};
            std::copy_n(state.value, residual::states, own.value);
            policy.remove_sent(sent, own, full_layer);
            std::copy_n(own.value, residual::states, state.value);
          }};
}

/// Layers that all ranks skip in a step: none in some steps, all in one of 16.
inline std::vector<unsigned char> random_skipped(std::uint64_t step) {
  auto const bits = gs::mix(0x5C1Bu ^ step);
  std::vector<unsigned char> skipped(mixed_layers().count());
  for (std::size_t i = 0; i < skipped.size(); ++i)
    skipped[i] = bits % 16 == 0 || (bits % 4 != 1 && (bits >> (8 + i) & 1) != 0);
  return skipped;
}

/// The same by element.
inline std::vector<bool> by_element(std::vector<unsigned char> const& skipped) {
  auto const layers = mixed_layers();
  std::vector<bool> all;
  for (std::size_t i = 0; i < layers.count(); ++i)
    all.insert(all.end(), layers[i].size, !skipped.empty() && skipped[i] != 0);
  return all;
}

/// Whether an element's layer passes through uncompressed.
inline bool passes(std::uint64_t i) {
  static std::vector<char> const all = [] {
    std::vector<char> passthrough;
    for (auto const& each : mixed_layers())
      passthrough.insert(passthrough.end(), each.size,
                         contains(each.name, "bias") || contains(each.name, "norm") ? 1 : 0);
    return passthrough;
  }();
  return all[i] != 0;
}

inline void join_shards(communicator const& comm, std::span<float> gradient) {
  auto const n = gradient.size();
  bool right = true;
  bool const full = std::ranges::all_of(gradient, [](float x) { return x != 0; });  // in effect: all passed through
  std::vector<std::size_t> sizes;
  for (int r = 0; r < comm.size(); ++r) sizes.push_back(4 * gs::shard_of(n, comm.size(), r).size);
  auto const mine = gs::shard_of(n, comm.size(), comm.rank());
  for (std::uint64_t i = 0; i < n; ++i)
    right = right || full || passes(i) || gradient[i] == 0 || (i >= mine.offset && i < mine.offset + mine.size);
  auto const whole = std::vector<float>(gradient.begin(), gradient.end());
  comm.all_gather(gs::host{}, std::as_bytes(std::span{whole}.subspan(mine.offset, mine.size)),
                  std::as_writable_bytes(gradient), std::span{std::as_const(sizes)});
  if (!right) throw std::logic_error("a gradient has more than its shard");
}

/// Of each element, whether its layer has nothing in its accumulators.
inline std::vector<bool> empty_layers(std::vector<float> const& accumulators) {
  std::vector<bool> all;
  for (auto const& each : mixed_layers()) {
    auto const* const first = accumulators.data() + all.size();
    all.insert(all.end(), each.size, std::all_of(first, first + each.size, [](float x) { return x == 0.0f; }));
  }
  return all;
}

/// What one rank knows about a step by itself: what entered and what left, each element checked bit for bit.
struct ledger {
  static constexpr std::uint64_t single = 1516;  // the layer of size 1
  std::uint64_t n;
  std::vector<double> came_in = std::vector<double>(n);  // of all steps: what was added to the accumulator
  std::vector<float> given = std::vector<float>(n);      // of this step: what left it

  void check(any_compressor const& it, bool lossy, std::vector<float> const& before, std::vector<float> const& gradient,
             std::vector<float> const& after, findings& found, bool skips = false) {
    bool kept_or_given = true;
    bool second_right = true;
    auto const empty = empty_layers(after);
    for (std::uint64_t i = 0; i < n; ++i) {
      gs::element_state<2> state{};
      for (std::size_t s = 0; s < it.states; ++s) state[s] = before[s * n + i];
      it.accumulate_element(gradient[i], state);
      came_in[i] += static_cast<double>(state[0]) - static_cast<double>(before[i]);
      bool const kept = std::bit_cast<std::uint32_t>(after[i]) == std::bit_cast<std::uint32_t>(state[0]);
      given[i] = kept ? 0.0f : state[0] - after[i];
      kept_or_given = kept_or_given && (kept || after[i] == 0.0f || lossy);
      if (it.states < 2) continue;
      // the second state: as it entered, or as leaving makes it. A layer of one element may leave in either way; where
      // others are skipped any layer of which nothing stays, as a partitioner may give it all of its elements.
      bool const either = skips ? bool{empty[i]} : i == single;
      auto const same = [&](float expected) {
        return std::bit_cast<std::uint32_t>(after[n + i]) == std::bit_cast<std::uint32_t>(expected);
      };
      auto const left = [&](bool full_layer) {
        auto sent = state;
        it.remove_sent(state[0], sent, full_layer);
        return same(sent[1]);
      };
      // what a rank gives may be zero where the exchange rounds a sum: its own share may be what rounding takes off
      bool const may_have_left = given[i] != 0.0f || state[0] == 0.0f || either || lossy;
      second_right = second_right && ((given[i] == 0.0f && same(state[1])) ||
                                      (may_have_left && (left(passes(i)) || (either && left(!passes(i))))));
    }
    found.expect(kept_or_given, "an element neither stayed whole nor left whole");
    found.expect(second_right, "a velocity or memory is neither what entered nor what sending makes of it");
  }
};

/// Exchanges `count` steps on every rank, and holds each against the ledgers of all of them. Returns what went
/// wrong, and in `trace` a hash of every update and every final state. If it `skips`, each step skips random layers, as
/// all ranks do.
inline std::string run(maker const& make, int world, std::uint64_t count, int threads, std::uint64_t& trace,
                       bool skips = false) {
  auto const layers = mixed_layers();
  auto const n = layers.size();
  std::vector<std::uint64_t> traces(at(world));
  auto const said = on_ranks(world, [&](communicator comm) {
    findings found;
    gs::host const where{.threads = threads};
    auto const compressor = make(where, usual_density);
    ledger mine{n};
    std::vector<double> applied(n);
    std::uint64_t h = 1;
    std::uint64_t selected = 0;
    auto before = compressor.saved();
    for (std::uint64_t step = 0; step < count; ++step) {
      auto const& gradient = pooled(n, comm.rank(), step);
      auto update = gradient;
      auto const skipped = skips ? random_skipped(step) : std::vector<unsigned char>{};
      auto const is_skipped = by_element(skipped);
      auto const report = compressor.exchange(comm, std::span{update}, skipped);
      selected += report.selected + report.passthrough_elements;
      auto after = compressor.saved();
      found.expect(report.skipped_elements == at(static_cast<int>(std::ranges::count(is_skipped, true))),
                   "the report counts other skipped elements, step " + std::to_string(step));
      found.expect(report.selected <= report.capacity && report.union_size <= n - report.skipped_elements -
                                                                                  report.passthrough_elements,
                   "more entries than can be selected, step " + std::to_string(step));
      mine.check(compressor, compressor.lossy_exchange, before, gradient, after, found, skips);

      // the update is the sum of what all ranks gave, in rank order, over P: to the last bit, where they gave all
      auto sum = mine.given;
      comm.all_reduce(where, std::span{sum}, gs::reduction::sum);
      bool exact = true;
      for (std::uint64_t i = 0; i < n; ++i) {
        float const mean = sum[i] / static_cast<float>(world);
        float const rounding = compressor.lossy_exchange ? 1e-5f * (1 + std::fabs(before[i])) : 0.0f;
        exact = exact && std::fabs(update[i] - mean) <= rounding;
        applied[i] += static_cast<double>(update[i]);
      }
      found.expect(exact, "the update is not the mean of what the ranks gave, step " + std::to_string(step));

      for (std::uint64_t i = 0; i < n; ++i)
        if (is_skipped[i])
          found.expect(update[i] == 0.0f && mine.given[i] == 0.0f, "a skipped layer gave something");
        else
          found.expect(!passes(i) || after[i] == 0.0f, "a passthrough layer kept something");

      h = hash(update, h);
      std::vector<std::uint64_t> all(at(world));
      comm.all_gather(where, std::as_bytes(std::span{&h, 1}), std::as_writable_bytes(std::span{all}));
      for (auto const each : all)
        found.expect(each == all[0], "ranks ended with different bits, step " + std::to_string(step));
      before = std::move(after);
    }
    found.expect(selected > 0, "nothing was ever sent");

    // everything that came in = P times everything applied + what the ranks still hold (decay fades some of it,
    // and came_in has counted that as negative income)
    std::vector<double> income = mine.came_in;
    std::vector<double> held(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(n));
    comm.all_reduce(where, std::span{income}, gs::reduction::sum);
    comm.all_reduce(where, std::span{held}, gs::reduction::sum);
    for (std::uint64_t i = 0; i < n; ++i) {
      double const spent = applied[i] * world + held[i];
      found.expect(std::fabs(income[i] - spent) < 1e-5 * static_cast<double>(count) * (1 + std::fabs(income[i])),
                   "element " + std::to_string(i) + ": " + std::to_string(income[i]) + " came in, " +
                       std::to_string(spent) + " is accounted for");
    }
    traces[at(comm.rank())] = hash(before, h);
    return found.text();
  });
  trace = hash(traces);
  return joined(said);
}

/// compress() alone: what is emitted and what stays make the accumulator, bit for bit.
inline std::string run_alone(maker const& make) {
  auto const layers = mixed_layers();
  auto const n = layers.size();
  findings found;
  auto const compressor = make(gs::host{.threads = 1}, usual_density);
  ledger mine{n};
  for (std::uint64_t step = 0; step < 10; ++step) {
    auto const& gradient = pooled(n, 0, step);
    auto const before = compressor.saved();
    auto const sent = compressor.compress(std::span<float const>{gradient});
    mine.check(compressor, compressor.lossy_messages, before, gradient, compressor.saved(), found);
    std::vector<float> emitted(n);
    for (std::size_t e = 0; e < sent.indices.size(); ++e) {
      emitted[sent.indices[e]] = sent.values[e];
      found.expect(sent.values[e] != 0.0f, "a zero was emitted");
      found.expect(e == 0 || sent.indices[e - 1] < sent.indices[e], "indices do not rise");
    }
    std::size_t d = 0;
    for (std::uint64_t i = 0; i < n; ++i)
      if (passes(i) && d < sent.passthrough.size()) emitted[i] = sent.passthrough[d++];
    found.expect(sent.passthrough.size() == 64, "the emitted passthrough layers have another size");
    bool same = true;
    for (std::uint64_t i = 0; i < n; ++i)
      same = same && std::fabs(emitted[i] - mine.given[i]) <=
                         (compressor.lossy_messages ? 1e-5f * (1 + std::fabs(before[i])) : 0.0f);
    found.expect(same, "what left the residual is not what was emitted");
    found.expect(!sent.indices.empty(), "nothing was emitted");
    found.expect(compressor.report().selected == sent.indices.size(), "the report counts other entries");
  }
  return found.text();
}

/// At density 1 an exchange is the dense all-reduce.
inline std::string run_full(maker const& make, int world) {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(world, [&](communicator comm) {
    findings found;
    auto const compressor = make(gs::host{.threads = 1}, 1.0);
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto update = pooled(n, comm.rank(), step);
      auto averaged = update;
      comm.all_reduce(gs::host{}, std::span{averaged}, gs::reduction::sum);
      for (float& x : averaged) x /= static_cast<float>(world);
      auto const report = compressor.exchange(comm, std::span{update}, {});
      found.expect(update == averaged || (compressor.codes_full && compressor.lossy_exchange),
                   "density 1 differs from a dense all-reduce, step " + std::to_string(step));
      found.expect(report.passthrough_elements == (compressor.codes_full ? 64 : n) &&
                       report.selected + report.passthrough_elements == n,
                   "density 1 did not send all");
    }
    return found.text();
  });
  return joined(said);
}

/// Everything about one recipe.
inline void all(std::string const& name, maker const& make) {
  INFO(name);
  CHECK(run_alone(make) == "");
  for (int const world : {1, 2, 3, 4, 8}) {
    INFO("world " << world);
    std::uint64_t trace = 0;
    CHECK(run(make, world, step_count, 1, trace) == "");
    if (world == 3) {  // again, and with host threads that outnumber the tiles
      std::uint64_t again = 0;
      CHECK(run(make, world, step_count, 1, again) == "");
      CHECK(again == trace);
      CHECK(run(make, world, step_count, 5, again) == "");
      CHECK(again == trace);
    }
  }
  std::uint64_t trace = 0, again = 0;
  for (int const world : {1, 3}) CHECK(run(make, world, step_count, 1, trace, true) == "");
  CHECK(run(make, 3, step_count, 5, again, true) == "");
  CHECK(again == trace);
  if (!make(gs::host{.threads = 1}, 1.0).momentum)
    for (int const world : {1, 3, 4}) CHECK(run_full(make, world) == "");
}

template <class Partitioner, class Exchange, class Selector, class Residual, class Codec = gs::coo>
void one(Selector selector, Residual residual, Codec codec = {}, Partitioner partitioner = {}, Exchange exchange = {}) {
  gs::recipe<Selector, Partitioner, Residual, Codec, Exchange> recipe{};
  recipe.exchange = exchange;
  recipe.partitioner = partitioner;
  recipe.codec = codec;
  recipe.selector = selector;
  recipe.residual = residual;
  std::ostringstream name;
  name << recipe;
  all(name.str(), [recipe](gs::host where, double density) { return erase(where, recipe, density); });
}

template <class Partitioner, class Exchange, class Selector>
void all_residuals(Selector selector, Exchange exchange = {}) {
  auto const with = [&](auto residual) {
    one<Partitioner, Exchange, Selector, decltype(residual), gs::coo>(selector, residual, {}, {}, exchange);
  };
  with(gs::none{});
  with(gs::error_feedback{});
  with(gs::error_feedback{.decay = 0.9f});
  with(gs::momentum_correction{});
}

/// The library's selectors with everything. A user's goes the way of all cuts: with two residual stores here, so that
/// the three partitioners together cover every triple with an exchange.
template <class Partitioner, class ForGather, class ForUnion>
void all_selectors() {
  auto const with = [](auto selector) {
    all_residuals<Partitioner, gs::gather>(selector);
    all_residuals<Partitioner, gs::index_union>(selector);
  };
  auto const with_two = [](auto selector) {
    one<Partitioner, gs::gather>(selector, ForGather{});
    one<Partitioner, gs::index_union>(selector, ForUnion{});
  };
  SUBCASE("radix") { with(gs::radix{}); }
  SUBCASE("laplacian, band") { with(gs::laplacian{}); }
  SUBCASE("laplacian, exact") { with(gs::laplacian{.count = gs::count_mode::exact}); }
  SUBCASE("hierarchical") { with(gs::hierarchical{}); }
  SUBCASE("a user's") { with_two(above_mean{}); }
}

}  // namespace balance
