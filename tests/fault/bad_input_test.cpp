// Bad input: every row of it gets its exception, with a message that names the value, before anything changes. And
// checkpoints: what they bring back, and what they refuse.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "messages.hpp"
#include "steps.hpp"

using namespace steps;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
gs::host const here{.threads = 1};

std::vector<std::byte> copy_of(std::span<std::byte const> bytes) { return {bytes.begin(), bytes.end()}; }

template <class T>
void put(std::vector<std::byte>& bytes, std::size_t at, T value) {
  gs::wire::store_one(std::span{bytes}.subspan(at), value);
}

/// A communicator that damages one byte of one rank's share on its way to all, or to one rank, when it is told to.
struct damaging : forwarding {
  bool const* armed;
  int victim = -1;

  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    real.all_gather(where, mine, all);
  }
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    real.all_gather(where, mine, all, sizes);
    if (*armed && (victim < 0 || victim == rank())) all[sizes[0] / 2] ^= std::byte{0x10};
  }
};

}  // namespace

// ---- Values outside their limits ---------------------------------------------------------------------------

TEST_CASE("density") {
  auto const made = [](gs::density_schedule density) {
    return ending([&] { gs::compressor{here, gs::layout::flat(10), gs::recipe{.density = density}}; });
  };
  CHECK(made(-0.25) == "invalid_argument: gradsieve: density is -0.25, expected 0 to 1");
  CHECK(ending([] { gs::compressor{gs::host{.threads = -3}, gs::layout::flat(4), gs::recipe{}}; }) ==
        "invalid_argument: gradsieve: a host's number of threads is -3, expected at least 0");
  CHECK(made(1.5) == "invalid_argument: gradsieve: density is 1.5, expected 0 to 1");
  CHECK(made(1.0000001) == "invalid_argument: gradsieve: density is 1.0000001, expected 0 to 1");
  CHECK(contains(made(std::numeric_limits<double>::quiet_NaN()), "invalid_argument: gradsieve: density is nan"));
  CHECK(contains(made(std::numeric_limits<double>::infinity()), "invalid_argument: gradsieve: density is inf"));
  CHECK(made(gs::warm_up{.initial = 2.0, .final = 0.01, .steps = 5}) ==
        "invalid_argument: gradsieve: warm-up runs from density 2 to 0.01, expected both above 0 and up to 1");
  CHECK(contains(made(gs::warm_up{.initial = 0.5, .final = 0.0, .steps = 5}), "expected both above 0"));
  CHECK(contains(made(gs::warm_up{.initial = -0.5, .final = 0.5, .steps = 5}), "from density -0.5 to 0.5"));
  CHECK(contains(made(gs::warm_up{.initial = 0.5, .final = 1.25, .steps = 5}), "density is 1.25, expected 0 to 1"));
  for (double const good : {0.0, 1.0, 1e-300, -0.0}) CHECK(made(good) == "");
}

TEST_CASE("policies") {
  auto const made = [](auto const& recipe) {
    return ending([&] { gs::compressor{here, gs::layout::flat(10), recipe}; });
  };
  auto const nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(made(gs::recipe{.selector = gs::laplacian{.tolerance = -0.5f}}) ==
        "invalid_argument: gradsieve: laplacian's tolerance is -0.5, expected at least 0");
  CHECK(contains(made(gs::recipe{.selector = gs::hierarchical{.sample_ratio = nan}}), "sample_ratio is nan"));
  CHECK(contains(made(gs::recipe{.selector = gs::hierarchical{.least = 1.5f}}), "least is 1.5, expected above 0 to 1"));
  CHECK(contains(made(gs::recipe{.selector = gs::hierarchical{.most = 0.5f}}), "most is 0.5, expected at least 1"));
  CHECK(contains(made(gs::recipe{.residual = gs::error_feedback{.decay = 2.0f}}), "decay is 2, expected 0 to 1"));
  CHECK(contains(made(gs::recipe{.residual = gs::error_feedback{.decay = 1.1f}}), "decay is 1.1, expected 0 to 1"));
  CHECK(contains(made(gs::recipe{.residual = gs::momentum_correction{.momentum = nan}}), "momentum is nan"));
  CHECK(made(gs::recipe{.residual = gs::momentum_correction{.momentum = 1.0f}}) ==
        "invalid_argument: gradsieve: momentum_correction's momentum is 1, expected 0 to below 1");
  CHECK(made(gs::recipe{.selector = gs::hierarchical{.least = 0.0f}}) ==
        "invalid_argument: gradsieve: hierarchical's least is 0, expected above 0 to 1");
  CHECK(contains(made(gs::recipe{.residual = gs::filtered{.beta = 0.0f}}), "beta is 0, expected above 0 to 1"));
  CHECK(contains(made(gs::recipe{.partitioner = gs::deft{.cost = {.fixed = -1}}}),
                 "fixed is -1, expected 0 to 1.7976931348623157e+308"));
  CHECK(contains(made(gs::recipe{.selector = gs::laplacian{.count = static_cast<gs::count_mode>(2)}}),
                 "laplacian's count is 2, expected 0 to 1"));
  CHECK(contains(made(gs::recipe{.residual = gs::momentum_correction{.clip = -1.0f}}), "clip is -1"));
  gs::adacomp endless;
  std::fill(std::begin(endless.bins.rules[1].pattern), std::end(endless.bins.rules[1].pattern), '*');
  CHECK(made(gs::recipe{.selector = endless, .partitioner = gs::layerwise{}}) ==
        "invalid_argument: gradsieve: a bin's rule has a pattern of 28 characters or more");
}

