// The exchange `leader` on a device: the host's bits whoever leads, also where the leader changes in a graph.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

auto laplace(int rank, std::uint64_t step) { return steps::gradient(n, rank, step); }

/// Until everybody has led twice, and one more.
template <class T = float, class Recipe>
void two_rounds(Recipe const& recipe, int ranks) {
  CAPTURE(ranks);
  same_on_ranks<T>(recipe, layers, ranks, 2 * static_cast<std::uint64_t>(ranks) + 1, laplace);
}

auto cyclic(double density) { return gs::recipe{.density = density, .partitioner = gs::cyclic{}}; }

auto cyclic_without_passthrough(double density) {
  return gs::recipe{.density = density, .partitioner = gs::cyclic{}, .passthrough = {.patterns = {}, .up_to = 0}};
}

}  // namespace

namespace of_a_user {

/// As layerwise, but most layers are one rank's to select from, and the ranks take turns.
struct relay {
  using default_exchange = gs::gather;
  static constexpr gs::partitioner_traits traits{.rotates = true};

  void split(std::span<gs::range const> from, int world, gs::segment_list& list) const {
    gs::layerwise{}.split(from, world, list);
  }
  void assign(std::span<gs::segment> segments, std::span<double const> norms, gs::step_budget const budget,
              gs::partition_scratch& scratch) const {
    gs::layerwise{}.assign(segments, norms, budget, scratch);
    auto const turn = budget.step % static_cast<std::uint64_t>(budget.world);
    for (std::size_t i = 0; i < segments.size(); ++i)
      segments[i].owner = i == 1 ? gs::segment::every_rank : static_cast<int>((i + turn) % steps::at(budget.world));
  }

  friend bool operator==(relay const&, relay const&) = default;
};
static_assert(gs::partitioner<relay>);

}  // namespace of_a_user

namespace on_the_way {

// ---- What may happen to a list on its way ------------------------------------------------------------------

enum class harm { none, swapped, repeated, too_large, gap, vote };

/// A communicator that damages the lists' maximum on its way to one rank, when it is told to.
struct damaging {
  static constexpr bool stream_ordered = true;
  gs::staged<steps::communicator> real;
  harm const* armed;
  int victim;

  [[nodiscard]] int rank() const { return real.rank(); }
  [[nodiscard]] int size() const { return real.size(); }
  template <class... Sizes>
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
  template <class T>
  void all_reduce(gs::device const& where, std::span<T> in_out, gs::reduction how) const {
    real.all_reduce(where, in_out, how);
    if constexpr (std::is_same_v<T, std::uint32_t>)
      if (victim == rank() && *armed != harm::none) harm_list(where, in_out);
  }
  void harm_list(gs::device const& where, std::span<std::uint32_t> all) const {
    auto list = fetched(where, all.data(), all.size());
    std::size_t last = 0;
    while (list[last + 1] != 0) ++last;
    if (*armed == harm::swapped) std::swap(list[0], list[1]);
    if (*armed == harm::repeated) list[last] = list[last - 1];
    if (*armed == harm::too_large) list[last] = static_cast<std::uint32_t>(n + 1);
    if (*armed == harm::gap) list[last - 1] = 0;
    if (*armed == harm::vote) list[list.size() - 6] ^= 4;
    where.copy(std::as_bytes(std::span{list}), std::as_writable_bytes(all));
    where.synchronize();
  }
};

// ---- Two ranks, one of which is a tape ---------------------------------------------------------------------

/// Keeps what this rank brings to its all-reduces.
struct recording {
  static constexpr bool stream_ordered = true;
  gs::staged<steps::communicator> real;
  std::vector<std::byte>* tape;

  [[nodiscard]] int rank() const { return real.rank(); }
  [[nodiscard]] int size() const { return real.size(); }
  template <class... Sizes>
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  Sizes const&... sizes) const {
    real.all_gather(where, mine, all, sizes...);
  }
  template <class T>
  void all_reduce(gs::device const& where, std::span<T> in_out, gs::reduction how) const {
    auto const own = std::as_bytes(in_out);
    auto const bytes = fetched(where, own.data(), own.size());
    tape->insert(tape->end(), bytes.begin(), bytes.end());
    real.all_reduce(where, in_out, how);
  }
};

