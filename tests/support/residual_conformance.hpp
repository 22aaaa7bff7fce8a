// What every residual store must do: what came in is sent or stays, over steps, rollback, checkpoints and rescaling.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/residual/accumulate_element.hpp>

#include "conformance.hpp"

namespace residual_conformance {

namespace gs = gradsieve;
using conformance::findings;
using conformance::same_bits;

/// What a store promises beyond the concept.
struct promises {
  /// The state that holds all that came in and was not sent; -1: something fades, is dropped, or acts again.
  int waits_in = -1;
};

/// One run of the suite.
template <gs::residual_store Residual>
class suite {
  static constexpr std::size_t states = Residual::states;
  static_assert(states >= 1 && states <= gs::checkpoint::most_states);
  using state_type = gs::element_state<states>;

 public:
  suite(Residual store, promises what) : store_{store}, promised_{what} {}

  [[nodiscard]] std::string run() {
    elements();
    if constexpr (gs::host::keeps<gs::stored_t<Residual>>) {  // formats of two bytes are for devices
      found_.in("steps of a compressor");
      found_.attempt([&] { steps(); });
      found_.attempt([&] { around_steps(); });
    }
    return found_.text();
  }

 private:
  static gs::layout layers() {
    return {{"a.weight", 500}, {"a.bias", 16}, {"empty", 0}, {"scale", 1}, {"b.weight", 300}, {"b.norm", 5}};
  }
  static bool passes(std::uint64_t i) { return (i >= 500 && i < 516) || i >= 817; }

  auto compressor() const {
    gs::recipe<gs::radix, gs::whole, Residual, gs::coo, gs::gather> recipe{};
    recipe.density = 0.05;
    recipe.residual = store_;
    return gs::compressor{gs::host{.threads = 1}, layers(), recipe};
  }

  // ---- One element -----------------------------------------------------------------------------------------

  void elements() {
    found_.in("nothing comes in");
    state_type nothing{};
    store_.accumulate_element(0.0f, nothing);
    found_.expect(nothing[0] == 0, "the accumulator becomes ", nothing[0]);
    for (float const before : {0.0f, 1.0f, -3.5f, 0x1p-140f, 1e30f})
      for (float const gradient : {0.0f, 1.0f, -0.75f, 1024.0f, 0x1p-149f, -1e30f}) {
        found_.in("states ", before, ", gradient ", gradient);
        state_type state{};
        for (std::size_t s = 0; s < states; ++s) state[s] = before;
        auto other = state;
        store_.accumulate_element(gradient, state);
        store_.accumulate_element(gradient, other);
        for (std::size_t s = 0; s < states; ++s) {
          found_.expect(same_bits(state[s], other[s]), "state ", s, " is another one the second time");
          found_.expect(gs::is_finite(state[s]), "state ", s, " is ", state[s]);
        }
        for (float const part : {1.0f, 0.5f, 0.0f})
          for (bool const full_layer : {false, true}) {
            auto left = state;
            float const sent = state[0] * part;
            store_.remove_sent(sent, left, full_layer);
            found_.expect(left[0] == state[0] - sent, "of ", state[0], ' ', sent, " is sent, and ", left[0], " stays");
          }
      }
    if constexpr (gs::scaling_residual_store<Residual>)
      for (double const norm : {0.0, 1e-30, 1.0, 1e30})
        for (int world = 1; world <= 9; ++world) {
          float const factor = store_.factor(norm, world);
          found_.in("norm ", norm, ", ", world, " ranks");
          found_.expect(gs::is_finite(factor) && factor >= 0, "the factor is ", factor);
        }
  }

  // ---- A compressor against the store, element by element --------------------------------------------------

  struct model {
    std::vector<state_type> now = std::vector<state_type>(layers().size());

    void accumulate(Residual const& store, std::vector<float> const& gradient) {
      float factor = 1;
      if constexpr (gs::scaling_residual_store<Residual>) {
        double squares = 0;
        for (float const x : gradient) squares += static_cast<double>(x) * static_cast<double>(x);
        if (store.needs_norm()) factor = store.factor(std::sqrt(squares), 1);
      }
      for (std::size_t i = 0; i < now.size(); ++i) gs::accumulate_element(store, factor * gradient[i], now[i]);
    }
    void remove(Residual const& store, gs::selection_view const sent) {
      for (std::size_t e = 0; e < sent.indices.size(); ++e)
        store.remove_sent(sent.values[e], now[sent.indices[e]], false);
      for (std::size_t i = 0; i < now.size(); ++i)
        if (passes(i)) store.remove_sent(now[i][0], now[i], true);
    }
  };