namespace {

/// Two segments, with these budgets.
template <std::uint64_t First, std::uint64_t Second>
struct greedy {
  using default_exchange = gs::gather;
  static constexpr gs::partitioner_traits traits{};
  void split(std::span<gs::range const> layers, int, gs::segment_list& list) const {
    for (auto const& each : layers) list.push_back({each.offset, each.size});
  }
  void assign(std::span<gs::segment> segments, std::span<double const>, gs::step_budget const,
              gs::partition_scratch&) const {
    segments[0].k = First;
    segments[1].k = Second;
  }
  friend bool operator==(greedy const&, greedy const&) = default;
  friend std::ostream& operator<<(std::ostream& out, greedy const&) { return out << "greedy"; }
};

}  // namespace

TEST_CASE_TEMPLATE("a partitioner that gives too much", Greedy, greedy<5000, 5000>, greedy<5000, 0>, greedy<5001, 0>,
                   greedy<200, 0>) {
  gs::recipe const recipe{.density = 0.01, .partitioner = Greedy{}};
  gs::compressor reducer{here, gs::layout{{"a", 5000}, {"b", 5000}}, recipe};
  std::vector<float> gradient(10'000, 1.0f);
  std::string const start = "invalid_argument: gradsieve: the partitioner gives ";
  CHECK(contains(ending([&] { reducer.compress(gradient); }), start));
  CHECK(reducer.residual_norm() == 0);
  CHECK(contains(ending([&] { reducer.exchange(gs::self{}, gradient); }), start));
  CHECK(gradient == std::vector<float>(10'000, 1.0f));
}

namespace {

thread_local double rounding_of_this_build = 0;

/// The same recipe on all ranks, whose builds compute other budgets.
struct rounds_by_build : gs::layerwise {
  static constexpr char const* name = "rounds_by_build";
  void assign(std::span<gs::segment> segments, std::span<double const>, gs::step_budget const budget,
              gs::partition_scratch&) const {
    for (auto& each : segments)
      each.k = static_cast<gs::index_type>(budget.density * static_cast<double>(each.size) + rounding_of_this_build);
  }
};

}  // namespace

TEST_CASE("ranks that decide differently throw: they were built with different flags") {
  auto const said = on_ranks(2, [&](communicator comm) {
    rounding_of_this_build = comm.rank() == 0 ? 0.5 : 0.4;
    gs::compressor compressor{here, gs::layout{{"a", 250}, {"b", 1000}},
                              gs::recipe{.density = 0.01, .partitioner = rounds_by_build{}}};
    std::vector<float> update(1250, 1.0f);
    return ending([&] { compressor.exchange(comm, std::span{update}); });
  });
  for (auto const& each : said)
    CHECK(each ==
          "mismatch: gradsieve: rank 1 and rank 0 differ in which rank selects where: they were built otherwise, or the "
          "communicator's all_reduce gave them different norms");
}

TEST_CASE("layouts") {
  CHECK(ending([] { gs::layout(10, {{"a", 4}, {"b", 5}}); }) ==
        "invalid_argument: gradsieve: layers sum to 9 elements, the gradient has 10");
  CHECK(ending([] { gs::layout(9, {{"a", 4}, {"b", 5}}); }) == "");
  constexpr auto limit = std::uint64_t{1} << 32;
  CHECK(ending([] { (void)gs::layout::flat(limit); }) ==
        "invalid_argument: gradsieve: layout reaches 2^32 elements at layer '' (4294967296 elements); a compressor "
        "holds fewer than 2^32");
  CHECK(contains(ending([] { gs::layout{{"a", limit - 5}, {"fits", 4}, {"too much", 1}}; }),
                 "at layer 'too much' (1 elements)"));
  CHECK(contains(ending([] { gs::layout{{"a", 5}, {"wraps", ~std::uint64_t{0} - 2}}; }), "at layer 'wraps'"));
  CHECK(gs::layout{{"a", limit - 5}, {"fits", 4}}.size() == limit - 1);
}

TEST_CASE("a gradient of another size") {
  gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.05}};
  auto const n = mixed_layers().size();
  auto const right = gradient(n, 0, 0);
  auto const message = copy_of(compressor.encode(compressor.compress(std::span<float const>{right})));
  gs::averager averager{here, mixed_layers()};
  std::span<std::byte const> const messages{message};
  auto const before = compressor.state();
  for (auto const size : {std::size_t{0}, n - 1, n + 1}) {
    std::vector<float> wrong(size, 1.0f);
    auto const expected = "invalid_argument: gradsieve: gradient has " + std::to_string(size) +
                          " elements, the layout has " + std::to_string(n);
    CHECK(ending([&] { compressor.compress(std::span<float const>{wrong}); }) == expected);
    CHECK(ending([&] { averager.apply(std::span{&messages, 1}, std::span{wrong}); }) == expected);
    CHECK(ending([&] { compressor.exchange(gs::self{}, std::span{wrong}); }) == expected);
    CHECK(wrong == std::vector<float>(size, 1.0f));
    CHECK(compressor.state() == before);
  }
}

TEST_CASE("a compressor that was moved from refuses what needs its memory, and can be given another") {
  gs::compressor first{here, mixed_layers(), gs::recipe{.density = 0.05}};
  auto update = gradient(mixed_layers().size(), 0, 0);
  first.exchange(gs::self{}, update);
  auto const saved = first.state();
  gs::compressor second = std::move(first);
  CHECK(second.state() == saved);

  std::string const sentence = "invalid_argument: gradsieve: this compressor was moved from";
  auto const refused = [&](gs::compressor<gs::host, gs::recipe<>>& from) {
    CHECK(ending([&] { from.exchange(gs::self{}, update); }) == sentence);
    CHECK(ending([&] { from.fail(gs::self{}, update); }) == sentence);
    CHECK(ending([&] { from.connect(gs::self{}); }) == sentence);
    CHECK(ending([&] { from.compress(update); }) == sentence);
    CHECK(ending([&] { (void)from.encode(gs::host_selection{}); }) == sentence);
    CHECK(ending([&] { (void)from.encode(gs::selection_view{}); }) == sentence);
    CHECK(ending([&] { from.discard_step(); }) == sentence);
    CHECK(ending([&] { from.rescale(2.0f); }) == sentence);
    CHECK(ending([&] { (void)from.residual_norm(); }) == sentence);
    CHECK(ending([&] { (void)from.residual(); }) == sentence);
    CHECK(ending([&] { (void)from.state(); }) == sentence);
    CHECK(ending([&] { from.restore(saved); }) == sentence);
    CHECK(ending([&] { from.absorb(saved); }) == sentence);
    CHECK(ending([&] { (void)from.step(); }) == sentence);
    CHECK(ending([&] { (void)from.report(); }) == sentence);
    CHECK(ending([&] { (void)from.layers(); }) == sentence);
    CHECK(ending([&] { (void)from.recipe(); }) == sentence);
  };
  refused(first);  // NOLINT: on purpose

  gs::compressor third{std::move(first)};  // nothing comes of nothing
  refused(third);

  first = std::move(second);
  CHECK(first.state() == saved);
  CHECK(ending([&] { first.exchange(gs::self{}, update); }) == "");
  CHECK(ending([&] { second.exchange(gs::self{}, update); }) == sentence);

  auto const steps = first.step();
  auto& itself = first;
  first = std::move(itself);
  CHECK(first.step() == steps);
}

// ---- Ranks that disagree -----------------------------------------------------------------------------------

namespace {

/// Rank 1 of three differs. Every rank must say the same, and nobody wait.
template <class Make>
std::string difference(Make const& make) {
  auto const said = on_ranks(3, [&](communicator comm) {
    auto compressor = make(comm.rank() == 1);
    std::vector<float> update(compressor.layers().size(), 1.0f);
    auto const given = update;
    auto const before = compressor.state();
    auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
    if (!how.empty() && (compressor.state() != before || update != given)) return std::string{"something changed"};
    return how;
  });
  CHECK(said[1] == said[0]);
  CHECK(said[2] == said[0]);
  return said[0];
}

/// A user's selector that cannot print, and has padding.
struct silent_multiple {
  float c = 3;
  char unused = 0;

  template <class Workspace>
  [[nodiscard]] float fit(Workspace& work, gs::accumulator_ref const acc, gs::index_type) const {
    return work.mean_abs(acc);
  }
  [[nodiscard]] bool keep(float value, float mean) const noexcept { return gs::abs(value) > c * mean; }
  [[maybe_unused]] friend bool operator==(silent_multiple const&, silent_multiple const&) = default;
};

}  // namespace

TEST_CASE("ranks that disagree") {
  auto const layers = gs::layout{{"a", 50}, {"b", 70}};
  std::string const start = "mismatch: gradsieve: rank 1 and rank 0 differ in ";
  auto const with_layout = [&](gs::layout const& other) {
    return difference(
        [&](bool differs) { return gs::compressor{here, differs ? other : layers, gs::recipe{.density = 0.1}}; });
  };
  CHECK(with_layout(layers) == "");
  CHECK(with_layout({{"a", 50}, {"b", 71}}) == start + "layout");
  CHECK(with_layout({{"b", 70}, {"a", 50}}) == start + "layout");
  CHECK(with_layout({{"a", 50}, {"c", 70}}) == start + "layout");
  CHECK(with_layout({{"a", 50}, {"b", 70, 1}}) == start + "layout");  // b passes through there
  CHECK(with_layout({{"a", 50}, {"b", 70}, {"c", 0}}) == start + "layout");

  auto const with_recipe = [&](auto const& one, auto const& other) {
    return difference([&](bool differs) { return gs::compressor{here, layers, differs ? other : one}; });
  };
  std::string const recipe = start + "recipe or density";
  CHECK(with_recipe(gs::recipe{.density = 0.1}, gs::recipe{.density = 0.2}) == recipe);
  CHECK(with_recipe(gs::recipe{.density = 0.1},
                    gs::recipe{.density = gs::warm_up{.initial = 0.1, .final = 0.05, .steps = 3}}) == recipe);
  CHECK(with_recipe(gs::recipe{.selector = gs::laplacian{}},
                    gs::recipe{.selector = gs::laplacian{.tolerance = 0.5f}}) == recipe);
  CHECK(with_recipe(gs::recipe{.selector = gs::hierarchical{.seed = 1}},
                    gs::recipe{.selector = gs::hierarchical{.seed = 2}}) == recipe);
  CHECK(with_recipe(gs::recipe{.partitioner = gs::deft{}},
                    gs::recipe{.partitioner = gs::deft{.cost = {.per_element = 1}}}) == recipe);
  CHECK(with_recipe(gs::recipe{.residual = gs::error_feedback{}},
                    gs::recipe{.residual = gs::error_feedback{.decay = 0.5f}}) == recipe);
  CHECK(with_recipe(gs::recipe{}, gs::recipe{.passthrough = {.patterns = {}}}) == recipe);
  CHECK(with_recipe(gs::recipe{}, gs::recipe{.on_non_finite = gs::non_finite::fail}) == recipe);
  CHECK(with_recipe(gs::recipe{}, gs::recipe{}) == "");
  CHECK(with_recipe(gs::recipe{.passthrough = {.patterns = {"*", "*"}}},
                    gs::recipe{.passthrough = {.patterns = {"**"}}}) == recipe);
  gs::recipe const silent_three{.selector = silent_multiple{3}};
  gs::recipe const silent_four{.selector = silent_multiple{4}};
  CHECK(with_recipe(silent_three, silent_four) == recipe);
  CHECK(with_recipe(silent_three, silent_three) == "");

  SUBCASE("on policies of different types") {
    auto const said = on_ranks(2, [&](communicator comm) {
      std::vector<float> update(120);
      return ending([&] {
        if (comm.rank() == 0)
          gs::compressor{here, layers, gs::recipe{.partitioner = gs::deft{}}}.exchange(comm, std::span{update});
        else
          gs::compressor{here, layers, gs::recipe{.selector = gs::laplacian{}}}.exchange(comm, std::span{update});
      });
    });
    CHECK(said == std::vector<std::string>(2, recipe));
  }
  SUBCASE("on the format of their gradients") {
    auto const said = on_ranks(3, [&](communicator comm) {
      gs::compressor reducer{here, layers, gs::recipe{.density = 0.1}};
      std::vector<float> floats(120, 1);
      std::vector<gs::float16> halves(120, gs::from_float<gs::float16>(1));
      std::vector<gs::bfloat16> brains(120, gs::from_float<gs::bfloat16>(1));
      auto const format = start + "the format of their gradients: float, float16 or bfloat16";
      for (int const odd : {1, 2}) {
        auto const how = ending([&] {
          if (comm.rank() != 1)
            reducer.exchange(comm, std::span{floats});
          else if (odd == 1)
            reducer.exchange(comm, std::span{halves});
          else
            reducer.exchange(comm, std::span{brains});
        });
        if (how != format) return "ended with " + how;
      }
      auto const all = ending([&] { reducer.exchange(comm, std::span{halves}); });
      if (!all.empty()) return all;
      // A rank that starts again, and so knows no format yet, meets the others.
      auto const state = reducer.state();
      if (comm.rank() == 2) {
        reducer = gs::compressor{here, layers, gs::recipe{.density = 0.1}};
        reducer.restore(state);
      }
      return ending([&] {
        reducer.connect(comm);
        reducer.exchange(comm, std::span{halves});
      });
    });
    CHECK(said == std::vector<std::string>(3, ""));
  }
  SUBCASE("on the step") {
    CHECK(difference([&](bool differs) {
            gs::compressor compressor{here, layers, gs::recipe{}};
            if (differs) compressor.compress(std::span<float const>{std::vector<float>(120)});
            return compressor;
          }) == start + "step: 1, made anew; and 0, made anew");
  }
  SUBCASE("on the step, later") {
    auto const said = on_ranks(2, [&](communicator comm) {
      gs::compressor compressor{here, layers, gs::recipe{.density = 0.1}};
      std::vector<float> update(120, 1.0f);
      compressor.exchange(comm, std::span{update});
      if (comm.rank() == 1) compressor.compress(std::span<float const>{update});
      auto const before = residual_of(compressor);
      std::vector<float> more(120, 1.0f);
      auto const how = ending([&] { compressor.exchange(comm, std::span{more}); });
      for (std::size_t i = 0; i < 120; ++i)
        if (compressor.residual()[i] != before[i] + 1.0f) return std::string{"mass was lost"};
      return how;
    });
    CHECK(said[0] == start + "step: 2; and 1");
    CHECK(said[1] == said[0]);
  }
  SUBCASE("and can agree afterwards") {
    auto const said = on_ranks(2, [&](communicator comm) {
      std::vector<float> update(120, 1.0f);
      gs::compressor wrong{here, layers, gs::recipe{.density = comm.rank() == 0 ? 0.1 : 0.2}};
      auto how = ending([&] { wrong.exchange(comm, std::span{update}); });
      if (!contains(how, "mismatch")) return how;
      gs::compressor right{here, layers, gs::recipe{.density = 0.1}};
      return ending([&] { right.exchange(comm, std::span{update}); });
    });
    CHECK(joined(said) == "");
  }
}

// ---- Messages ----------------------------------------------------------------------------------------------

TEST_CASE("apply refuses what is not a message for it, and changes nothing") {
  auto const layers = gs::layout{{"w", 60}, {"bias", 3}, {"v", 20}};
  auto const recipe = gs::recipe{.density = 0.1};
  gs::compressor sender{here, layers, recipe};
  gs::averager server{here, layers, recipe.codec, recipe.passthrough};
  auto const g = gradient(83, 0, 0);
  auto const good = copy_of(sender.encode(sender.compress(std::span<float const>{g})));
  constexpr std::size_t count = 8;
  REQUIRE(good.size() == 48 + 8 * count + 4 * 3);

  // behind a good one, so that its content would have been applied already
  auto const refusal = [&](std::vector<std::byte> const& bytes) {
    std::vector<std::span<std::byte const>> const messages{good, bytes};
    std::vector<float> update(83, 5.0f);
    auto const how = ending([&] { server.apply(std::span{messages}, std::span{update}); });
    if (!how.empty()) CHECK(update == std::vector<float>(83, 5.0f));
    return how;
  };

  SUBCASE("truncated, anywhere") {
    for (std::size_t size = 0; size < good.size(); ++size) {
      auto const how = refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)});
      CHECK(contains(how, "corrupt_message: gradsieve: message size is " + std::to_string(size) + ", expected "));
    }
    auto longer = good;
    longer.push_back(std::byte{0});
    CHECK(contains(refusal(longer), "message size is " + std::to_string(good.size() + 1)));
  }
  SUBCASE("with any bit turned") {
    for (std::size_t i = 0; i < good.size(); ++i) {
      auto damaged = good;
      damaged[i] ^= std::byte{static_cast<unsigned char>(1u << (i % 8))};
      CHECK(contains(refusal(damaged), "corrupt_message: gradsieve: message "));
    }
  }
  SUBCASE("sealed again by somebody hostile") {
    // header and payload changed by `change`, the checksum put right
    auto const forged = [&](std::uint64_t n, std::uint64_t hash, std::uint64_t entries, std::uint64_t passthrough,
                            std::uint16_t codec, std::function<void(std::vector<std::byte>&)> const& change) {
      auto bytes = good;
      change(bytes);
      gs::wire::seal({codec, n, hash, entries, passthrough}, bytes);
      return refusal(bytes);
    };
    auto const nothing = [](std::vector<std::byte>&) {};
    auto const hash = layers.hash();
    constexpr std::size_t indices = 48;
    constexpr std::size_t values = indices + 4 * count;
    constexpr std::size_t passthrough = values + 4 * count;
    CHECK(forged(83, hash, count, 3, 1, nothing) == "");
    CHECK(forged(84, hash, count, 3, 1, nothing) ==
          "corrupt_message: gradsieve: message gradient size is 84, expected 83");
    CHECK(contains(forged(83, hash + 1, count, 3, 1, nothing), "message layout hash is "));
    CHECK(contains(forged(83, hash, count, 4, 1, nothing), "message passthrough count is 4, expected 3"));
    CHECK(contains(forged(83, hash, count, 3, 77, nothing), "message codec is 77, expected 1"));
    CHECK(contains(forged(83, hash, 81, 3, 1, nothing), "message size is "));
    CHECK(contains(forged(83, hash, ~std::uint64_t{0}, 3, 1, nothing), "message entry count is 18446744073709551615"));
    CHECK(contains(forged(83, hash, std::uint64_t{1} << 61, 3, 1, nothing), "message entry count is "));
    CHECK(contains(forged(83, hash, count + 1, 3, 1, nothing), "message size is "));
    CHECK(contains(forged(83, hash, count, 3, 1, [&](auto& b) { put<std::uint32_t>(b, values - 4, 83); }),
                   "message index 83 is not below 83"));
    CHECK(contains(forged(83, hash, count, 3, 1, [&](auto& b) { put<std::uint32_t>(b, values - 4, ~0u); }),
                   "message index 4294967295 is not below 83"));
    CHECK(contains(forged(83, hash, count, 3, 1, [&](auto& b) { put<std::uint32_t>(b, indices, 82); }),
                   "message indices do not rise strictly"));
    CHECK(contains(
        forged(83, hash, count, 3, 1, [&](auto& b) { std::copy_n(b.begin() + indices, 4, b.begin() + indices + 4); }),
        "message indices do not rise strictly"));
    CHECK(contains(forged(83, hash, count, 3, 1, [&](auto& b) { put(b, values + 8, not_a_number); }),
                   "message holds a value that is not finite"));
    CHECK(contains(forged(83, hash, count, 3, 1,
                          [&](auto& b) { put(b, passthrough + 4, -std::numeric_limits<float>::infinity()); }),
                   "message holds a value that is not finite"));
    // another magic number or version, the checksum right all the same
    auto const reworded = [&](std::size_t at, auto value) {
      auto bytes = good;
      put(bytes, at, value);
      put(bytes, 40, std::uint64_t{0});
      put(bytes, 40, gs::wire::checksum(bytes));
      return refusal(bytes);
    };
    CHECK(contains(reworded(0, 7u), "message magic number is 7"));
    CHECK(contains(reworded(4, std::uint16_t{1}), "message version is 1, expected 2"));
  }
  SUBCASE("of another layout, and of none of ours") {
    gs::compressor other{here, gs::layout{{"w", 60}, {"bias", 3}, {"x", 20}}, recipe};
    CHECK(
        contains(refusal(copy_of(other.encode(other.compress(std::span<float const>{g})))), "message layout hash is "));
    data::generator random{7};
    for (int i = 0; i < 300; ++i) {
      std::vector<std::byte> noise(random.below(300));
      for (auto& each : noise) each = static_cast<std::byte>(random.bits());
      CHECK(contains(refusal(noise), "corrupt_message"));
    }
  }
}