template <class T>
__global__ void play(std::byte const* tape, std::uint64_t bytes_of_step, std::uint64_t const* step, T* in_out,
                     std::uint64_t count, bool sum) {
  auto const* const other = reinterpret_cast<T const*>(tape + *step * bytes_of_step);
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x)
    in_out[i] = sum ? in_out[i] + other[i] : gs::larger(in_out[i], other[i]);
}

__global__ void turn_tape(std::uint64_t* step) { ++*step; }

/// One of two ranks; the other's part is on tape, a stretch of equal length for each step. All of it in stream order.
struct playing {
  static constexpr bool stream_ordered = true;
  int own_rank;
  std::byte const* tape;
  std::uint64_t bytes_of_step;
  std::uint64_t* step;  // on the device
  std::uint64_t* at;    // in the stretch

  [[nodiscard]] int rank() const { return own_rank; }
  [[nodiscard]] int size() const { return 2; }
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    for (std::size_t r = 0; r < 2; ++r) where.copy(mine, all.subspan(r * mine.size(), mine.size()));
  }
  void all_gather(gs::device const&, std::span<std::byte const>, std::span<std::byte>,
                  std::span<std::size_t const>) const {}
  template <class T>
  void all_reduce(gs::device const& where, std::span<T> in_out, gs::reduction how) const {
    play<T><<<1, 128, 0, where.stream>>>(tape + *at, bytes_of_step, step, in_out.data(), in_out.size(),
                                         how == gs::reduction::sum);
    *at += in_out.size_bytes();
  }
};

}  // namespace on_the_way

using namespace on_the_way;

TEST_CASE("the host's bits on 1 to 4 ranks, with every rank as the leader") {
  for (int const ranks : {1, 2, 3, 4}) {
    two_rounds(cyclic(0.03), ranks);
    two_rounds(cyclic_without_passthrough(0.03), ranks);
  }
  two_rounds<gs::bfloat16>(cyclic(0.03), 2);
}

TEST_CASE("other selectors and residuals") {
  auto const exact = gs::recipe{
      .density = 0.03, .selector = gs::laplacian{.count = gs::count_mode::exact}, .partitioner = gs::cyclic{}};
  auto const filtered =
      gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = 0.3f}};
  auto const corrected =
      gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .residual = gs::momentum_correction{}};
  for (int const ranks : {1, 2, 3, 4}) {
    two_rounds(exact, ranks);
    two_rounds(filtered, ranks);
    two_rounds(corrected, ranks);
  }
}

TEST_CASE("a user's partitioner with several segments, of which one is everybody's") {
  auto const relay = gs::recipe{.density = 0.03, .partitioner = of_a_user::relay{}};
  for (int const ranks : {1, 3}) two_rounds(relay, ranks);
}

TEST_CASE("densities: nothing, everything, and one that changes") {
  two_rounds(cyclic(0), 2);
  two_rounds(cyclic(1), 2);
  auto const ramp =
      gs::recipe{.density = gs::warm_up{.initial = 1.0, .final = 0.01, .steps = 3}, .partitioner = gs::cyclic{}};
  two_rounds(ramp, 3);
}

TEST_CASE("a leader that has nothing to send, and an entry that is alone") {
  auto const make = [](int rank, std::uint64_t step) {
    std::vector<float> values(n);
    if (step % 3 != 0) values[17 * step] = static_cast<float>(rank) - 1;  // zero on rank 1, which leads in step 1
    return values;
  };
  same_on_ranks(cyclic(0.03), layers, 3, 7, make);
}

