// Layers that nothing is selected from: those that pass through, also where they keep something, and skipped ones.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/run_time.hpp>
#include <gradsieve/two_level.hpp>

#include "groups.hpp"
#include "nodes.hpp"
#include "steps.hpp"

using namespace steps;

namespace {

using mask = std::vector<unsigned char>;
using selectors = gs::any_selector<gs::radix, gs::hierarchical, gs::laplacian, gs::trimmed, gs::threshold_search,
                                   gs::ldte, gs::sidco, gs::random_k, gs::fixed_threshold>;

/// Every selector without bins, by name.
std::vector<std::pair<std::string, selectors>> all_selectors() {
  std::vector<std::pair<std::string, selectors>> all;
  auto const add = [&](auto chosen) {
    selectors any;
    any.chosen = chosen;
    all.emplace_back(decltype(chosen)::name, any);
  };
  add(gs::radix{});
  add(gs::hierarchical{});
  add(gs::laplacian{});
  add(gs::trimmed{});
  add(gs::threshold_search{});
  add(gs::ldte{});
  add(gs::sidco{});
  add(gs::random_k{});
  add(gs::fixed_threshold{1.0f});
  return all;
}

gs::layout three_layers() { return {{"a", 1000}, {"b.bias", 1000}, {"c", 1000}}; }

/// Gradients whose sum over the ranks does not fit T: what passes through is clamped, and keeps something for the next
/// steps. What came in = what was sent + what stays, element by element. `skip`: some steps skip layers.
template <class T, class Selector, class Partitioner>
std::string check_clamped(Selector const& selector, Partitioner const& partitioner, bool skip) {
  int const world = 3;
  return joined(on_ranks(world, [&](communicator comm) {
    findings found;
    auto const layers = three_layers();
    auto const n = layers.size();
    gs::recipe const recipe{.density = 0.1, .selector = selector, .partitioner = partitioner};
    gs::compressor reducer{gs::host{.threads = 1}, layers, recipe};
    double const largest = std::min<double>(gs::largest_value<T>, 3.4e38);
    std::vector<double> came(n), went(n);
    std::uint64_t clamped = 0;
    std::uint64_t const large = sizeof(T) == 2 ? 2 : 1;  // steps; the residual holds no more
    for (std::uint64_t step = 0; step < 8; ++step) {
      std::vector<T> update(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        double const share = step < large ? 0.4 + 0.05 * static_cast<double>(i * 7 % 10) : 0.0;
        double const scale = i / 1000 == 1 ? 1 : 0.1;  // what stays in the layer that passes through is the largest
        update[i] = gs::from_float<T>(static_cast<float>(share * scale * largest * (i % 3 == 0 ? -1 : 1)));
        came[i] += static_cast<double>(gs::to_float(update[i]));
      }
      mask skipped;
      if (sizeof(T) == 2 && step == 0) skipped = {0, 1, 0};  // so that it has more than a float16 holds
      if (skip && step % 2 == 1) skipped = {1, static_cast<unsigned char>(step == 3 ? 1 : 0), 0};
      auto const report = reducer.exchange(comm, update, skipped);
      clamped += report.saturated;
      for (std::uint64_t i = 0; i < n; ++i) went[i] += static_cast<double>(gs::to_float(update[i]));
    }
    auto const left = residual_of(reducer);
    std::vector<double> held(left.begin(), left.end());
    comm.all_reduce(gs::host{}, std::span{came}, gs::reduction::sum);
    comm.all_reduce(gs::host{}, std::span{held}, gs::reduction::sum);
    double const rounding = (sizeof(T) == 2 ? 5e-3 : 1e-5) * largest;
    for (std::uint64_t i = 0; i < n; ++i)
      found.expect(std::fabs(came[i] - went[i] * world - held[i]) <= rounding,
                   "element " + std::to_string(i) + ": " + std::to_string(came[i]) + " came in, " +
                       std::to_string(went[i] * world) + " was sent, " + std::to_string(held[i]) + " stays");
    found.expect(clamped > 0, "nothing was clamped");
    return found.text();
  }));
}

template <class Partitioner>
void check_clamped_everywhere(Partitioner const& partitioner) {
  for (auto const& [name, selector] : all_selectors())
    for (bool const skip : {false, true}) {
      CAPTURE(name);
      CAPTURE(skip);
      CHECK(check_clamped<float>(selector, partitioner, skip) == "");
      CHECK(check_clamped<gs::float16>(selector, partitioner, skip) == "");
    }
}

/// Replaces one number of one sum by a NaN, on its way to rank `to`; all_reduce gives it to all ranks.
struct damaging : forwarding {
  int const* countdown;  // of the calls of a step: the one that reaches 0 is damaged
  int to = 0;