TEST_CASE("a message damaged on its way: all ranks throw, and nothing is given up") {
  auto const n = mixed_layers().size();
  for (auto const& [world, struck] : {std::pair{1, -1}, std::pair{3, -1}, std::pair{3, 2}}) {
    auto const said = on_ranks(world, [&, victim = struck](communicator real) {
      findings found;
      bool armed = false;
      damaging const comm{{real}, &armed, victim};
      gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.05}};
      auto update = gradient(n, comm.rank(), 0);
      compressor.exchange(comm, std::span{update});
      auto const before = residual_of(compressor);
      auto const g = gradient(n, comm.rank(), 1);
      update = g;
      armed = true;
      auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
      armed = false;
      found.expect(contains(how, victim < 0 || victim == comm.rank() ? "corrupt_message: gradsieve: message "
                                                                     : "damaged on its way to another rank"),
                   "said " + how);
      found.expect(same_bits(update, g), "the gradient changed");
      for (std::size_t i = 0; i < n; ++i)
        found.expect(compressor.residual()[i] == before[i] + g[i], "the residual gave something up");
      found.expect(ending([&] { compressor.exchange(comm, std::span{update}); }).empty(),
                   "the next step does not work");
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

namespace {

/// A codec that cannot write large values.
struct refusing : gs::coo {
  [[nodiscard]] std::uint64_t encode(gs::message_info const& info, gs::selection_view const& in,
                                     std::span<std::byte> to) const {
    for (float const x : in.values)
      if (x > 1e3f) throw std::runtime_error("too large");
    return coo::encode(info, in, to);
  }
};

/// A value codec that doubles what it rounds, which is too much for the largest.
struct doubling : gs::fp32 {
  static constexpr std::uint16_t id = 40'000;
  void quantise(gs::message_info const&, std::span<gs::index_type const>, std::span<float> values) const noexcept {
    for (float& x : values) x *= 2;
  }
};

}  // namespace

TEST_CASE("a codec that rounds to infinity: refused, and nothing is given up") {
  std::vector<float> g(100, 1.0f);
  g[7] = std::numeric_limits<float>::max();
  auto const said = on_ranks(2, [&](communicator comm) {
    gs::compressor compressor{here, gs::layout::flat(100),
                              gs::recipe{.density = 0.1, .codec = gs::packed{.values = doubling{}}}};
    std::vector<float> mine(100, 1.0f);
    if (comm.rank() == 1) mine = g;
    auto update = mine;
    auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
    if (!same_bits(residual_of(compressor), mine)) return std::string{"the residual gave something up"};
    return how;
  });
  CHECK(said[0] == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent");
  CHECK(said[1] == "corrupt_message: gradsieve: message holds a value that is not finite");
  gs::compressor alone{here, gs::layout::flat(100),
                       gs::recipe{.density = 0.1, .codec = gs::packed{.values = doubling{}}}};
  CHECK(contains(ending([&] { alone.compress(g); }), "a value that is not finite"));
  CHECK(contains(ending([&] { (void)alone.encode(gs::host_selection{}); }),
                 "encode() needs a compress() that succeeded"));
  CHECK(same_bits(residual_of(alone), g));
}

TEST_CASE("a codec that throws on one rank: all ranks throw, and nothing is given up") {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.05, .codec = refusing{}}};
    auto g = gradient(n, comm.rank(), 0);
    if (comm.rank() == 1) g[3] = 1e6f;
    auto update = g;
    auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
    found.expect(how == (comm.rank() == 1 ? "exception: too large"
                                          : "communication_error: gradsieve: rank 1 failed in this step; nothing was "
                                            "sent"),
                 "said " + how);
    found.expect(same_bits(residual_of(compressor), g), "the residual gave something up");
    return found.text();
  });
  CHECK(joined(said) == "");
}

