// One rank selects for all: what the partitioner cyclic and the exchange leader promise together.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
gs::host const here{.threads = 1};

/// What a rank does to a broadcast on its way to it.
enum class harm { none, swapped, repeated, too_large };

/// A communicator that damages the indices of a broadcast on their way to one rank, when it is told to.
struct damaging : forwarding {
  harm const* armed;
  int victim;

  void broadcast(gs::host const& where, std::span<std::byte> in_out, int root) const {
    real.broadcast(where, in_out, root);
    if (victim != rank()) return;
    auto const last = in_out.last(sizeof(gs::index_type));
    if (*armed == harm::swapped) std::swap_ranges(in_out.begin(), in_out.begin() + 4, in_out.begin() + 4);
    if (*armed == harm::repeated) std::copy_n(in_out.end() - 8, 4, last.begin());
    if (*armed == harm::too_large) gs::wire::store_one(last, static_cast<gs::index_type>(mixed_layers().size()));
  }
};
static_assert(gs::has_broadcast<damaging, gs::host>);

/// The places where a vector is not zero.
std::vector<gs::index_type> places(std::span<float const> values) {
  std::vector<gs::index_type> found;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) found.push_back(static_cast<gs::index_type>(i));
  return found;
}

}  // namespace

TEST_CASE("the leader's top-k, every rank's values, their mean; and the leader changes") {
  constexpr std::uint64_t n = 5000;
  auto const k = gs::budget_of(0.01, n);
  for (int const world : {1, 2, 3, 5}) {
    CAPTURE(world);
    std::vector<std::vector<std::vector<float>>> accumulators(8, std::vector<std::vector<float>>(at(world)));
    std::vector<std::vector<float>> updates(8);
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, gs::layout::flat(n), gs::recipe{.density = 0.01, .partitioner = gs::cyclic{}}};
      for (std::uint64_t step = 0; step < 8; ++step) {
        auto update = gradient(n, comm.rank(), step);
        auto accumulator = residual_of(compressor);
        for (std::size_t i = 0; i < n; ++i) accumulator[i] += update[i];
        accumulators[step][at(comm.rank())] = accumulator;
        auto const it = compressor.exchange(comm, std::span{update});
        bool const leads = step % at(world) == at(comm.rank());
        found.expect(it.selected == (leads ? k : 0), "another rank than step % world selected");
        found.expect(it.budget == k && it.union_size == k && it.build_up() == 1, "budget and union are not k");
        for (std::size_t i = 0; i < n; ++i)
          found.expect(compressor.residual()[i] == (update[i] != 0 ? 0.0f : accumulator[i]),
                       "the residual did not give up exactly what was sent");
        if (comm.rank() == 0) updates[step] = update;
      }
      return found.text();
    });
    CHECK(joined(said) == "");
    for (std::uint64_t step = 0; step < 8; ++step) {
      CAPTURE(step);
      auto const& leads = accumulators[step][step % at(world)];
      std::vector<gs::index_type> order(n);
      for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<gs::index_type>(i);
      std::sort(order.begin(), order.end(), [&](auto a, auto b) {  // ties go to the smaller index
        return std::pair{-gs::abs(leads[a]), a} < std::pair{-gs::abs(leads[b]), b};
      });
      order.resize(k);
      std::sort(order.begin(), order.end());
      CHECK(places(updates[step]) == order);
      bool mean = true;
      for (auto const i : order) {
        float sum = accumulators[step][0][i];
        for (std::size_t r = 1; r < at(world); ++r) sum += accumulators[step][r][i];
        mean = mean && updates[step][i] == sum / static_cast<float>(world);
      }
      CHECK(mean);
    }
  }
}

