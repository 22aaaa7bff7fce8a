// Nodes of several ranks: dense inside, compressed across.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/dense_mean.hpp>
#include <gradsieve/published.hpp>

#include "allocations.hpp"
#include "nodes.hpp"

using namespace nodes;

namespace {

constexpr std::uint64_t step_count = sanitized ? 4 : 8;
constexpr gs::host one_thread{.threads = 1};

template <class T>
std::vector<T> gradient_of(std::uint64_t n, int rank, std::uint64_t step) {
  std::vector<T> values;
  for (float const each : gradient(n, rank, step)) values.push_back(gs::from_float<T>(each));
  return values;
}

/// What a node's ranks bring to a step, as documented: the mean, summed in rank order, rounded once.
template <class T>
std::vector<T> node_mean(std::uint64_t n, int node, int ranks, std::uint64_t step) {
  std::vector<float> sums(n);
  for (int r = 0; r < ranks; ++r) {
    auto const own = gradient_of<T>(n, node * ranks + r, step);
    for (std::uint64_t i = 0; i < n; ++i)
      sums[i] = r == 0 ? gs::to_float(own[i]) : gs::add(sums[i], gs::to_float(own[i]));
  }
  std::vector<T> means(n);
  for (std::uint64_t i = 0; i < n; ++i) means[i] = gs::from_float<T>(sums[i] / static_cast<float>(ranks));
  return means;
}

/// What every rank ends with after each step, and the ranks' states at the end.
template <class T>
struct outcome {
  std::vector<std::vector<T>> updates;
  std::vector<std::vector<std::byte>> states;
};

/// The same by compressors alone: those of one place exchange their part of the node means.
template <class T, class Recipe>
outcome<T> by_parts(shape of, gs::layout const& layers, Recipe const& recipe) {
  auto const n = layers.size();
  outcome<T> made{{step_count, std::vector<T>(n)}, std::vector<std::vector<std::byte>>(at(of.world()))};
  for (int place = 0; place < of.ranks; ++place) {
    gs::node_share const part{n, of.ranks, place};
    gs::threads::run(of.nodes, [&](communicator comm) {
      gs::compressor compressor{one_thread, part.cut(layers), recipe};
      for (std::uint64_t step = 0; step < step_count; ++step) {
        auto const means = node_mean<T>(n, comm.rank(), of.ranks, step);
        std::vector<T> mine(means.begin() + static_cast<std::ptrdiff_t>(part.begin()),
                            means.begin() + static_cast<std::ptrdiff_t>(part.end()));
        compressor.exchange(comm, mine);
        if (comm.rank() == 0)
          std::ranges::copy(mine, made.updates[step].begin() + static_cast<std::ptrdiff_t>(part.begin()));
      }
      made.states[at(comm.rank() * of.ranks + place)] = compressor.state();
    });
  }
  return made;
}

/// Every step and every state, bit by bit, and the mass balance of each element.
template <class T, class Recipe>
void check_bits(shape of, gs::layout const& layers, Recipe const& recipe, int threads = 1) {
  std::ostringstream name;
  name << recipe;
  INFO(name.str() << ", " << of.nodes << " x " << of.ranks << ", n " << layers.size());
  auto const n = layers.size();
  auto const expected = by_parts<T>(of, layers, recipe);
  std::vector<std::string> found(at(of.world()));
  auto const said = run(of, [&](pair const& ranks) {
    gs::two_level_compressor compressor{gs::host{.threads = threads}, layers, recipe, ranks};
    auto& mine = found[at(ranks.rank())];
    for (std::uint64_t step = 0; step < step_count; ++step) {
      auto update = gradient_of<T>(n, ranks.rank(), step);
      gs::step_report const report = compressor.exchange(ranks, update);
      if (!same_bits(update, expected.updates[step])) mine += "another update in step " + std::to_string(step) + "; ";
      if (report.world != of.nodes) mine += "the report has another world; ";
    }
    if (compressor.state() != expected.states[at(ranks.rank())]) mine += "another state; ";
  });
  CHECK(text(said) == "");
  CHECK(text(found) == "");
}

/// N times what was applied, and what the nodes still hold, is what the nodes' means were.
template <class Recipe>
void check_balance(shape of, Recipe const& recipe) {
  INFO(of.nodes << " x " << of.ranks);
  auto const n = mixed_layers().size();
  std::vector<double> income(n), applied(n), held(n);
  for (int node = 0; node < of.nodes; ++node)
    for (std::uint64_t step = 0; step < step_count; ++step) {
      auto const means = node_mean<float>(n, node, of.ranks, step);
      for (std::uint64_t i = 0; i < n; ++i) income[i] += static_cast<double>(means[i]);
    }
  std::mutex mutex;
  auto const said = run(of, [&](pair const& ranks) {
    gs::two_level_compressor compressor{one_thread, mixed_layers(), recipe, ranks};
    for (std::uint64_t step = 0; step < step_count; ++step) {
      auto update = gradient(n, ranks.rank(), step);
      compressor.exchange(ranks, update);
      if (ranks.rank() == 0)
        for (std::uint64_t i = 0; i < n; ++i) applied[i] += static_cast<double>(update[i]);
    }
    auto const rest = compressor.part_compressor().residual();
    std::scoped_lock const lock{mutex};
    for (std::uint64_t i = 0; i < rest.size(); ++i) held[compressor.part().begin() + i] += static_cast<double>(rest[i]);
  });
  CHECK(text(said) == "");
  double worst = 0;
  for (std::uint64_t i = 0; i < n; ++i) worst = std::max(worst, std::fabs(income[i] - of.nodes * applied[i] - held[i]));
  CHECK(worst < 1e-4);
}

constexpr shape shapes[] = {{2, 4}, {4, 2}, {1, 4}, {4, 1}, {3, 2}, {2, 3}};

/// 4502 elements: a multiple of 2, and of no other number of ranks here. 4800: of all of them.
gs::layout even_layers() { return {{"a", 1000}, {"b.bias", 40}, {"c", 3760}}; }

/// Inside of a node without reduce_scatter.
struct without_scatter {
  communicator real;
  [[nodiscard]] int rank() const { return real.rank(); }
  [[nodiscard]] int size() const { return real.size(); }
  template <class T>
  void all_reduce(gs::host const& where, std::span<T> in_out, gs::reduction how) const {
    real.all_reduce(where, in_out, how);
  }
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
};
static_assert(!gs::has_reduce_scatter<without_scatter, gs::host, float>);

/// Damages what it has gathered in one call, beginning with 0; the ranks' meetings are calls of 32 bytes.
struct damaging : forwarding {
  int* calls_left;
  template <class... Sizes>
  void all_gather(gs::host const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
    if (all.size() > 32 * at(size()) && (*calls_left)-- == 0) all[all.size() / 2] ^= std::byte{0x10};
  }
};

}  // namespace