  template <class T>
  void all_reduce(gs::host const& where, std::span<T> in_out, gs::reduction how) const {
    bool const now = --*const_cast<int*>(countdown) == 0 && !in_out.empty();
    real.all_reduce(where, in_out, how);
    if constexpr (std::is_floating_point_v<T>)
      if (now) in_out[in_out.size() / 2] = std::numeric_limits<T>::quiet_NaN();
  }
  void send_receive(gs::host const& where, std::span<std::byte const> out, int receiver, std::span<std::byte> in,
                    int from) const {
    bool const now = --*const_cast<int*>(countdown) == 0;
    real.send_receive(where, out, receiver, in, from);
    if (now && rank() == to) in[0] = in[1] = std::byte{0xFF};
  }
};

/// A NaN in one of the step's sums: all ranks throw corrupt_message, nothing is given up, and the next step works.
/// `number`: which call of all_reduce and send_receive together is damaged.
template <class Recipe>
std::string check_damage(Recipe const& recipe, int number) {
  return joined(on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor reducer{gs::host{.threads = 1}, mixed_layers(), recipe};
    auto const n = mixed_layers().size();
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(n, comm.rank(), step);
      auto expected = residual_of(reducer);
      for (std::size_t i = 0; i < n; ++i) expected[i] += update[i];
      int countdown = step == 2 ? number : 0;
      auto const how = ending([&] { reducer.exchange(damaging{{comm}, &countdown, 1}, std::span{update}); });
      found.expect(step == 2 ? contains(how, "corrupt_message") && contains(how, "not finite") : how.empty(),
                   "step " + std::to_string(step) + ": " + how);
      if (step == 2) found.expect(same_bits(residual_of(reducer), expected), "something was given up");
    }
    auto const state = reducer.state();
    reducer.restore(state);
    return found.text();
  }));
}

/// At density 1 the update of a layer is the mean of what it has accumulated since a step that did not skip it.
/// `exchange(gradient, skipped)`, of one of `ranks` ranks, a power of two.
template <class Exchange>
std::string check_in_full(int rank, int ranks, Exchange const& exchange) {
  findings found;
  auto const layers = mixed_layers();
  std::vector<float> waits(layers.size());
  for (std::uint64_t step = 0; step < 8; ++step) {
    mask skipped(step % 3 == 0 ? 0 : layers.count());
    for (std::size_t l = 0; l < skipped.size(); ++l) skipped[l] = gs::mix(step + 100 * l) % 2 == 0;
    auto const value = [&](std::size_t i, int r) {
      return static_cast<float>(ranks * static_cast<int>((i + 3 * step + 5 * at(r)) % 7));
    };
    std::vector<float> update(layers.size());
    auto expected = update;
    for (std::size_t l = 0; l < layers.count(); ++l)
      for (auto i = layers.offset(l); i < layers.offset(l) + layers[l].size; ++i) {
        update[i] = value(i, rank);
        for (int r = 0; r < ranks; ++r) waits[i] += value(i, r) / static_cast<float>(ranks);
        if (skipped.empty() || skipped[l] == 0) std::swap(expected[i], waits[i]);
      }
    exchange(update, skipped);
    found.expect(update == expected, "another update in step " + std::to_string(step));
  }
  return found.text();
}

}  // namespace