TEST_CASE("chunked with cyclic, as ScaleCom's chunk-wise rule: the leader's largest of every chunk") {
  constexpr std::uint64_t n = 40 * 128;
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::recipe const recipe{.density = 2.0 / 128, .selector = gs::chunked{.size = 128}, .partitioner = gs::cyclic{}};
    gs::compressor compressor{here, gs::layout::flat(n), recipe};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(n, comm.rank(), step);
      auto accumulator = residual_of(compressor);
      for (std::size_t i = 0; i < n; ++i) accumulator[i] += update[i];
      auto const it = compressor.exchange(comm, std::span{update});
      bool const leads = step % 3 == at(comm.rank());
      found.expect(it.selected == (leads ? n / 64 : 0), "another rank than step % world selected");
      if (!leads) continue;
      std::vector<gs::index_type> expected;
      for (std::size_t c = 0; c < n; c += 128) {
        std::vector<gs::index_type> order(128);
        for (std::size_t i = 0; i < 128; ++i) order[i] = static_cast<gs::index_type>(c + i);
        std::ranges::sort(order, {}, [&](auto i) { return std::pair{-gs::abs(accumulator[i]), i}; });
        expected.insert(expected.end(), order.begin(), order.begin() + 2);
      }
      std::ranges::sort(expected);
      found.expect(places(update) == expected, "other places than the largest of every chunk");
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("bytes of a worker stay the same as workers are added; with gather they grow") {
  // of each world: bytes of a step through the communicator, sent and received together, least and most of all ranks
  // and steps
  auto const bytes = [&](int world, std::vector<float> const& g, auto const& recipe) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranks(at(world), {~std::uint64_t{0}, 0});
    gs::threads::run(world, [&](communicator comm) {
      auto& [least, most] = ranks[at(comm.rank())];
      gs::compressor compressor{here, gs::layout::flat(g.size()), recipe};
      compressor.connect(comm);
      for (int step = 0; step < 3; ++step) {
        traffic moved;
        auto update = g;
        compressor.exchange(counting{{comm}, &moved}, std::span{update});
        least = std::min(least, moved.sent + moved.received);
        most = std::max(most, moved.sent + moved.received);
      }
    });
    std::pair<std::uint64_t, std::uint64_t> all = ranks[0];
    for (auto const& each : ranks) all = {std::min(all.first, each.first), std::max(all.second, each.second)};
    return all;
  };
  auto const many = gradient(200'000, 0, 0);  // of few entries, 32 bytes a rank would be more than 1 %
  auto const few = gradient(4000, 0, 0);
  auto const k = [](double density, std::vector<float> const& g) {
    return std::uint64_t{gs::budget_of(density, g.size())};
  };
  gs::recipe const one{.density = 0.1, .partitioner = gs::cyclic{}};
  gs::recipe const all{.density = 0.01};
  auto const with_two = static_cast<double>(bytes(2, many, one).second);
  CHECK(with_two == 12.0 * static_cast<double>(k(0.1, many)) + 2 * 32 + 2 * 4);
  for (int const world : {2, 4, 8, 16, 32, 64}) {
    CAPTURE(world);
    auto const [least, most] = bytes(world, many, one);
    CHECK(static_cast<double>(least) >= 0.99 * with_two);
    CHECK(static_cast<double>(most) <= 1.01 * with_two);
    CHECK(bytes(world, few, all).first == static_cast<std::uint64_t>(world) * (32 + 48 + 8 * k(0.01, few)));
  }
}

TEST_CASE("indices and values count as what they are: the leader sends its indices, the others receive them") {
  constexpr std::uint64_t n = 1000;
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, gs::layout{{"w", n}, {"bias", 7}},
                              gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}}};
    for (int step = 0; step < 3; ++step) {
      auto update = gradient(n + 7, comm.rank(), 0);
      auto const it = compressor.exchange(comm, std::span{update});
      bool const leads = step == comm.rank();
      auto const words = step == 0 ? 2u * 32 : 32;
      found.expect(it.bytes_sent == words + 4 * (20 * (leads ? 2u : 1u) + 1) + 4 * (7 + 1), "sent");
      found.expect(it.bytes_received == 2 * words + 4 * (20 * (leads ? 1u : 2u) + 1) + 4 * (7 + 1), "received");
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

// ---- Failures ----------------------------------------------------------------------------------------------

TEST_CASE("a leader whose selector throws: all throw, nothing is given up, and the next step works") {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, mixed_layers(),
                              gs::recipe{.density = 0.02, .selector = fails_on_demand{}, .partitioner = gs::cyclic{}}};
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto const leader = static_cast<int>(compressor.step() % 3);
      auto const before = residual_of(compressor);
      auto const g = gradient(n, comm.rank(), step);
      auto update = g;
      bool const fails = step % 2 == 1;
      failing = fails;  // on every rank, but only the leader selects
      auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
      failing = false;
      if (!fails) {
        found.expect(how.empty(), "said " + how);
        found.expect(!places(update).empty(), "nothing was sent");
        continue;
      }
      found.expect(contains(how, comm.rank() == leader ? "exception: this selector fails"
                                                       : "communication_error: gradsieve: rank " +
                                                             std::to_string(leader) + " failed in this step"),
                   "said " + how);
      found.expect(same_bits(update, g), "a gradient changed in a step that failed");
      for (std::size_t i = 0; i < n; ++i)
        found.expect(compressor.residual()[i] == before[i] + g[i], "the residual gave something up");
    }
    found.expect(compressor.step() == 3, "steps that failed count");
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("indices damaged on their way to one rank: all throw, nothing is given up, and the next step works") {
  auto const n = mixed_layers().size();
  auto const check = [&](gs::passthrough_layers const& passthrough) {
    for (harm const how : {harm::swapped, harm::repeated, harm::too_large}) {
      CAPTURE(static_cast<int>(how));
      auto const said = on_ranks(3, [&](communicator real) {
        findings found;
        harm armed = harm::none;
        damaging const comm{{real}, &armed, 2};
        gs::compressor compressor{here, mixed_layers(),
                                  gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}, .passthrough = passthrough}};
        auto update = gradient(n, comm.rank(), 0);
        compressor.exchange(comm, std::span{update});
        auto const before = residual_of(compressor);
        auto const g = gradient(n, comm.rank(), 1);
        update = g;
        armed = how;
        auto const ends = ending([&] { compressor.exchange(comm, std::span{update}); });
        armed = harm::none;
        found.expect(
            contains(ends, comm.rank() == 2
                               ? "corrupt_message: gradsieve: rank 1's indices arrived out of order or out of range"
                               : "communication_error: gradsieve: the leader's indices were damaged"),
            "said " + ends);
        found.expect(same_bits(update, g), "the gradient changed");
        for (std::size_t i = 0; i < n; ++i)
          found.expect(compressor.residual()[i] == before[i] + g[i], "the residual gave something up");
        auto const again = ending([&] { compressor.exchange(comm, std::span{update}); });
        found.expect(again.empty(), "the next step said " + again);
        return found.text();
      });
      CHECK(joined(said) == "");
    }
  };
  check({});
  check({.patterns = {}});  // nothing is all-reduced but the leader's values
}