  template <class Compressor>
  static std::vector<float> states_of(Compressor& reducer) {
    auto const bytes = reducer.state();
    std::vector<float> values(states * layers().size());
    std::memcpy(values.data(), bytes.data() + bytes.size() - 4 * values.size(), 4 * values.size());
    return values;
  }

  void expect_states(model const& expected, std::vector<float> const& got, char const* when) {
    auto const n = expected.now.size();
    for (std::size_t s = 0; s < states; ++s)
      for (std::size_t i = 0; i < n; ++i)
        found_.expect(same_bits(got[s * n + i], expected.now[i][s]), when, ": state ", s, " of element ", i, " is ",
                      got[s * n + i], ", the store's members make it ", expected.now[i][s]);
  }

  void steps() {
    auto const n = layers().size();
    auto reducer = compressor();
    model mine;
    std::vector<double> came_in(n), went(n);
    for (std::uint64_t step = 0; step < 12; ++step) {
      found_.in("step ", step);
      auto const gradient = conformance::whole_numbers(n, step);
      for (std::size_t i = 0; i < n; ++i) came_in[i] += static_cast<double>(gradient[i]);
      mine.accumulate(store_, gradient);
      auto const sent = reducer.compress(gradient);
      if (step % 4 == 2) {
        reducer.discard_step();
        expect_states(mine, states_of(reducer), "discard_step()");
        continue;
      }
      for (std::size_t e = 0; e < sent.indices.size(); ++e) {
        auto const i = sent.indices[e];
        found_.expect(same_bits(sent.values[e], mine.now[i][0]), "element ", i, " is sent as ", sent.values[e],
                      ", the accumulator has ", mine.now[i][0]);
        went[i] += static_cast<double>(sent.values[e]);
      }
      std::size_t p = 0;
      for (std::size_t i = 0; i < n; ++i)
        if (passes(i)) went[i] += static_cast<double>(sent.passthrough[p++]);
      mine.remove(store_, sent);
      if (step % 3 == 0) expect_states(mine, states_of(reducer), "after the step");  // else while it is pending
    }
    auto const left = states_of(reducer);
    expect_states(mine, left, "at the end");
    if (promised_.waits_in < 0) return;
    auto const* const waits = left.data() + static_cast<std::size_t>(promised_.waits_in) * n;
    for (std::size_t i = 0; i < n; ++i) {
      double const accounted = went[i] + static_cast<double>(waits[i]);
      found_.expect(std::fabs(came_in[i] - accounted) <= 1e-5 * (1 + std::fabs(came_in[i])), "element ", i, ": ",
                    came_in[i], " came in, ", went[i], " was sent, ", waits[i], " stays");
    }
  }

  /// state() and restore(), absorb(), rescale().
  void around_steps() {
    auto const n = layers().size();
    auto reducer = compressor();
    auto other = compressor();
    for (std::uint64_t step = 0; step < 3; ++step) {
      reducer.compress(conformance::whole_numbers(n, step));
      other.compress(conformance::whole_numbers(n, step + 100));
    }
    auto const saved = reducer.state();
    auto const before = states_of(reducer);
    auto const others = states_of(other);

    found_.in("a checkpoint");
    auto fresh = compressor();
    fresh.restore(saved);
    found_.expect(same_bits(states_of(fresh), before), "the states differ after restore()");
    auto const gradient = conformance::whole_numbers(n, 7);
    auto const expected = reducer.compress(gradient);
    auto const got = fresh.compress(gradient);
    found_.expect(std::ranges::equal(got.indices, expected.indices) && same_bits(got.values, expected.values),
                  "the next step sends something else after restore()");
    found_.expect(same_bits(states_of(fresh), states_of(reducer)), "the next step ends differently after restore()");

    found_.in("absorb()");
    fresh.restore(saved);
    fresh.absorb(other.state());
    auto const together = states_of(fresh);
    for (std::size_t i = 0; i < before.size(); ++i)
      found_.expect(together[i] == before[i] + others[i], "state ", i / n, " of element ", i % n, " is ", together[i],
                    ", the two had ", before[i], " and ", others[i]);

    found_.in("rescale(0.5)");
    fresh.restore(saved);
    fresh.rescale(0.5f);
    auto const scaled = states_of(fresh);
    for (std::size_t i = 0; i < before.size(); ++i)
      found_.expect(scaled[i] == before[i] * 0.5f, "state ", i / n, " of element ", i % n, " was ", before[i], ", is ",
                    scaled[i]);
  }

  Residual store_;
  promises promised_;
  findings found_;
};

/// Returns what is wrong with a residual store, a line each; nothing if it does what the concept, and `what`, say.
/// Local.
template <gs::residual_store Residual>
[[nodiscard]] std::string run(Residual const& store, promises what = {}) {
  return suite<Residual>{store, what}.run();
}

}  // namespace residual_conformance