TEST_CASE("what passes through and is clamped: nothing of it is selected, nothing is lost") {
  SUBCASE("whole") { check_clamped_everywhere(gs::whole{}); }
  SUBCASE("micro") { check_clamped_everywhere(gs::micro{}); }
  SUBCASE("chunked") {
    CHECK(check_clamped<float>(gs::chunked{}, gs::whole{}, false) == "");
    CHECK(check_clamped<gs::float16>(gs::chunked{}, gs::whole{}, true) == "");
  }
  SUBCASE("adacomp") {
    CHECK(check_clamped<float>(gs::adacomp{}, gs::layerwise{}, true) == "");
  }
}

TEST_CASE("random_k draws among what can be selected only") {
  auto const layers = three_layers();
  gs::compressor reducer{gs::host{}, layers, gs::recipe{.density = 0.1, .selector = gs::random_k{}}};
  for (auto const& skipped : {mask{}, mask{1, 0, 0}, mask{0, 1, 0}, mask{0, 0, 1}, mask{1, 1, 1}}) {
    std::vector<float> update(layers.size(), 1.0f);
    auto const report = reducer.exchange(gs::self{}, update, skipped);
    bool const first = !skipped.empty() && skipped[0] != 0;
    bool const last = !skipped.empty() && skipped[2] != 0;
    auto const count = [&](std::size_t layer) {
      auto const all = std::span{update}.subspan(1000 * layer, 1000);
      return static_cast<std::uint64_t>(1000 - std::ranges::count(all, 0.0f));
    };
    CHECK(count(0) + count(2) == (first && last ? 0 : 200));
    CHECK(report.selected == count(0) + count(2));
    CHECK(report.union_size == report.selected);
    if (first) CHECK(count(0) == 0);
    if (last) CHECK(count(2) == 0);
  }
}

TEST_CASE("a NaN in any sum of a step: all ranks throw, nothing is given up") {
  auto const fp16 = gs::packed{.values = gs::fp16{}};
  auto const bf16 = gs::packed{.values = gs::bf16{}};
  auto const each = [](auto const& recipe, int sums) {
    for (int number = 1; number <= sums; ++number) {
      CAPTURE(number);
      CHECK(check_damage(recipe, number) == "");
    }
  };
  // norms; two messages of values, or one sum; what passes through
  SUBCASE("index_union, fp16") { each(gs::recipe{.density = 0.05, .partitioner = gs::deft{}, .codec = fp16}, 4); }
  SUBCASE("index_union, fp32") { each(gs::recipe{.density = 0.05, .partitioner = gs::deft{}}, 3); }
  SUBCASE("leader, bf16") { each(gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}, .codec = bf16}, 3); }
  SUBCASE("shared_choice, fp16") {
    each(gs::recipe{.density = 0.05, .selector = gs::random_k{}, .codec = fp16, .exchange = gs::shared_choice{}}, 3);
  }
  SUBCASE("shared_choice, fp32") {
    each(gs::recipe{.density = 0.05, .selector = gs::random_k{}, .exchange = gs::shared_choice{}}, 2);
  }
}