TEST_CASE("several ranks that select are a mismatch on all") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto const& recipe, std::string const& expected) {
    auto const said = on_ranks(3, [&](communicator comm) {
      gs::compressor compressor{here, mixed_layers(), recipe};
      auto update = gradient(n, comm.rank(), 0);
      auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
      auto entered = gradient(n, comm.rank(), 0);
      return same_bits(residual_of(compressor), entered) && same_bits(update, entered) ? how : "something changed";
    });
    for (auto const& each : said) CHECK(contains(each, expected));
  };
  check(gs::recipe{.density = 0.02, .partitioner = unsaid<gs::whole>{}, .exchange = gs::leader{}},
        "mismatch: gradsieve: rank 0 and rank 1 both selected; the exchange leader is for one rank's choice");
  check(gs::recipe{.density = 0.02, .partitioner = unsaid<gs::deft>{}, .exchange = gs::leader{}}, "both selected");
  gs::compressor alone{here, mixed_layers(),
                       gs::recipe{.density = 0.02, .partitioner = unsaid<gs::whole>{}, .exchange = gs::leader{}}};
  auto update = gradient(n, 0, 0);
  CHECK(ending([&] { alone.exchange(gs::self{}, std::span{update}); }) == "");
}

TEST_CASE("ranks that disagree on the step, and so on the leader: a mismatch on all") {
  auto const said = on_ranks(2, [&](communicator comm) {
    gs::compressor compressor{here, gs::layout::flat(120), gs::recipe{.density = 0.1, .partitioner = gs::cyclic{}}};
    std::vector<float> update(120, 1.0f);
    compressor.exchange(comm, std::span{update});
    if (comm.rank() == 1) compressor.compress(std::span<float const>{update});
    std::vector<float> more(120, 1.0f);
    return ending([&] { compressor.exchange(comm, std::span{more}); });
  });
  CHECK(said[0] == "mismatch: gradsieve: rank 1 and rank 0 differ in step: 2; and 1");
  CHECK(said[1] == said[0]);
}