TEST_CASE("a graph in which the leader changes") {
  constexpr std::uint64_t count = 6;
  auto const recipe = cyclic(0.03);
  std::vector<std::byte> tapes[2];
  std::vector<std::vector<float>> updates(count);
  std::vector<gs::index_type> selected[2];
  std::vector<float> states[2];
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::compressor host{gs::host{}, layers, recipe};
    gs::compressor device{where, layers, recipe};
    array<float> const gradient{where, n};
    for (std::uint64_t step = 0; step < count; ++step) {
      auto expected = laplace(comm.rank(), step);
      gradient.put(expected);
      selected[comm.rank()].push_back(host.exchange(comm, std::span{expected}).selected);
      device.exchange(recording{gs::staged{comm}, &tapes[comm.rank()]}, gradient.span());
      found.expect(steps::same_bits(gradient.get(), expected), "update");
      if (comm.rank() == 0) updates[step] = expected;
    }
    states[comm.rank()] = steps::states_of(host);
    return found.text();
  });
  for (auto const& each : said) REQUIRE(each == "");
  for (int const rank : {0, 1}) {
    CAPTURE(rank);
    stream const own;
    poisoned_memory memory;
    gs::device const where{own, &memory};
    auto const& other = tapes[1 - rank];
    REQUIRE(other.size() % count == 0);
    array<std::byte> const tape{where, other};
    array<std::uint64_t> const turns{where, std::vector<std::uint64_t>{0}};
    std::uint64_t at = 0;
    playing const comm{rank, tape.span().data(), other.size() / count, turns.span().data(), &at};
    gs::compressor device{where, layers, recipe};
    array<float> const gradient{where, n};
    auto const call = [&] {
      at = 0;
      device.exchange(comm, gradient.span());
      turn_tape<<<1, 1, 0, own>>>(turns.span().data());
    };
    auto const step = [&](std::uint64_t now, auto const& run) {
      CAPTURE(now);
      gradient.put(laplace(rank, now));
      run();
      CHECK(steps::same_bits(gradient.get(), updates[now]));
      CHECK(device.report().get().selected == selected[rank][now]);
      CHECK((selected[rank][now] > 0) == (now % 2 == static_cast<std::uint64_t>(rank)));
    };
    step(0, call);
    auto const before = memory.allocations;
    graph const captured{own, call};
    for (std::uint64_t now = 1; now < 5; ++now) step(now, [&] { captured.launch(); });
    step(5, call);  // and without the graph again
    CHECK(memory.allocations == before);
    CHECK(steps::same_bits(steps::states_of(device), states[rank]));
  }
}

TEST_CASE("a list damaged on its way to one rank: all fail, nothing is given up, and the next step works") {
  auto const check = [](auto const& recipe) {
    for (harm const how : {harm::swapped, harm::repeated, harm::too_large, harm::gap, harm::vote}) {
      CAPTURE(static_cast<int>(how));
      auto const said = steps::on_ranks(3, [&](steps::communicator real) {
        steps::findings found;
        stream const own;
        gs::device const where{own};
        harm armed = harm::none;
        damaging const comm{gs::staged{real}, &armed, 2};
        gs::compressor device{where, layers, recipe};
        array<float> const gradient{where, laplace(comm.rank(), 0)};
        device.exchange(comm, gradient.span());
        auto entered = fetched(where, device.residual().data(), n);
        auto const g = laplace(comm.rank(), 1);
        for (std::size_t i = 0; i < n; ++i) entered[i] += g[i];
        gradient.put(g);
        armed = how;
        auto const report = device.exchange(comm, gradient.span());
        armed = harm::none;
        auto const ends = steps::ending([&] { static_cast<void>(report.get()); });
        found.expect(
            steps::contains(ends, comm.rank() != 2    ? "communication_error: gradsieve: a message was damaged"
                                  : how == harm::vote ? "mismatch: gradsieve: ranks differ in which rank selects"
                                                      : "corrupt_message: gradsieve: message indices of rank "
                                                        "1 are out of order or out of range"),
            "said " + ends);
        found.expect(steps::same_bits(fetched(where, device.residual().data(), n), entered), "something was given up");
        gradient.put(std::vector<float>(n));
        auto const again = device.exchange(comm, gradient.span()).get();  // rank 2 leads
        found.expect(again.union_size > 100 && (again.selected > 0) == (comm.rank() == 2), "the next step");
        auto const sent = gradient.get();
        found.expect(std::ranges::any_of(sent, [](float x) { return x != 0; }), "nothing was sent");
        return found.text();
      });
      for (auto const& each : said) CHECK(each == "");
    }
  };
  check(cyclic(0.03));
  check(cyclic_without_passthrough(0.03));
}