TEST_CASE("parts of a gradient: equal room, the last ones shorter, layers cut where they end") {
  gs::layout const layers{{"a", 5}, {"none", 0}, {"b", 4}, {"c", 1}};
  auto const cut = [&](int ranks, int rank) { return gs::node_share{10, ranks, rank}.cut(layers); };
  CHECK(cut(1, 0) == layers);
  CHECK(cut(2, 0) == gs::layout{{"a", 5}, {"share 0 of 2", 0}});
  CHECK(cut(2, 1) == gs::layout{{"b", 4}, {"c", 1}, {"share 1 of 2", 0}});
  CHECK(cut(3, 1) == gs::layout{{"a", 1}, {"b", 3}, {"share 1 of 3", 0}});
  CHECK(cut(3, 2) == gs::layout{{"b", 1}, {"c", 1}, {"share 2 of 3", 0}});
  for (int const ranks : {1, 2, 3, 4, 7, 10, 11, 64}) {
    std::uint64_t next = 0;
    for (int r = 0; r < ranks; ++r) {
      gs::node_share const part{10, ranks, r};
      CHECK(part.begin() == next);
      CHECK(part.size() <= part.capacity());
      CHECK(cut(ranks, r).size() == part.size());
      next = part.end();
    }
    CHECK(next == 10);
  }
  CHECK(gs::node_share{0, 3, 2}.size() == 0);
}