// ---- Nothing to send ---------------------------------------------------------------------------------------

TEST_CASE("a leader that has nothing to send: nothing is sent, nothing is lost, and the next leader goes on") {
  auto const layers = gs::layout{{"w", 200}, {"bias", 3}};
  for (bool const poisoned : {false, true}) {
    CAPTURE(poisoned);
    auto const said = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, layers, gs::recipe{.density = 0.1, .partitioner = gs::cyclic{}}};
      auto g = gradient(203, comm.rank(), 0);
      if (comm.rank() == 0) std::fill_n(g.begin(), 200, poisoned ? not_a_number : 0.0f);
      auto update = g;
      auto it = compressor.exchange(comm, std::span{update});
      found.expect(places(std::span{update}.first(200)).empty(), "something was sent");
      found.expect(!places(std::span{update}.last(3)).empty(), "the layer that passes through was held up");
      found.expect(it.selected == 0 && it.union_size == 0 && it.build_up() == 0, "the report speaks of entries");
      found.expect(it.bytes_sent == 64 + 16 && it.bytes_received == 64 + 16, "the report speaks of entries' bytes");
      for (std::size_t i = 0; i < 200; ++i)
        found.expect(compressor.residual()[i] == (comm.rank() == 0 ? 0.0f : g[i]), "something was lost");
      update = gradient(203, comm.rank(), 1);
      it = compressor.exchange(comm, std::span{update});
      found.expect(places(std::span{update}.first(200)).size() == 20, "the next leader sent nothing");
      found.expect((it.selected == 20) == (comm.rank() == 1), "another rank led");
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

TEST_CASE("more ranks than entries, density 0, density 1, no elements") {
  auto const said = on_ranks(8, [&](communicator comm) {
    findings found;
    auto const exchanged = [&](gs::layout const& layers, double density, std::vector<float> update) {
      gs::compressor compressor{here, layers, gs::recipe{.density = density, .partitioner = gs::cyclic{}}};
      std::vector<std::vector<float>> updates;
      for (int step = 0; step < 9; ++step) {
        updates.push_back(update);
        auto const it = compressor.exchange(comm, std::span{updates.back()});
        found.expect(it.union_size + it.passthrough_elements == places(updates.back()).size(),
                     "the report speaks of other entries");
      }
      return updates;
    };
    std::vector<float> const ones(3, 1.0f);
    // one of three elements in each step: the first, until the others have more
    auto const sparse = exchanged(gs::layout::flat(3), 0.3, ones);
    found.expect(sparse[0] == std::vector{1.0f, 0.0f, 0.0f}, "the first step");
    found.expect(sparse[1] == std::vector{0.0f, 2.0f, 0.0f}, "the second step");
    found.expect(sparse[8] == std::vector{0.0f, 0.0f, 3.0f}, "the ninth step");
    for (auto const& each : exchanged(gs::layout::flat(3), 0.0, ones))
      found.expect(each == std::vector<float>(3), "density 0 sent something");
    for (auto const& each : exchanged(gs::layout::flat(3), 1.0, ones))
      found.expect(each == ones, "density 1 is not the dense mean");
    exchanged(gs::layout{}, 0.5, {});
    exchanged(gs::layout{{"a", 0}, {"b", 0}}, 0.5, {});
    return found.text();
  });
  CHECK(joined(said) == "");
}

// ---- Around a step -----------------------------------------------------------------------------------------

TEST_CASE("discard_step() gives back on every rank what the leader chose") {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}}};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto const before = residual_of(compressor);
      auto const g = gradient(n, comm.rank(), step);
      auto update = g;
      compressor.exchange(comm, std::span{update});
      compressor.discard_step();
      for (std::size_t i = 0; i < n; ++i)
        found.expect(compressor.residual()[i] == before[i] + g[i],
                     "not the accumulator of step " + std::to_string(step));
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("after a restart the leader is the one of an undisturbed world") {
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}};
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor straight{here, mixed_layers(), recipe};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto update = gradient(n, comm.rank(), step);
      straight.exchange(comm, std::span{update});
    }
    gs::compressor restored{here, mixed_layers(), recipe};
    restored.restore(straight.state());
    for (std::uint64_t step = 4; step < 9; ++step) {
      auto a = gradient(n, comm.rank(), step);
      auto b = a;
      auto const one = straight.exchange(comm, std::span{a});
      auto const two = restored.exchange(comm, std::span{b});
      found.expect(same_bits(a, b), "updates differ");
      found.expect((one.selected > 0) == (step % 3 == at(comm.rank())), "another rank led");
      found.expect(one.selected == two.selected && two.step == step, "reports differ");
    }
    found.expect(straight.state() == restored.state(), "states differ");
    return found.text();
  });
  CHECK(joined(said) == "");
}