TEST_CASE("several ranks that select, or ranks in different steps: a mismatch on all") {
  auto const whole = gs::recipe{.density = 0.03, .partitioner = steps::unsaid<gs::whole>{}, .exchange = gs::leader{}};
  same_on_ranks(whole, layers, 1, 2, laplace);
  auto const both = steps::on_ranks(3, [&](steps::communicator comm) {
    gs::device const where{};
    gs::compressor device{where, layers, whole};
    array<float> const gradient{where, laplace(comm.rank(), 0)};
    auto const ends =
        steps::ending([&] { static_cast<void>(device.exchange(gs::staged{comm}, gradient.span()).get()); });
    return steps::same_bits(fetched(where, device.residual().data(), n), laplace(comm.rank(), 0)) ? ends : "changed";
  });
  for (auto const& each : both) CHECK(steps::contains(each, "mismatch: gradsieve: several ranks selected"));
  auto const late = steps::on_ranks(2, [&](steps::communicator comm) {
    gs::device const where{};
    gs::compressor device{where, layers, cyclic(0.03)};
    array<float> const gradient{where, laplace(comm.rank(), 0)};
    device.exchange(gs::staged{comm}, gradient.span());
    if (comm.rank() == 1) device.compress(gradient.span());
    return steps::ending([&] { static_cast<void>(device.exchange(gs::staged{comm}, gradient.span()).get()); });
  });
  for (auto const& each : late) CHECK(steps::contains(each, "mismatch: gradsieve: ranks differ in which rank selects"));
}

TEST_CASE("compress() selects in every step, as the only rank of its world") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::compressor host{gs::host{}, layers, cyclic(0.03)};
    gs::compressor device{where, layers, cyclic(0.03)};
    array<float> const gradient{where, n};
    for (std::uint64_t step = 0; step < 8; ++step) {
      auto values = laplace(comm.rank(), step);
      gradient.put(values);
      if (step % 4 < 2) {
        entries const expected{host.compress(values)};
        entries const got{where, device.compress(gradient.span())};
        found.expect(got == expected && got.indices.size() > 100, "entries");
      } else {
        host.exchange(comm, std::span{values});
        device.exchange(gs::staged{comm}, gradient.span());
        found.expect(steps::same_bits(gradient.get(), values), "update");
      }
    }
    found.expect(steps::same_bits(steps::states_of(device), steps::states_of(host)), "states");
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}

TEST_CASE("after a restart, in a world of another size as well, the next rank leads") {
  std::vector<std::byte> saved[3];
  auto const run = [&](int ranks, std::uint64_t from, std::uint64_t to) {
    auto const said = steps::on_ranks(ranks, [&](steps::communicator comm) {
      steps::findings found;
      stream const own;
      gs::device const where{own};
      auto& mine = saved[comm.rank()];
      gs::compressor host{gs::host{}, layers, cyclic(0.03)};
      gs::compressor device{where, layers, cyclic(0.03)};
      if (from > 0) {
        host.restore(mine);
        device.restore(mine);
      }
      array<float> const gradient{where, n};
      for (auto step = from; step < to; ++step) {
        auto expected = laplace(comm.rank(), step);
        gradient.put(expected);
        host.exchange(comm, std::span{expected});
        auto const report = device.exchange(gs::staged{comm}, gradient.span()).get();
        found.expect(steps::same_bits(gradient.get(), expected), "update of step " + std::to_string(step));
        bool const leads = step % static_cast<std::uint64_t>(ranks) == static_cast<std::uint64_t>(comm.rank());
        found.expect((report.selected > 0) == leads, "another rank led");
      }
      mine = device.state();
      found.expect(steps::same_bits(steps::states_of(device), steps::states_of(host)), "states");
      return found.text();
    });
    for (auto const& each : said) CHECK(each == "");
  };
  run(2, 0, 3);
  run(2, 3, 5);
  saved[2] = saved[0];
  run(3, 5, 9);
}