namespace {

/// A communicator that believes what it is told: sizes that ranks 1 and 2 announce, whose sum is what rank 0 expects.
struct believing : forwarding {
  std::uint64_t lie;

  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    real.all_gather(where, mine, all);
    for (auto const r : {std::size_t{1}, std::size_t{2}}) {
      auto const at = all.subspan(r * mine.size(), mine.size());
      if (mine.size() == 32)
        gs::wire::store_one(at.subspan(16), gs::wire::load_one<std::uint64_t>(at.subspan(16)) + lie);
    }
  }
  void all_gather(gs::host const&, std::span<std::byte const>, std::span<std::byte>,
                  std::span<std::size_t const>) const {
    throw std::logic_error("asked for sizes that are lies");
  }
};

}  // namespace

TEST_CASE("announced sizes that there is no room for: refused before anything is asked for, also if they wrap around") {
  auto const refused = [](auto const& recipe, std::uint64_t lie) {
    auto const said = on_ranks(3, [&](communicator comm) {
      gs::compressor compressor{here, mixed_layers(), recipe};
      compressor.connect(comm);
      auto update = gradient(mixed_layers().size(), comm.rank(), 0);
      auto const how = ending([&] { compressor.exchange(believing{{comm}, lie}, std::span{update}); });
      return contains(how, "mismatch: gradsieve: rank 1 announces a size of ") && contains(how, ", there is room for ")
                 ? std::string{}
                 : how;
    });
    CHECK(joined(said) == "");
  };
  for (std::uint64_t const lie : {std::uint64_t{1} << 63, std::uint64_t{100'000}}) {
    CAPTURE(lie);
    refused(gs::recipe{.density = 0.05}, lie);
    refused(gs::recipe{.density = 0.05, .partitioner = gs::deft{}}, lie);
    refused(gs::recipe{.density = 0.05, .exchange = gs::index_union{}}, lie);
  }
}

// ---- Checkpoints -------------------------------------------------------------------------------------------

namespace {

/// A residual store of the same name, whose states mean what filtered's meant before.
struct memory_itself : gs::filtered {
  static constexpr char const* meaning = "";
};

}  // namespace

TEST_CASE("restore and absorb refuse what is not theirs, and change nothing") {
  auto const layers = gs::layout{{"w", 30}, {"bias", 2}};
  auto const recipe = gs::recipe{.density = 0.1, .selector = gs::laplacian{}};
  gs::compressor source{here, layers, recipe};
  gs::compressor target{here, layers, recipe};
  source.compress(std::span<float const>{gradient(32, 0, 0)});
  target.compress(std::span<float const>{gradient(32, 1, 0)});
  auto const good = source.state();
  auto const before = target.state();
  auto const refusal_of = [](auto& compressor, std::vector<std::byte> const& bytes) {
    auto const unchanged = compressor.state();
    auto const how = ending([&] { compressor.restore(bytes); });
    CHECK(ending([&] { compressor.absorb(bytes); }) == how);
    CHECK(compressor.state() == unchanged);
    return how;
  };
  auto const refusal = [&](std::vector<std::byte> const& bytes) { return refusal_of(target, bytes); };

  SUBCASE("truncated, anywhere") {
    for (std::size_t size = 0; size < good.size(); ++size)
      CHECK(contains(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}),
                     "corrupt_state: gradsieve: checkpoint has " + std::to_string(size) + " bytes, "));
  }
  SUBCASE("with any bit turned") {
    for (std::size_t i = 0; i < good.size(); ++i) {
      auto damaged = good;
      damaged[i] ^= std::byte{static_cast<unsigned char>(1u << (i % 8))};
      CHECK(contains(refusal(damaged), "corrupt_state: gradsieve: checkpoint "));
    }
  }
  SUBCASE("with the same bit turned in two words") {
    messages::for_each_equal_flip(good, 0, [&](std::vector<std::byte> const& damaged) {
      CHECK(contains(ending([&] { target.restore(damaged); }), "corrupt_state: gradsieve: checkpoint "));
    });
    CHECK(target.state() == before);
  }
  auto const resealed = [&](std::size_t at, auto value) {
    auto bytes = good;
    put(bytes, at, value);
    put(bytes, 40, gs::wire::checksum(std::span{bytes}.subspan(48), gs::wire::checksum(std::span{bytes}.first(40))));
    return refusal(bytes);
  };
  SUBCASE("of another version") {
    CHECK(resealed(4, std::uint16_t{4}) == "corrupt_state: gradsieve: checkpoint has version 4, expected 3");
    CHECK(resealed(4, std::uint16_t{2}) == "corrupt_state: gradsieve: checkpoint has version 2, expected 3");
    CHECK(resealed(0, 7u) == "corrupt_state: gradsieve: checkpoint does not begin with its magic number");
  }
  SUBCASE("with sizes that cannot be") {
    CHECK(contains(resealed(32, ~std::uint64_t{0}), "which its header does not explain"));
    CHECK(contains(resealed(32, std::uint64_t{1} << 61), "which its header does not explain"));
    CHECK(contains(resealed(8, std::uint64_t{1} << 62), "which its header does not explain"));
    CHECK(contains(resealed(6, std::uint16_t{2}), "which its header does not explain"));
    CHECK(contains(resealed(6, std::uint16_t{0}), "has 0 states an element, expected 1 to 16"));
    CHECK(contains(resealed(6, std::uint16_t{17}), "has 17 states an element, expected 1 to 16"));
  }
  SUBCASE("with a warm threshold that no key reaches") {
    CHECK(contains(resealed(48, 0x7F80'0001u), "has a warm threshold of 2139095041, expected at most 2139095040"));
    CHECK(contains(resealed(48, ~0u), "has a warm threshold of 4294967295, expected at most 2139095040"));
  }
  SUBCASE("with a value that is not finite") {
    CHECK(contains(resealed(good.size() - 8, not_a_number),
                   "corrupt_state: gradsieve: checkpoint holds a value that is not finite"));
  }
  SUBCASE("of another layout") {
    gs::compressor renamed{here, gs::layout{{"x", 30}, {"bias", 2}}, recipe};
    gs::compressor longer{here, gs::layout{{"w", 31}, {"bias", 2}}, recipe};
    CHECK(refusal_of(renamed, good) ==
          "mismatch: gradsieve: checkpoint belongs to another layout (32 elements, here 32)");
    CHECK(refusal_of(longer, good) ==
          "mismatch: gradsieve: checkpoint belongs to another layout (32 elements, here 33)");
  }
  SUBCASE("of another residual store") {
    gs::compressor momentum{here, layers, gs::recipe{.density = 0.1, .residual = gs::momentum_correction{}}};
    CHECK(refusal_of(momentum, good) ==
          "mismatch: gradsieve: checkpoint has 1 states an element, this residual store has 2");
    CHECK(refusal(momentum.state()) ==
          "mismatch: gradsieve: checkpoint has 2 states an element, this residual store has 1");
    gs::compressor filtered{here, layers, gs::recipe{.density = 0.1, .residual = gs::filtered{}}};
    auto const another =
        "mismatch: gradsieve: checkpoint is of another residual store, whose states mean something else";
    CHECK(refusal_of(filtered, momentum.state()) == another);
    CHECK(refusal_of(momentum, filtered.state()) == another);
    CHECK(gs::detail::kind_of_store(memory_itself{}) != gs::detail::kind_of_store(gs::filtered{}));
    gs::compressor none{here, layers, gs::recipe{.density = 0.1, .residual = gs::none{}}};
    CHECK(refusal_of(none, good) == another);
    gs::compressor fading{here, layers, gs::recipe{.density = 0.1, .residual = gs::error_feedback{.decay = 0.5f}}};
    fading.restore(good);  // parameters may change
    CHECK(fading.state() == good);
  }
  CHECK(target.state() == before);
  target.restore(good);
  CHECK(target.state() == good);
}

TEST_CASE("a restored compressor goes on as if nothing had been") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto const& recipe) {
    {  // without a communicator
      gs::compressor straight{here, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 5; ++step) straight.compress(std::span<float const>{gradient(n, 0, step)});
      gs::compressor restored{here, mixed_layers(), recipe};
      restored.compress(std::span<float const>{gradient(n, 3, 3)});  // something to overwrite
      restored.restore(straight.state());
      CHECK(restored.step() == 5);
      for (std::uint64_t step = 5; step < 9; ++step) {
        auto const message = straight.encode(straight.compress(std::span<float const>{gradient(n, 0, step)}));
        auto const again = restored.encode(restored.compress(std::span<float const>{gradient(n, 0, step)}));
        CHECK(same_bits(message, again));
        CHECK(straight.state() == restored.state());
      }
    }
    for (int const world : {1, 3}) {
      CAPTURE(world);
      auto const said = on_ranks(world, [&](communicator comm) {
        findings found;
        gs::compressor straight{here, mixed_layers(), recipe};
        for (std::uint64_t step = 0; step < 5; ++step) {
          auto update = gradient(n, comm.rank(), step);
          straight.exchange(comm, std::span{update});
        }
        gs::compressor restored{here, mixed_layers(), recipe};
        restored.restore(straight.state());
        found.expect(restored.state() == straight.state(), "state() of what was restored differs");
        for (std::uint64_t step = 5; step < 9; ++step) {
          auto a = gradient(n, comm.rank(), step);
          auto b = a;
          auto const one = straight.exchange(comm, std::span{a});
          auto const two = restored.exchange(comm, std::span{b});
          found.expect(same_bits(a, b), "updates differ in step " + std::to_string(step));
          found.expect(straight.state() == restored.state(), "states differ after step " + std::to_string(step));
          found.expect(one.selected == two.selected && one.step == two.step, "reports differ");
        }
        return found.text();
      });
      CHECK(joined(said) == "");
    }
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .selector = gs::laplacian{}});
  for (std::uint64_t const every : {1u, 2u, 100u})
    check(gs::recipe{.density = 0.03,
                     .selector = gs::laplacian{},
                     .partitioner = gs::deft{.rotate_every = every},
                     .residual = gs::momentum_correction{}});
  check(gs::recipe{
      .density = 0.03, .selector = gs::hierarchical{}, .partitioner = gs::layerwise{}, .exchange = gs::index_union{}});
  check(gs::recipe{.density = gs::warm_up{.initial = 0.5, .final = 0.01, .steps = 10}, .selector = gs::laplacian{}});
}