TEST_CASE("in a world of another size all agree on the leader at once") {
  auto const n = mixed_layers().size();
  auto const recipe = gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}};
  std::vector<std::vector<std::byte>> saved(3);
  gs::threads::run(3, [&](communicator comm) {
    gs::compressor compressor{here, mixed_layers(), recipe};
    for (std::uint64_t step = 0; step < 5; ++step) {
      auto update = gradient(n, comm.rank(), step);
      compressor.exchange(comm, std::span{update});
    }
    saved[at(comm.rank())] = compressor.state();
  });
  for (int const world : {2, 4}) {  // a rank left; one joined, which starts from the step that the others are in
    CAPTURE(world);
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      compressor.restore(saved[at(comm.rank()) % 3]);
      for (std::uint64_t step = 5; step < 10; ++step) {
        auto update = gradient(n, comm.rank(), step);
        auto const it = compressor.exchange(comm, std::span{update});
        found.expect((it.selected > 0) == (step % at(world) == at(comm.rank())), "another rank led");
        found.expect(it.union_size == it.budget, "the update has not k entries");
      }
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

TEST_CASE("compress() selects in every step, also after exchanges in a larger world") {
  auto const n = mixed_layers().size();
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}}};
    auto update = gradient(n, comm.rank(), 0);
    compressor.exchange(comm, std::span{update});
    for (std::uint64_t step = 1; step < 4; ++step)
      found.expect(!compressor.compress(std::span<float const>{gradient(n, comm.rank(), step)}).indices.empty(),
                   "compress() selected nothing in step " + std::to_string(step));
    update = gradient(n, comm.rank(), 4);
    auto const it = compressor.exchange(comm, std::span{update});
    found.expect((it.selected > 0) == (comm.rank() == 1), "another rank led in step 4");
    return found.text();
  });
  CHECK(joined(said) == "");
}