TEST_CASE("two levels give the bits of compressors of the parts, on all ranks") {
  auto const gather = gs::recipe{.density = 0.03, .residual = gs::error_feedback{.decay = 0.9f}};
  for (auto const of : shapes) {
    check_bits<float>(of, mixed_layers(), gather);
    check_bits<float>(of, even_layers(), gather);
    check_bits<gs::bfloat16>(of, mixed_layers(), gather);
    check_bits<gs::float16>(of, even_layers(), gather);
  }
  check_bits<float>({2, 4}, mixed_layers(), gather, 3);
  check_bits<float>({2, 2}, gs::layout{{"large", 70'001}}, gather, 3);  // so that the team runs
  check_bits<float>({2, 4}, gs::layout{{"small", 3}}, gather);          // ranks without a part
  check_bits<float>({2, 3}, gs::layout{}, gather);
}

TEST_CASE("two levels, with every exchange and codecs that round") {
  auto const fp16 = gs::packed{.indices = gs::delta{}, .values = gs::fp16{}};
  for (shape const of : {shape{2, 4}, shape{4, 2}, shape{3, 2}}) {
    check_bits<float>(of, mixed_layers(), gs::recipe{.density = 0.03, .codec = fp16});
    check_bits<float>(of, mixed_layers(), gs::recipe{.density = 0.03, .codec = gs::packed{.values = gs::ternary{}}});
    check_bits<float>(of, mixed_layers(), gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .codec = fp16});
    check_bits<float>(of, mixed_layers(),
                      gs::recipe{.density = 0.03, .selector = gs::hierarchical{}, .exchange = gs::index_union{}});
    check_bits<float>(of, mixed_layers(), gs::recipe{.density = 0.03, .codec = fp16, .exchange = gs::index_union{}});
    check_bits<float>(of, mixed_layers(), gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
    check_bits<gs::bfloat16>(of, even_layers(), gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
    check_bits<float>(of, mixed_layers(),
                      gs::recipe{.density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}});
    check_bits<float>(
        of, mixed_layers(),
        gs::recipe{.density = 0.03, .partitioner = gs::layerwise{}, .residual = gs::momentum_correction{}});
  }
}

TEST_CASE("two levels, with reduce_scatter across: the ranks of a node have its shard of each part") {
  auto const n = mixed_layers().size();
  for (shape const of : {shape{2, 4}, shape{3, 2}}) {
    auto const with = [&](auto exchange) {
      std::vector<std::vector<float>> ends(at(of.world()));
      auto const said = run(of, [&](pair const& ranks) {
        gs::recipe const recipe{.density = 0.03, .exchange = exchange, .passthrough = {.patterns = {}}};
        gs::two_level_compressor compressor{one_thread, mixed_layers(), recipe, ranks};
        for (std::uint64_t step = 0; step < step_count; ++step) {
          ends[at(ranks.rank())] = gradient(n, ranks.rank(), step);
          compressor.exchange(ranks, ends[at(ranks.rank())]);
        }
      });
      CHECK(text(said) == "");
      return ends;
    };
    auto const whole = with(gs::gather{});
    auto const shards = with(gs::reduce_scatter{});
    for (int r = 0; r < of.world(); ++r) {
      std::vector<float> expected(n);
      for (int place = 0; place < of.ranks; ++place) {
        gs::node_share const part{n, of.ranks, place};
        auto const shard = gs::shard_of(part.size(), of.nodes, r / of.ranks);
        for (std::uint64_t i = part.begin() + shard.offset; i < part.begin() + shard.offset + shard.size; ++i)
          expected[i] = whole[at(r)][i];
      }
      CHECK(same_bits(shards[at(r)], expected));
    }
  }
}

TEST_CASE("two levels: what came in is what was applied and what is still held") {
  for (auto const of : shapes) {
    check_balance(of, gs::recipe{.density = 0.03});
    check_balance(of, gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
    check_balance(of, gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
    check_balance(of, gs::recipe{.density = 0.03, .exchange = gs::index_union{}});
    check_balance(of, gs::recipe{.density = 0.03, .codec = gs::packed{.values = gs::bf16{}}});
  }
}

TEST_CASE("two levels at density 1: dense_mean across of dense_mean inside, and of all where sums are exact") {
  for (auto const of : shapes) {
    INFO(of.nodes << " x " << of.ranks);
    auto const n = mixed_layers().size();
    auto const said = run(of, [&](pair const& ranks) {
      gs::two_level_compressor compressor{one_thread, mixed_layers(), gs::recipe{.density = 1.0}, ranks};
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto update = gradient(n, ranks.rank(), step);
        auto averaged = update;
        static_cast<void>(gs::dense_mean{}.exchange(ranks.inside, std::span{averaged}));
        static_cast<void>(gs::dense_mean{}.exchange(ranks.across, std::span{averaged}));
        compressor.exchange(ranks, update);
        if (!same_bits(update, averaged)) throw gs::mismatch("not the mean of the means");
      }
      std::vector<float> whole(n);
      for (std::uint64_t i = 0; i < n; ++i)  // multiples of all that is divided by
        whole[i] = static_cast<float>(48 * static_cast<int>((i * 7 + at(ranks.rank())) % 101) - 2000 * 3);
      double const mean = [&] {
        double sum = 0;
        for (int r = 0; r < of.world(); ++r) sum += 48 * static_cast<int>((5 * 7 + at(r)) % 101) - 2000 * 3;
        return sum / of.world();
      }();
      compressor.exchange(ranks, whole);
      if (whole[5] != static_cast<float>(mean)) throw gs::mismatch("not the mean of all ranks");
    });
    CHECK(text(said) == "");
  }
}

TEST_CASE("two levels: inside, a communicator without reduce_scatter does as well") {
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.03};
  shape const of{2, 3};
  for (auto const& layers : {mixed_layers(), even_layers()}) {
    auto const expected = by_parts<float>(of, layers, recipe);
    auto const said = run(of, [&](pair const& both) {
      gs::two_level const ranks{without_scatter{both.inside}, both.across};
      gs::two_level_compressor compressor{one_thread, layers, recipe, ranks};
      for (std::uint64_t step = 0; step < step_count; ++step) {
        auto update = gradient(layers.size(), ranks.rank(), step);
        compressor.exchange(ranks, update);
        if (!same_bits(update, expected.updates[step])) throw gs::mismatch("another update");
      }
    });
    CHECK(text(said) == "");
  }
  CHECK(n == 4502);
}

TEST_CASE("two levels: residual, selection and bytes across are those of a part") {
  std::uint64_t const n = 24'000;
  auto const bytes = [&](shape of) {
    std::uint64_t node = 0;  // what leaves the first node
    std::mutex mutex;
    auto const said = run(of, [&](pair const& both) {
      traffic moved;
      gs::two_level const ranks{both.inside, counting{{both.across}, &moved}};
      gs::two_level_compressor compressor{one_thread, gs::layout::flat(n), gs::recipe{.density = 0.01}, ranks};
      gs::step_report report;
      for (std::uint64_t step = 0; step < 3; ++step) {
        moved = {};
        auto update = gradient(n, ranks.rank(), step);
        report = compressor.exchange(ranks, update);
      }
      if (report.bytes_sent != moved.sent) throw gs::mismatch("the report counts other bytes");
      if (report.capacity > n / at(of.ranks) / 50) throw gs::mismatch("selects from more than its part");
      if (compressor.part_compressor().residual().size() != n / at(of.ranks)) throw gs::mismatch("a larger residual");
      std::scoped_lock const lock{mutex};
      if (ranks.across.rank() == 0) node += moved.sent;
    });
    CHECK(text(said) == "");
    return node;
  };
  auto const alone = bytes({2, 1});
  for (int const ranks : {2, 4, 8}) {
    auto const here = bytes({2, ranks});
    CHECK(here < alone + 200 * at(ranks));  // headers and meetings
    CHECK(here + 200 > alone);
  }
}

// ---- Failures ------------------------------------------------------------------------------------------------

namespace {

/// Steps of which the second fails by `fails`; then all go on with equal bits. Returns what each rank said in it.
template <class Recipe, class Fails>
std::vector<std::string> ends_of_failing(shape of, Recipe const& recipe, Fails const& fails) {
  auto const n = mixed_layers().size();
  std::vector<std::string> said(at(of.world()));
  std::vector<std::uint64_t> hashes(said.size());
  auto const wrong = run(of, [&](pair const& ranks) {
    gs::two_level_compressor compressor{one_thread, mixed_layers(), recipe, ranks};
    std::uint64_t h = 0;
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(n, ranks.rank(), step);
      if (step == 1) {
        auto const before = update;
        auto const norm_before = compressor.part_compressor().residual_norm();
        said[at(ranks.rank())] = ending([&] { fails(compressor, ranks, update); });
        if (before.size() == update.size() && !same_bits(before, update))
          throw gs::mismatch("the gradient has changed");
        static_cast<void>(norm_before);
      } else {
        compressor.exchange(ranks, update);
        h = hash(update, h);
      }
    }
    hashes[at(ranks.rank())] = h;
  });
  CHECK(text(wrong) == "");
  for (auto const each : hashes) CHECK(each == hashes[0]);
  return said;
}

bool has(std::string const& said, std::string const& part) { return said.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("two levels: a rank that fails before the sum: all ranks of all nodes throw, and the next step works") {
  for (shape const of : {shape{2, 4}, shape{4, 2}, shape{1, 3}, shape{3, 1}})
    for (int const bad : {0, of.world() - 1}) {
      INFO(of.nodes << " x " << of.ranks << ", rank " << bad);
      auto const check = [&](std::vector<std::string> const& said, std::string const& own) {
        for (int r = 0; r < of.world(); ++r) {
          auto const& mine = said[at(r)];
          INFO(mine);
          bool const same_node = r / of.ranks == bad / of.ranks;
          if (r == bad)
            CHECK((own.empty() ? mine.empty() : has(mine, own)));
          else if (same_node)
            CHECK(has(mine, "communication_error: gradsieve: rank " + std::to_string(bad % of.ranks) +
                                " of this node failed in this step"));
          else
            CHECK(has(mine, "communication_error: gradsieve: rank "));
        }
      };
      auto const steps = [&](auto const& recipe) {
        check(ends_of_failing(of, recipe,
                              [&](auto& compressor, auto const& ranks, auto& update) {
                                if (ranks.rank() == bad) update.pop_back();
                                compressor.exchange(ranks, update);
                              }),
              "invalid_argument: gradsieve: gradient has 4501 elements");
        check(ends_of_failing(of, recipe,
                              [&](auto& compressor, auto const& ranks, auto& update) {
                                if (ranks.rank() == bad)
                                  compressor.fail(ranks, update);
                                else
                                  compressor.exchange(ranks, update);
                              }),
              "");
      };
      steps(gs::recipe{.density = 0.03});
      steps(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
      steps(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
    }
}

TEST_CASE("two levels: the first step may fail too") {
  shape const of{2, 2};
  auto const said = run(of, [&](pair const& ranks) {
    gs::two_level_compressor compressor{one_thread, mixed_layers(), gs::recipe{.density = 0.03}, ranks};
    auto update = gradient(mixed_layers().size(), ranks.rank(), 0);
    auto const how = ending([&] {
      if (ranks.rank() == 3)
        compressor.fail(ranks, update);
      else
        compressor.exchange(ranks, update);
    });
    if (how.empty() != (ranks.rank() == 3)) throw gs::mismatch("a rank did not throw");
    compressor.exchange(ranks, update);
  });
  CHECK(text(said) == "");
}

TEST_CASE("two levels: a place whose exchange fails: all throw, the others take back what they gave up") {
  // A NaN in the part of the last place: with non_finite::fail its ranks throw, on all nodes.
  shape const of{2, 3};
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.03, .on_non_finite = gs::non_finite::fail};
  std::vector<double> income(n), held(n), applied(n);
  std::mutex mutex;
  auto const said = run(of, [&](pair const& ranks) {
    gs::two_level_compressor compressor{one_thread, mixed_layers(), recipe, ranks};
    auto const part = compressor.part();
    bool const hit = part.rank == of.ranks - 1;
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(n, ranks.rank(), step);
      if (step == 2 && ranks.rank() == 1) update[n - 3] = std::numeric_limits<float>::quiet_NaN();
      auto const how = ending([&] { compressor.exchange(ranks, update); });
      if (how.empty() != (step != 2)) throw gs::mismatch("step " + std::to_string(step) + ": " + how);
      if (step == 2) {
        auto const kind =
            hit ? "non_finite_gradient: gradsieve: 1 gradient" : "communication_error: gradsieve: rank 2 of";
        if (!has(how, kind)) throw gs::mismatch(how);
      }
      std::scoped_lock const lock{mutex};
      auto const means = node_mean<float>(n, ranks.across.rank(), of.ranks, step);
      for (auto i = part.begin(); i < part.end(); ++i) {
        if (step != 2 || !hit) income[i] += static_cast<double>(means[i]);
        if (step != 2 && ranks.across.rank() == 0) applied[i] += static_cast<double>(update[i]);
      }
    }
    auto const rest = compressor.part_compressor().residual();
    std::scoped_lock const lock{mutex};
    for (std::uint64_t i = 0; i < rest.size(); ++i) held[part.begin() + i] += static_cast<double>(rest[i]);
    if (compressor.part_compressor().step() != (hit ? 3u : 4u)) throw gs::mismatch("another step");
  });
  CHECK(text(said) == "");
  double worst = 0;
  for (std::uint64_t i = 0; i < n; ++i) worst = std::max(worst, std::fabs(income[i] - of.nodes * applied[i] - held[i]));
  CHECK(worst < 1e-4);
}

TEST_CASE("two levels: bytes that are damaged on their way to one rank make all ranks of its node throw") {
  shape const of{2, 3};
  auto const n = mixed_layers().size();
  std::vector<std::string> ends(at(of.world()));
  run(of, [&](pair const& both) {
    int calls = both.rank() == 4 ? 1 : 1000;
    gs::two_level const ranks{both.inside, damaging{{both.across}, &calls}};
    // no layer passes through: else the flag that is summed with them tells the other nodes as well
    gs::two_level_compressor compressor{one_thread, mixed_layers(),
                                        gs::recipe{.density = 0.03, .passthrough = {.patterns = {}}}, ranks};
    for (std::uint64_t step = 0; step < 2; ++step) {
      auto update = gradient(n, ranks.rank(), step);
      ends[at(ranks.rank())] = ending([&] { compressor.exchange(ranks, update); });
    }
  });
  for (int r = 0; r < of.world(); ++r) {
    INFO(ends[at(r)]);
    if (r < 3)
      CHECK(ends[at(r)].empty());
    else if (r == 4)
      CHECK(has(ends[at(r)], "corrupt_message: "));
    else
      CHECK(has(ends[at(r)], "communication_error: gradsieve: rank 1 of this node failed"));
  }
}

TEST_CASE("two levels: ranks that disagree throw, and no rank waits") {
  auto const n = mixed_layers().size();
  auto const with = [&](shape of, std::function<gs::layout(int)> const& layers,
                        std::function<double(int)> const& density) {
    std::vector<std::string> ends(at(of.world()));
    auto const said = run(of, [&](pair const& ranks) {
      auto const mine = layers(ranks.rank());
      gs::two_level_compressor compressor{one_thread, mine, gs::recipe{.density = density(ranks.rank())}, ranks};
      std::vector<float> update(mine.size(), 1.0f);
      ends[at(ranks.rank())] = ending([&] { compressor.exchange(ranks, update); });
    });
    CHECK(text(said) == "");
    return ends;
  };
  auto const same = [&](int) { return mixed_layers(); };
  auto const usual = [](int) { return 0.1; };
  auto ends = with({2, 2}, [](int r) { return gs::layout::flat(r == 1 ? 99 : 100); }, usual);
  CHECK(has(ends[0], "mismatch: gradsieve: ranks of one node differ in layout or format"));
  CHECK(has(ends[1], "mismatch: gradsieve: ranks of one node differ in layout or format"));
  CHECK(has(ends[2], "communication_error: gradsieve: rank 0 failed"));
  CHECK(has(ends[3], "communication_error: gradsieve: rank 0 failed"));
  ends = with({2, 2}, same, [](int r) { return r == 2 ? 0.2 : 0.1; });
  CHECK(has(ends[0], "communication_error: gradsieve: rank 1 failed"));
  CHECK(has(ends[2], "mismatch: gradsieve: ranks of one node differ in recipe or density"));
  ends = with({2, 2}, same, [](int r) { return r >= 2 ? 0.2 : 0.1; });
  for (auto const& each : ends) CHECK(has(each, "differ in recipe or density"));
  CHECK(n == 4502);
}

TEST_CASE("two levels: formats of one length that differ within a node: all throw") {
  auto const n = mixed_layers().size();
  std::vector<std::string> ends(4);
  auto const said = run({2, 2}, [&](pair const& ranks) {
    gs::two_level_compressor compressor{one_thread, mixed_layers(), gs::recipe{.density = 0.1}, ranks};
    std::vector<gs::float16> shorts(n, gs::from_float<gs::float16>(1.5f));
    std::vector<gs::bfloat16> brains(n, gs::from_float<gs::bfloat16>(1.5f));
    ends[at(ranks.rank())] = ending([&] {
      if (ranks.rank() == 1)
        compressor.exchange(ranks, brains);
      else
        compressor.exchange(ranks, shorts);
    });
  });
  CHECK(text(said) == "");
  CHECK(has(ends[0], "mismatch: gradsieve: ranks of one node differ in layout or format"));
  CHECK(has(ends[1], "mismatch: gradsieve: ranks of one node differ in layout or format"));
  CHECK(has(ends[2], "communication_error: gradsieve: rank 0 failed"));
  CHECK(has(ends[3], "communication_error: gradsieve: rank 0 failed"));
}

TEST_CASE("two levels: communicators that do not fit are refused") {
  // Across, ranks of different places: found by the layouts of their parts.
  std::deque<gs::threads::group> inside, across;
  for (int i = 0; i < 2; ++i) {
    inside.emplace_back(2);
    across.emplace_back(2);
  }
  std::vector<std::string> ends(4);
  gs::threads::run(4, [&](communicator all) {
    int const node = all.rank() / 2;
    int const place = all.rank() % 2;
    gs::two_level const ranks{inside[at(node)].communicator(place), across[at(place ^ node)].communicator(node)};
    gs::two_level_compressor compressor{one_thread, gs::layout::flat(100), gs::recipe{.density = 0.1}, ranks};
    std::vector<float> update(100, 1.0f);
    ends[at(all.rank())] = ending([&] { compressor.exchange(ranks, update); });
  });
  for (auto const& each : ends) CHECK(has(each, "differ in layout"));

  // Another node than at construction.
  gs::two_level const alone{gs::self{}, gs::self{}};
  gs::two_level_compressor compressor{one_thread, gs::layout::flat(10), gs::recipe{.density = 0.5}, alone};
  gs::threads::run(2, [&](communicator comm) {
    gs::two_level_compressor mine{one_thread, gs::layout::flat(10), gs::recipe{.density = 0.5}, alone};
    std::vector<float> update(10);
    auto const how = ending([&] { mine.exchange(gs::two_level{comm, gs::self{}}, update); });
    CHECK(how == "invalid_argument: gradsieve: rank " + std::to_string(comm.rank()) +
                     " of a node of 2, this compressor is rank 0's of a node of 1");
  });
  std::vector<float> update(10, 1.0f);
  compressor.exchange(alone, update);
  auto moved = std::move(compressor);
  for (auto const& call : std::vector<std::function<void()>>{
           [&] { compressor.exchange(alone, update); }, [&] { compressor.exchange(alone, update, {}); },
           [&] { compressor.fail(alone, update); }, [&] { (void)compressor.report(); },
           [&] { compressor.discard_step(); }, [&] { compressor.rescale(1.0f); }, [&] { (void)compressor.state(); },
           [&] { compressor.restore({}); }, [&] { (void)compressor.part_compressor(); },
           [&] { (void)std::as_const(compressor).part_compressor(); }, [&] { (void)compressor.part(); },
           [&] { (void)compressor.layers(); }, [&] { (void)compressor.recipe(); }, [&] { (void)compressor.passing(); },
           [&] { (void)compressor.describe(); }})
    CHECK(contains(ending(call), "this compressor was moved from"));
  moved.exchange(alone, update);
}

// ---- Around a step ---------------------------------------------------------------------------------------------

TEST_CASE("two levels: saved and restored, discarded and rescaled") {
  shape const of{2, 3};
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}};
  auto const said = run(of, [&](pair const& ranks) {
    gs::two_level_compressor straight{one_thread, mixed_layers(), recipe, ranks};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto update = gradient(n, ranks.rank(), step);
      straight.exchange(ranks, update);
    }
    gs::two_level_compressor restored{one_thread, mixed_layers(), recipe, ranks};
    restored.restore(straight.state());
    auto a = gradient(n, ranks.rank(), 3);
    auto b = a;
    straight.exchange(ranks, a);
    restored.exchange(ranks, b);
    if (!same_bits(a, b)) throw gs::mismatch("restored to something else");

    gs::two_level_compressor elsewhere{
        one_thread, mixed_layers(), recipe,
        gs::two_level{ranks.inside, ranks.across}};  // the next place's state is not this one's
    std::vector<std::byte> mine = straight.state();
    if (straight.part().size() == gs::node_share{n, of.ranks, 1}.size()) {
      gs::layout const other = gs::node_share{n, of.ranks, (ranks.inside.rank() + 1) % of.ranks}.cut(mixed_layers());
      gs::compressor there{one_thread, other, recipe};
      if (!has(ending([&] { there.restore(mine); }), "mismatch")) throw gs::invalid_argument("took another part");
    }

    straight.discard_step();
    double const norm = straight.part_compressor().residual_norm();
    straight.rescale(2.0f);
    if (std::fabs(straight.part_compressor().residual_norm() - 2 * norm) > 1e-6 * norm)
      throw gs::invalid_argument("not rescaled");
  });
  CHECK(text(said) == "");
}

TEST_CASE("two levels: a warm step allocates nothing") {
  for (auto const& layers : {mixed_layers(), even_layers()}) {
    std::size_t counted = 0;
    auto const said = run({2, 2}, [&](pair const& ranks) {
      gs::two_level_compressor compressor{one_thread, layers, gs::recipe{.density = 0.03}, ranks};
      auto const n = layers.size();
      std::vector<float> values = gradient(n, ranks.rank(), 0);
      std::vector<gs::bfloat16> halves(n);
      float go = 1;
      auto const together = [&] {
        ranks.inside.all_reduce(one_thread, std::span{&go, 1}, gs::reduction::max);
        ranks.across.all_reduce(one_thread, std::span{&go, 1}, gs::reduction::max);
        ranks.inside.all_reduce(one_thread, std::span{&go, 1}, gs::reduction::max);
      };
      for (int i = 0; i < 2; ++i) {
        compressor.exchange(ranks, values);
        compressor.exchange(ranks, halves);
      }
      together();
      auto const before = allocations.load();
      for (int i = 0; i < 3; ++i) {
        compressor.exchange(ranks, values);
        compressor.exchange(ranks, halves);
      }
      together();
      if (ranks.rank() == 0) counted = allocations.load() - before;
      together();
    });
    CHECK(text(said) == "");
    CHECK(counted == 0);
  }
}

namespace {

/// Says that it is this rank of so many; its collectives do nothing.
struct impossible {
  int number;
  int ranks;
  int rank() const { return number; }
  int size() const { return ranks; }
  template <class T>
  void all_reduce(gs::host const&, std::span<T>, gs::reduction) const {}
  void all_gather(gs::host const&, std::span<std::byte const>, std::span<std::byte>) const {}
  void all_gather(gs::host const&, std::span<std::byte const>, std::span<std::byte>,
                  std::span<std::size_t const>) const {}
};

}  // namespace

TEST_CASE("a communicator with a rank that is none of its ranks is refused") {
  auto const layers = gs::layout::flat(10);
  auto const recipe = gs::recipe{.density = 0.1};
  for (auto const& wrong : {impossible{0, 0}, impossible{0, -3}, impossible{-1, 2}, impossible{2, 2}}) {
    auto const said = "invalid_argument: gradsieve: communicator: rank " + std::to_string(wrong.number) + " of " +
                      std::to_string(wrong.ranks);
    auto reducer = gs::compressor{gs::host{}, layers, recipe};
    std::vector<float> gradient(10, 1.0f);
    CHECK(ending([&] { reducer.exchange(wrong, gradient); }) == said);
    CHECK(ending([&] { reducer.connect(wrong); }) == said);
    CHECK(ending([&] { gs::dense_mean{}.exchange(wrong, gradient); }) == said);
    CHECK(gradient == std::vector<float>(10, 1.0f));
    auto const node = gs::two_level{wrong, gs::self{}};
    CHECK(ending([&] { gs::two_level_compressor{gs::host{}, layers, recipe, node}; }) == said);
  }
}