TEST_CASE("the numbers of a report add up") {
  // one layer is sent in full by its size, one passes through by its name
  gs::layout const layers{{"a", 3000}, {"one", 1}, {"b.bias", 16}, {"c", 500}, {"d.norm", 40}};
  auto const check = [&](auto const& recipe) {
    gs::compressor reducer{gs::host{}, layers, recipe};
    for (auto const& skipped : {mask{}, mask{0, 0, 0, 1, 0}, mask{1, 1, 1, 0, 0}, mask{0, 1, 0, 0, 1}, mask{}}) {
      std::vector<float> update(layers.size());
      for (std::size_t i = 0; i < update.size(); ++i) update[i] = 1 + static_cast<float>(i * 37 % 101);
      auto const report = reducer.exchange(gs::self{}, update, skipped);
      auto const nonzero = update.size() - static_cast<std::size_t>(std::ranges::count(update, 0.0f));
      std::uint64_t left_out = 0;
      for (std::size_t i = 0; i < skipped.size(); ++i) left_out += skipped[i] != 0 ? layers[i].size : 0;
      CHECK(report.skipped_elements == left_out);
      CHECK(report.passthrough_elements + report.union_size == nonzero);
      CHECK(report.selected == report.union_size);  // with one rank
      CHECK(report.selected <= report.capacity);
      std::uint64_t elements = 0, entries = 0;
      double bytes = 0;
      for (auto const& kind : report.message.kinds) {
        elements += kind.elements;
        entries += kind.entries;
        bytes += kind.bytes;
      }
      if (elements > 0) {
        CHECK(elements + report.skipped_elements == layers.size());
        CHECK(entries == report.selected);
        CHECK(bytes == doctest::Approx(static_cast<double>(report.bytes_sent)));
      }
      if (!std::is_same_v<decltype(recipe.selector), gs::adacomp>) CHECK(report.selected == report.budget);
    }
  };
  check(gs::recipe{.density = 0.02, .partitioner = gs::layerwise{}});
  check(gs::recipe{.density = 1, .partitioner = gs::layerwise{}});
  check(gs::recipe{.density = 0.1});
  check(gs::recipe{.density = 0.1, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::binned{}});
}

TEST_CASE("ranks that skip different layers all throw, nothing is given up, and they can go on") {
  auto const check = [](auto const& recipe) {
    return joined(on_ranks(3, [&](communicator comm) {
      findings found;
      gs::compressor reducer{gs::host{.threads = 1}, three_layers(), recipe};
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto update = gradient(3000, comm.rank(), step);
        auto expected = residual_of(reducer);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += update[i];
        auto const mine = step == 2 && comm.rank() == 1 ? mask{1, 0, 1} : mask{1, 0, 0};
        auto const how = ending([&] { reducer.exchange(comm, update, mine); });
        found.expect(step == 2 ? contains(how, "mismatch") && contains(how, "the layers that they skip") : how.empty(),
                     "step " + std::to_string(step) + ": " + how);
        if (step == 2) found.expect(same_bits(residual_of(reducer), expected), "something was given up");
      }
      std::vector<float> update(3000);
      auto const before = residual_of(reducer);
      auto const how = ending([&] { reducer.exchange(comm, update, mask(comm.rank() == 2 ? 4 : 3)); });
      found.expect(contains(how, comm.rank() == 2 ? "invalid_argument: gradsieve: skipped_layers has 4 elements, the "
                                                    "layout has 3 layers"
                                                  : "rank 2 failed"),
                   how);
      found.expect(same_bits(residual_of(reducer), before), "something was given up for a wrong size");
      found.expect(ending([&] { reducer.exchange(comm, update); }).empty(), "the next step does not work");
      return found.text();
    }));
  };
  CHECK(check(gs::recipe{.density = 0.05}) == "");
  CHECK(check(gs::recipe{.density = 0.05, .partitioner = gs::deft{}}) == "");
  CHECK(check(gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}}) == "");
}