TEST_CASE("when a rank leaves, the others take over what it had not sent") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto const& recipe) {
    constexpr auto states = decltype(recipe.residual)::states;
    std::vector<std::vector<std::byte>> saved(3);
    gs::threads::run(3, [&](communicator comm) {
      gs::compressor compressor{here, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto update = gradient(n, comm.rank(), step);
        compressor.exchange(comm, std::span{update});
      }
      saved[at(comm.rank())] = compressor.state();
    });
    std::vector<double> before(states * n);
    for (auto const& each : saved) {
      gs::compressor one{here, mixed_layers(), recipe};
      one.restore(each);
      auto const values = states_of(one);
      for (std::size_t i = 0; i < values.size(); ++i) before[i] += static_cast<double>(values[i]) / 3;
    }
    auto const said = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      compressor.restore(saved[at(comm.rank())]);
      if (comm.rank() == 1) compressor.absorb(saved[2]);
      compressor.rescale(2.0f / 3.0f);
      auto const mine = states_of(compressor);
      std::vector<double> after(mine.begin(), mine.end());
      comm.all_reduce(here, std::span{after}, gs::reduction::sum);
      for (std::size_t i = 0; i < after.size(); ++i)
        found.expect(std::abs(after[i] / 2 - before[i]) <= 1e-6 * (1 + std::abs(before[i])),
                     "the mean residual changed");
      auto update = gradient(n, comm.rank(), 4);
      found.expect(compressor.exchange(comm, std::span{update}).step == 4, "the smaller world does not go on");
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  check(gs::recipe{.density = 0.03, .selector = gs::laplacian{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .residual = gs::momentum_correction{}});

  SUBCASE("also where the sum would be too large") {
    constexpr float large = 0.75f * std::numeric_limits<float>::max();
    gs::compressor compressor{here, gs::layout::flat(2), gs::recipe{.density = 0.0}};
    compressor.compress(std::span<float const>{std::vector{large, 1.0f}});
    compressor.absorb(compressor.state());
    CHECK(residual_of(compressor) == std::vector{large, 2.0f});
  }
}

TEST_CASE("the bytes of a checkpoint") {
  gs::compressor compressor{here, gs::layout{{"a", 2}}, gs::recipe{.density = 0.0}};
  compressor.compress(std::span<float const>{std::vector{1.0f, -2.5f}});
  auto const bytes = compressor.state();
  // magic | version | states | n | layout hash | step | warm thresholds | store | checksum | the warm threshold | the
  // residual
  constexpr std::array<unsigned, 64> expected{
      0x47, 0x52, 0x53, 0x43, 0x03, 0x00, 0x01, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0xA6, 0xBD, 0x7F, 0xB8, 0xDF, 0xF2, 0x1C, 0x0E, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
      0x01, 0x00, 0x00, 0x00, 0x73, 0xDD, 0xAA, 0x2D, 0x89, 0x2A, 0x72, 0xB6, 0x47, 0x95, 0xF4, 0xEB,
      0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x20, 0xC0};
  std::vector<unsigned> found;
  for (auto const each : bytes) found.push_back(static_cast<unsigned>(each));
  CHECK(found == std::vector<unsigned>(expected.begin(), expected.end()));
}