TEST_CASE("skipped layers of nodes, and of an overlap's groups") {
  gs::recipe const recipe{.density = 1};
  CHECK(nodes::text(nodes::run({2, 2}, [&](nodes::pair const& ranks) {
          gs::two_level_compressor reducer{gs::host{1}, mixed_layers(), recipe, ranks};
          auto const said = check_in_full(ranks.rank(), 4, [&](std::vector<float>& update, mask const& skipped) {
            reducer.exchange(ranks, update, skipped);
          });
          if (!said.empty()) throw std::runtime_error(said);
          std::vector<float> update(mixed_layers().size());
          mask mine(mixed_layers().count());
          mine[0] = ranks.rank() == 1;
          auto const how = ending([&] { reducer.exchange(ranks, update, mine); });
          if (!contains(how, "the layers that they skip") && !contains(how, "failed")) throw std::runtime_error(how);
        })) == "");
  CHECK(joined(on_ranks(2, [&](communicator comm) {
          auto const layers = mixed_layers();
          std::vector<std::size_t> const order{3, 8, 0, 5, 1, 7, 2, 6, 4};  // groups of several pieces
          gs::overlap reducer{gs::host{1}, comm, layers, groups::plan_of(layers, order, {2, 5, 9}),
                              [&](gs::layout const& part) { return gs::compressor{gs::host{1}, part, recipe}; }, order};
          auto const said = check_in_full(comm.rank(), 2, [&](std::vector<float>& update, mask const& skipped) {
            reducer.begin(update, skipped);
            for (std::size_t l = 0; l < layers.count(); ++l) reducer.ready(l);
            reducer.wait();
          });
          std::vector<float> update(layers.size());
          auto const how = ending([&] { reducer.begin(update, mask(3)); });
          return said + (contains(how, "skipped_layers has 3 elements") ? "" : how);
        })) == "");
}

TEST_CASE("skipped layers around a step: discarded, refused, saved, and compress() after them") {
  auto const layers = three_layers();
  gs::recipe const recipe{.density = 0.1, .residual = gs::momentum_correction{}, .on_non_finite = gs::non_finite::fail};
  auto const step = [&](auto& reducer, std::uint64_t number, gs::skipped_layers skipped) {
    auto update = gradient(layers.size(), 0, number);
    reducer.exchange(gs::self{}, update, skipped);
    return update;
  };
  gs::compressor reducer{gs::host{}, layers, recipe};
  mask const skips{0, 1, 1};
  step(reducer, 0, {});
  step(reducer, 1, skips);
  auto const given = step(reducer, 2, skips);
  auto sum = residual_of(reducer);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += given[i];
  reducer.discard_step();
  auto const back = residual_of(reducer);
  bool same = true;
  for (std::size_t i = 0; i < sum.size(); ++i) same = same && std::fabs(sum[i] - back[i]) <= 1e-6f * std::fabs(sum[i]);
  CHECK(same);

  auto const saved = reducer.state();
  auto bad = gradient(layers.size(), 0, 3);
  bad[2500] = std::numeric_limits<float>::infinity();  // in a layer that is skipped: it would stay in the residual
  CHECK(contains(ending([&] { reducer.exchange(gs::self{}, bad, skips); }), "non_finite_gradient"));
  CHECK(reducer.state() == saved);

  gs::compressor other{gs::host{}, layers, recipe};
  other.restore(saved);
  CHECK(same_bits(step(other, 4, skips), step(reducer, 4, skips)));
  CHECK(same_bits(step(other, 5, {}), step(reducer, 5, {})));
  step(reducer, 6, skips);
  auto const chosen = reducer.compress(gradient(layers.size(), 0, 7));
  CHECK(chosen.passthrough.size() == 1000);
  CHECK(reducer.report().skipped_elements == 0);
}

TEST_CASE("layers are walked once: very many that pass through between as many others") {
  std::vector<gs::layer> list;
  for (int i = 0; i < 100'000; ++i) {
    list.push_back({"w", 2});
    list.push_back({"bias", 1});
  }
  gs::layout const layers{list};
  gs::recipe const recipe{.density = 1, .partitioner = gs::layerwise{}};
  gs::compressor reducer{gs::host{}, layers, recipe};
  mask skipped(layers.count());
  for (std::size_t i = 0; i < skipped.size(); i += 3) skipped[i] = 1;
  for (auto const& some : {mask{}, skipped, mask{}}) {
    std::vector<float> update(layers.size(), 1.0f);
    auto const report = reducer.exchange(gs::self{}, update, some);
    CHECK(report.passthrough_elements + report.skipped_elements == layers.size());
    CHECK(static_cast<std::uint64_t>(std::ranges::count(update, 0.0f)) == report.skipped_elements);
  }
}
