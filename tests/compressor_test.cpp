// What a compressor promises around its steps: reports, failures, ways back, allocations, peers without communicator.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>

#include "allocations.hpp"
#include "steps.hpp"

using namespace steps;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest = std::numeric_limits<float>::max();

gs::host const here{.threads = 1};

std::vector<double> sum_over_ranks(communicator comm, std::span<float const> values) {
  std::vector<double> sums(values.begin(), values.end());
  comm.all_reduce(here, std::span{sums}, gs::reduction::sum);
  return sums;
}

/// One segment a layer, of which the last are missing when it throws.
struct moody : gs::layerwise {
  static inline bool fails = false;
  void split(std::span<gs::range const> ranges, int world, gs::segment_list& list) const {
    gs::layerwise::split(fails ? ranges.first(1) : ranges, world, list);
    if (fails) throw std::runtime_error{"in a bad mood"};
  }
};

/// Steps of one compressor: how many allocations those after the first two made. The counter is the process's:
/// with threads, barriers keep every rank inside or outside of the counted part.
template <class Recipe>
std::uint64_t allocations_of(Recipe const& recipe, int world) {
  std::atomic<std::uint64_t> made{0};
  gs::threads::run(world, [&](communicator comm) {
    auto const n = mixed_layers().size();
    gs::compressor compressor{here, mixed_layers(), recipe};
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t s = 0; s < 12; ++s) gradients.push_back(gradient(n, comm.rank(), s));
    int meet = 0;
    for (std::size_t s = 0; s < 2; ++s) compressor.exchange(comm, std::span{gradients[s]});
    comm.all_reduce(here, std::span{&meet, 1}, gs::reduction::sum);
    auto const before = allocations.load();
    comm.all_reduce(here, std::span{&meet, 1}, gs::reduction::sum);
    for (std::size_t s = 2; s < 12; ++s) {
      compressor.exchange(comm, std::span{gradients[s]});
      if (s == 6) compressor.discard_step();
      if (s == 7) compressor.rescale(0.5f);
      if (s == 8 && compressor.residual_norm() < 0) return;
    }
    comm.all_reduce(here, std::span{&meet, 1}, gs::reduction::sum);
    if (comm.rank() == 0) made = allocations.load() - before;
    comm.all_reduce(here, std::span{&meet, 1}, gs::reduction::sum);
  });
  return made;
}

}  // namespace

TEST_CASE("steps allocate nothing") {
  SUBCASE("the counter counts") { CHECK(allocations_are_counted()); }
  SUBCASE("compress, encode, apply") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .selector = gs::laplacian{}}};
    gs::averager averager{here, mixed_layers()};
    auto const n = mixed_layers().size();
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t s = 0; s < 12; ++s) gradients.push_back(gradient(n, 0, s));
    std::vector<float> update(n);
    auto const one_step = [&](std::size_t s) {
      auto const message = compressor.encode(compressor.compress(std::span<float const>{gradients[s]}));
      averager.apply(std::span{&message, 1}, std::span{update});
    };
    auto const first = allocations.load();
    compressor.compress(std::span<float const>{gradients[0]});
    CHECK(allocations.load() == first);  // not even the first
    one_step(1);
    auto const before = allocations.load();
    for (std::size_t s = 2; s < 12; ++s) one_step(s);
    CHECK(allocations.load() == before);
  }
  SUBCASE("exchange, alone") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .partitioner = gs::deft{}}};
    auto const n = mixed_layers().size();
    std::vector<std::vector<float>> gradients;
    for (std::uint64_t s = 0; s < 12; ++s) gradients.push_back(gradient(n, 0, s));
    compressor.exchange(gs::self{}, std::span{gradients[0]});
    auto const before = allocations.load();
    for (std::size_t s = 1; s < 12; ++s) compressor.exchange(gs::self{}, std::span{gradients[s]});
    CHECK(allocations.load() == before);
  }
  SUBCASE("exchange, threads") {
    for (int const world : {1, 3}) {
      CHECK(allocations_of(gs::recipe{.density = 0.02}, world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.02, .exchange = gs::reduce_scatter{}}, world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.02, .selector = gs::laplacian{}, .partitioner = gs::deft{}},
                           world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.02,
                                      .selector = gs::hierarchical{},
                                      .partitioner = gs::layerwise{},
                                      .residual = gs::momentum_correction{.clip = 1.0f},
                                      .exchange = gs::index_union{}},
                           world) == 0);
      CHECK(allocations_of(
                gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = 0.5f}},
                world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.02, .codec = gs::packed{.values = gs::ternary{}}}, world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.02, .selector = gs::chunked{.size = 500}, .codec = gs::binned{}},
                           world) == 0);
      CHECK(allocations_of(gs::recipe{.density = 0.5, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}},
                           world) == 0);
      // the density falls, from layers sent in full to a few entries
      CHECK(allocations_of(gs::recipe{.density = gs::warm_up{.initial = 1.0, .final = 0.01, .steps = 8, .stages = 4},
                                      .partitioner = gs::deft{},
                                      .on_non_finite = gs::non_finite::fail},
                           world) == 0);
    }
  }
}

// ---- Reports -----------------------------------------------------------------------------------------------

TEST_CASE("a report's bytes are those that went through the communicator, all of them") {
  auto const check = [](auto const& recipe) {
    for (int const world : {1, 2, 5}) {
      CAPTURE(world);
      auto const said = on_ranks(world, [&](communicator comm) {
        findings found;
        gs::compressor compressor{gs::host{.threads = 1}, mixed_layers(), recipe};
        compressor.connect(comm);
        for (std::uint64_t step = 0; step < 3; ++step) {
          auto update = gradient(mixed_layers().size(), comm.rank(), step);
          traffic moved;
          auto const it = compressor.exchange(counting{{comm}, &moved}, std::span{update});
          found.expect(it.bytes_sent == moved.sent, "sent");
          found.expect(it.bytes_received == moved.received, "received");
        }
        return found.text();
      });
      CHECK(joined(said) == "");
    }
  };
  check(gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 1.0});
  check(gs::recipe{.density = 0.02, .passthrough = {.patterns = {}}, .on_non_finite = gs::non_finite::fail});
  check(gs::recipe{.density = 0.02, .on_non_finite = gs::non_finite::fail});
  check(gs::recipe{.density = 0.02, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.02, .exchange = gs::reduce_scatter{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}});
  check(gs::recipe{.density = 0.5,
                   .selector = gs::adacomp{},
                   .partitioner = gs::layerwise{},
                   .codec = gs::packed{.values = gs::ternary{}}});
}

TEST_CASE("memory: what bins may keep is reserved once, not for every thread") {
  if (sanitized) return;  // nothing is counted there
  constexpr std::uint64_t n = 2'000'000;
  auto const bytes = [](auto const& recipe, int threads) {
    auto const before = allocated_bytes.load();
    gs::compressor const made{gs::host{.threads = threads}, gs::layout{{"fc", n}}, recipe};
    return allocated_bytes.load() - before;
  };
  auto const radix = gs::recipe{.density = 0.01};
  auto const chunked = gs::recipe{.density = 0.01, .selector = gs::chunked{}};
  auto const adacomp = gs::recipe{.density = 0.01, .selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
  auto const bins = [](std::uint64_t threads) {
    return 9 * n + threads * 20 * 8192;
  };  // a list, marks; scratch a thread
  CHECK(bytes(radix, 1) >= 4 * n);
  for (int const threads : {1, 3, 16, 64}) {
    CAPTURE(threads);
    auto const most = bytes(radix, threads) + bins(static_cast<std::uint64_t>(threads));
    CHECK(bytes(chunked, threads) < most);
    CHECK(bytes(adacomp, threads) < most);
  }
}

TEST_CASE("values that a format or a sum cannot hold are clamped, counted, and kept") {
  auto const layers = gs::layout{{"w", 100}, {"bias", 2}};
  auto const balance = [&]<class T>(T, auto const& recipe, float large, int world) {
    float const most = gs::largest_value<T>;
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, layers, recipe};
      std::vector<T> update(102);
      std::uint64_t saturated = 0;
      std::array<double, 2> in{};
      std::array<double, 2> out{};
      auto const one_step = [&] {
        saturated += compressor.exchange(comm, std::span{update}).saturated;
        for (T const x : update) found.expect(gs::is_finite(gs::to_float(x)), "the update is not finite");
        out[0] += static_cast<double>(gs::to_float(update[3]));
        out[1] += static_cast<double>(gs::to_float(update[100]));
      };
      for (int step = 0; step < 6; ++step) {
        std::ranges::fill(update, T{});
        if (step == 0) update[5] = gs::from_float<T>(1.01f * large);  // goes first, so that the other one grows
        if (step < 2) {
          update[3] = gs::from_float<T>(large);
          update[100] = gs::from_float<T>(-large);
          in[0] += static_cast<double>(large);
          in[1] -= static_cast<double>(large);
        }
        one_step();
      }
      auto const left = compressor.residual();
      for (std::size_t i = 0; i < 2; ++i) {
        auto const waits = static_cast<double>(left[i == 0 ? 3 : 100]);
        found.expect(std::abs(in[i] - out[i] - waits) <= (sizeof(T) == 2 ? 1e-2 : 1e-5) * std::abs(in[i]),
                     "mass was lost at " + std::to_string(i));
      }
      found.expect(saturated > 0, "nothing was counted");
      found.expect(std::abs(out[0]) <= 6 * static_cast<double>(most), "more than fits was sent");
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  gs::recipe const gathered{.density = 0.01};
  gs::recipe const united{.density = 0.01, .exchange = gs::index_union{}};
  gs::recipe const led{.density = 0.01, .partitioner = gs::cyclic{}};
  gs::recipe const as_fp16{.density = 0.01, .codec = gs::packed{.values = gs::fp16{}}};
  SUBCASE("float16 gradients, whose residual grows beyond what a float16 can hold") {
    for (int const world : {1, 3}) {
      balance(gs::float16{}, gathered, 60000.0f, world);
      balance(gs::float16{}, united, 60000.0f, world);
      balance(gs::float16{}, led, 60000.0f, world);
    }
  }
  SUBCASE("a codec that holds less than the gradient") { balance(0.0f, as_fp16, 90000.0f, 2); }
  SUBCASE("a codec whose rounding leads beyond what the gradient can hold") {
    gs::packed const bf16{.values = gs::bf16{}};
    for (int const world : {1, 2, 3}) {
      balance(gs::float16{}, gs::recipe{.density = 0.01, .codec = bf16}, 65504.0f, world);
      balance(gs::float16{}, gs::recipe{.density = 0.01, .codec = bf16, .exchange = gs::index_union{}}, 65504.0f,
              world);
      balance(gs::float16{}, gs::recipe{.density = 0.01, .partitioner = gs::cyclic{}, .codec = bf16}, 65504.0f, world);
    }
  }
  SUBCASE("sums of floats and of bfloat16 over the ranks") {
    float const huge = 0.45f * largest;
    for (auto const world : {3, 4, 10, 18}) {  // of 10 and 18 shares of the largest float the rounded sum is infinite
      balance(0.0f, united, huge, world);
      balance(0.0f, led, huge, world);
      balance(gs::bfloat16{}, united, huge, world);
    }
  }
}

TEST_CASE("as many summands as ranks have a finite sum, in any order") {
  for (int ranks = 1; ranks <= 1500; ++ranks) {
    float const each = gs::detail::largest_summand(ranks);
    float in_turn = 0;
    for (int r = 0; r < ranks; ++r) in_turn += each;
    std::vector<float> tree(at(ranks), each);
    for (std::size_t left = tree.size(); left > 1; left = (left + 1) / 2)
      for (std::size_t i = 0; i < left / 2; ++i) tree[i] = i == left - 1 - i ? tree[i] : tree[i] + tree[left - 1 - i];
    CHECK_MESSAGE(gs::is_finite(in_turn), ranks);
    CHECK_MESSAGE(gs::is_finite(tree[0]), ranks);
    CHECK_MESSAGE(static_cast<double>(each) * ranks > 0.999 * static_cast<double>(largest), ranks);
  }
}

TEST_CASE("filtered with a codec that sends more than an element has stays finite, and can be saved") {
  gs::recipe const recipe{
      .density = 0.5, .residual = gs::filtered{.beta = 0.1f}, .codec = gs::packed{.values = gs::ternary{}}};
  gs::compressor compressor{here, gs::layout::flat(64), recipe};
  for (int step = 0; step < 6; ++step) {
    std::vector<float> update(64);
    for (std::size_t i = 0; i < 64; ++i) update[i] = (i % 3 == 0 ? -1.0f : 1.0f) * (i % 2 == 0 ? 3e38f : 1e37f);
    if (step % 2 == 1)
      for (float& x : update) x = -x;
    compressor.exchange(gs::self{}, std::span{update});
    for (float const x : states_of(compressor)) CHECK(gs::is_finite(x));
  }
  auto const saved = compressor.state();
  CHECK(ending([&] { compressor.restore(saved); }) == "");
}

TEST_CASE("a report says what the step did") {
  auto const layers = mixed_layers();
  auto const n = layers.size();
  auto const passthrough = std::uint64_t{16 + 40 + 8};
  constexpr std::uint64_t word = 32;  // what a rank says before it sends; twice in the first step
  auto const k = gs::budget_of(0.02, n - passthrough);
  auto const non_negative = [](gs::step_report const& it) {
    auto const& s = it.seconds;
    return s.accumulate >= 0 && s.partition >= 0 && s.select >= 0 && s.exchange >= 0 && s.apply >= 0 &&
           s.total() < 100 && s.total() > 0;
  };
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor compressor{here, layers, gs::recipe{.density = 0.02}};
    for (std::uint64_t step = 0; step < 3; ++step) {
      auto update = gradient(n, comm.rank(), step);
      auto const it = compressor.exchange(comm, std::span{update});
      found.expect(it.step == step && it.world == 3, "step, world");
      found.expect(it.budget == k && it.selected == k, "budget, selected");
      found.expect(it.capacity >= k && it.capacity <= k + 1, "capacity");
      found.expect(it.passthrough_elements == passthrough, "passthrough elements");
      std::uint64_t nonzero = 0;
      for (std::size_t l = 0; l < layers.count(); ++l)
        if (!contains(layers[l].name, "bias") && !contains(layers[l].name, "norm"))
          nonzero += data::count_nonzero(std::span{update}.subspan(layers.offset(l), layers[l].size));
      found.expect(it.union_size == nonzero, "union size");
      found.expect(it.build_up() == static_cast<double>(nonzero) / static_cast<double>(k), "build-up");
      auto const words = step == 0 ? 2 * word : word;
      found.expect(it.bytes_sent == words + 48 + 8 * k + 4 * (passthrough + 1), "bytes sent");
      found.expect(it.bytes_received == 2 * (words + 48 + 8 * k) + 4 * (passthrough + 1), "bytes received");
      found.expect(it.baseline_bytes == 4 * n, "bytes of a dense all-reduce");
      found.expect(it.non_finite == 0, "non-finite");
      found.expect(non_negative(it), "seconds");
    }
    return found.text();
  });
  CHECK(joined(said) == "");

  SUBCASE("half precision counts its own bytes") {
    gs::compressor compressor{here, layers, gs::recipe{.density = 0.02}};
    std::vector<gs::float16> half(n);
    CHECK(compressor.exchange(gs::self{}, std::span{half}).baseline_bytes == 2 * n);
  }
  SUBCASE("index union counts lists and values") {
    auto const lists = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, layers, gs::recipe{.density = 0.02, .exchange = gs::index_union{}}};
      auto update = gradient(n, comm.rank(), 0);
      auto const it = compressor.exchange(comm, std::span{update});
      found.expect(it.bytes_sent == 2 * word + 4 * (k + it.union_size + passthrough + 1), "bytes sent");
      found.expect(it.bytes_received == 2 * word + 4 * (k + it.union_size + passthrough + 1), "bytes received");
      return found.text();
    });
    CHECK(joined(lists) == "");
  }
  SUBCASE("compress") {
    gs::compressor compressor{here, layers, gs::recipe{.density = 0.02}};
    auto const message = compressor.encode(compressor.compress(std::span<float const>{gradient(n, 0, 0)}));
    auto const& it = compressor.report();
    CHECK(it.step == 0);
    CHECK(it.world == 1);
    CHECK(it.selected == k);
    CHECK(it.union_size == k);
    CHECK(it.build_up() == 1.0);
    CHECK(it.bytes_sent == message.size());
    CHECK(message.size() == 48 + 8 * k + 4 * passthrough);
    CHECK(it.baseline_bytes == 4 * n);
    CHECK(non_negative(it));
    CHECK(gs::step_report{}.build_up() == 0.0);
  }
}

// ---- Gradients that are not finite -------------------------------------------------------------------------

namespace {

/// Some elements that are not finite, in a step after another one.
template <class T, class Recipe>
void check_non_finite(Recipe const& recipe) {
  std::vector<std::uint64_t> const bad{
      0, 63, 64, 1499, 1500 /* a bias */, 1516 /* of size 1 */, 4095, 4096, mixed_layers().size() - 1};
  auto const n = mixed_layers().size();
  gs::compressor compressor{here, mixed_layers(), recipe};
  auto const first = data::as<T>(gradient(n, 0, 0));
  compressor.compress(std::span<T const>{first});
  auto const before = states_of(compressor);
  auto wanted = gradient(n, 0, 1);
  for (std::size_t i = 0; i < bad.size(); ++i)
    wanted[bad[i]] = i % 3 == 0 ? not_a_number : i % 3 == 1 ? infinity : -infinity;
  auto const second = data::as<T>(wanted);
  auto const sent = compressor.compress(std::span<T const>{second});
  auto const after = states_of(compressor);
  auto const all_finite = [](std::span<float const> values) {
    return std::all_of(values.begin(), values.end(), [](float x) { return gs::is_finite(x); });
  };
  CHECK(compressor.report().non_finite == bad.size());
  CHECK(all_finite(after));
  CHECK(all_finite(sent.values));
  CHECK(all_finite(sent.passthrough));
  CHECK(sent.indices.size() == gs::budget_of(0.02, n - 64));
  constexpr std::size_t states = decltype(Recipe::residual)::states;
  for (auto const i : bad) {  // a gradient of zero: the old residual, or what its momentum adds to it
    gs::element_state<states> state{};
    for (std::size_t s = 0; s < states; ++s) state[s] = before[s * n + i];
    recipe.residual.accumulate_element(0.0f, state);
    bool const was_sent = i == 1500 || std::find(sent.indices.begin(), sent.indices.end(), i) != sent.indices.end();
    CHECK(after[i] == (was_sent ? 0.0f : state[0]));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("what is not finite stays out of the residual, and is counted", T, float, gs::float16,
                   gs::bfloat16) {
  check_non_finite<T>(gs::recipe{.density = 0.02});
  check_non_finite<T>(gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}});
  check_non_finite<T>(gs::recipe{.density = 0.02, .residual = gs::momentum_correction{.clip = 10.0f}});
}

TEST_CASE("sums that overflow") {
  auto const layers = gs::layout{{"w", 100}, {"bias", 2}};
  SUBCASE("in the residual: the element keeps what it had") {
    gs::compressor compressor{here, layers, gs::recipe{.density = 0.01}};
    std::vector<float> huge(102);
    huge[3] = largest;
    huge[7] = 0.75f * largest;
    CHECK(compressor.compress(std::span<float const>{huge}).indices[0] == 3);
    huge[3] = 0;  // 7 waits with 0.75 of the largest number; as much again is too much
    huge[5] = largest;
    CHECK(compressor.compress(std::span<float const>{huge}).indices[0] == 5);
    CHECK(compressor.report().non_finite == 1);
    CHECK(compressor.residual()[7] == 0.75f * largest);
    CHECK(gs::is_finite(static_cast<float>(compressor.residual_norm())));
  }
  SUBCASE(
      "of the ranks: the mean is finite where no index is, else a share that fits, and discard_step() takes it back") {
    auto const said = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, layers, gs::recipe{.density = 0.01}};
      std::vector<float> huge(102);
      huge[3] = largest;
      huge[100] = -largest;
      auto const it = compressor.exchange(comm, std::span{huge});
      found.expect(huge[3] == largest, "the mean of two equal numbers");
      found.expect(huge[100] == -largest / 2, "what is summed by the communicator is clamped to a share that fits");
      found.expect(it.saturated == 1, "the clamping is counted");
      found.expect(compressor.residual()[3] == 0 && compressor.residual()[100] == -largest / 2, "the rest stays");
      compressor.discard_step();
      found.expect(compressor.residual()[3] == largest && compressor.residual()[100] == -largest,
                   "what was sent is back");
      compressor.rescale(0.25f);
      std::vector<float> none(102);
      compressor.exchange(comm, std::span{none});
      found.expect(none[3] == 0.25f * largest && none[100] == -0.25f * largest, "scaled down it fits");
      return found.text();
    });
    CHECK(joined(said) == "");
  }
}

TEST_CASE("non_finite::fail throws on every rank and leaves every compressor as it was") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    recipe.on_non_finite = gs::non_finite::fail;
    auto const said = on_ranks(3, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      auto update = gradient(n, comm.rank(), 0);
      compressor.exchange(comm, std::span{update});
      auto const before = compressor.state();
      auto poisoned = gradient(n, comm.rank(), 1);
      if (comm.rank() == 1) poisoned[17] = not_a_number;
      if (comm.rank() == 2) poisoned[18] = infinity;
      auto const as_given = poisoned;
      auto const how = ending([&] { compressor.exchange(comm, std::span{poisoned}); });
      found.expect(contains(how, "non_finite_gradient: gradsieve: 2 gradient elements are NaN or infinite"),
                   "said " + how);
      found.expect(compressor.state() == before, "a compressor changed");
      found.expect(same_bits(poisoned, as_given), "a gradient changed");
      compressor.discard_step();  // there is none to discard
      found.expect(compressor.state() == before, "discard_step() took back an older step");
      auto next = gradient(n, comm.rank(), 2);
      found.expect(compressor.exchange(comm, std::span{next}).step == 1, "the next step is not the second");
      return found.text();
    });
    CHECK(joined(said) == "");

    gs::compressor alone{here, mixed_layers(), recipe};
    auto poisoned = gradient(n, 0, 0);
    alone.compress(std::span<float const>{poisoned});
    auto const before = alone.state();
    poisoned[4] = not_a_number;
    CHECK(contains(ending([&] { alone.compress(std::span<float const>{poisoned}); }),
                   "1 gradient elements are NaN or infinite"));
    CHECK(alone.state() == before);
    alone.discard_step();
    CHECK(alone.state() == before);
  };
  check(gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}, .residual = gs::momentum_correction{.clip = 1.0f}});
}

TEST_CASE("momentum_correction's clip is a limit of the averaged gradient, whatever the number of ranks") {
  constexpr std::size_t n = 1600;
  // Ranks whose gradients are orthogonal and of norm `norm`: their mean has the norm `norm` / sqrt(world).
  auto const norm_of_mean = [&](int world, float norm, float clip) {
    double found = 0;
    gs::threads::run(world, [&](gs::threads::communicator_ref comm) {
      gs::recipe const recipe{.density = 1, .residual = gs::momentum_correction{.clip = clip}};
      gs::compressor compressor{here, gs::layout::flat(n), recipe};
      std::size_t const share = n / static_cast<std::size_t>(world);
      std::vector<float> update(n);
      std::fill_n(update.begin() + static_cast<std::ptrdiff_t>(share) * comm.rank(), share,
                  norm / std::sqrt(static_cast<float>(share)));
      compressor.exchange(comm, std::span{update});
      if (comm.rank() != 0) return;
      for (float const x : update) found += static_cast<double>(x) * static_cast<double>(x);
    });
    return std::sqrt(found);
  };
  for (int const world : {1, 4, 16}) {
    CAPTURE(world);
    double const unclipped = 1 / std::sqrt(static_cast<double>(world));
    CHECK(norm_of_mean(world, 1, 0) / unclipped == doctest::Approx(1).epsilon(1e-4));
    CHECK(norm_of_mean(world, 1, 1) / unclipped == doctest::Approx(1).epsilon(1e-4));  // below the limit: as it is
    CHECK(norm_of_mean(world, 100, 1) == doctest::Approx(1).epsilon(1e-4));            // above it: the limit
    CHECK(norm_of_mean(world, 100, 0.25f) == doctest::Approx(0.25).epsilon(1e-4));
  }
  // compress() counts as one rank, whatever the compressor did before
  gs::threads::run(4, [&](gs::threads::communicator_ref comm) {
    gs::recipe const recipe{.density = 1, .residual = gs::momentum_correction{.clip = 1}};
    gs::compressor compressor{here, gs::layout::flat(n), recipe};
    std::vector<float> update(n);
    compressor.exchange(comm, std::span{update});
    std::ranges::fill(update, 1.0f);
    double found = 0;
    for (float const x : compressor.compress(update).values) found += static_cast<double>(x) * static_cast<double>(x);
    if (std::fabs(std::sqrt(found) - 1) > 1e-4) throw std::logic_error("another norm: " + std::to_string(found));
  });
}

// ---- One rank fails ----------------------------------------------------------------------------------------

TEST_CASE("a selector that throws on one rank") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe, std::string const& elsewhere) {
    auto const said = on_ranks(3, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      std::vector<double> in(n);
      std::vector<double> applied(n);
      for (std::uint64_t step = 0; step < 6; ++step) {
        auto const g = gradient(n, comm.rank(), step);
        for (std::size_t i = 0; i < n; ++i) in[i] += static_cast<double>(g[i]);
        auto update = g;
        failing = step % 2 == 1 && comm.rank() == 1;
        auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
        failing = false;
        if (step % 2 == 0) {
          found.expect(how.empty(), "step " + std::to_string(step) + " said " + how);
          for (std::size_t i = 0; i < n; ++i) applied[i] += static_cast<double>(update[i]);
        } else {
          found.expect(contains(how, comm.rank() == 1 ? "exception: this selector fails" : elsewhere), "said " + how);
          found.expect(same_bits(update, g), "a gradient changed in a step that failed");
        }
      }
      found.expect(compressor.step() == 3, "steps that failed count");
      auto const held = sum_over_ranks(comm, compressor.residual());
      comm.all_reduce(here, std::span{in}, gs::reduction::sum);
      for (std::size_t i = 0; i < n; ++i)
        found.expect(std::fabs(in[i] - 3 * applied[i] - held[i]) < 1e-4, "mass was lost at " + std::to_string(i));
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  check(gs::recipe{.density = 0.02, .selector = fails_on_demand{}},
        "communication_error: gradsieve: rank 1 failed in this step; nothing was sent");
  check(gs::recipe{.density = 0.02, .selector = fails_on_demand{}, .exchange = gs::index_union{}},
        "communication_error: gradsieve: rank 1 failed");
  check(gs::recipe{.density = 0.02, .selector = fails_on_demand{}, .partitioner = gs::deft{}},
        "communication_error: gradsieve: rank 1 failed");
}

TEST_CASE("a selector that throws in compress") {
  auto const n = mixed_layers().size();
  gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .selector = fails_on_demand{}}};
  auto const g = gradient(n, 0, 0);
  auto const sent = compressor.compress(std::span<float const>{g});
  auto const before = residual_of(compressor);
  failing = true;
  CHECK(contains(ending([&] { compressor.compress(std::span<float const>{g}); }), "this selector fails"));
  failing = false;
  auto const after = residual_of(compressor);
  bool entered = true;
  for (std::size_t i = 0; i < n; ++i) entered = entered && after[i] == before[i] + g[i];
  CHECK(entered);
  CHECK(contains(ending([&] { (void)compressor.encode(sent); }), "encode() needs a compress() that succeeded"));
}

TEST_CASE("a gradient of another size on one rank") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    auto const said = on_ranks(3, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      std::vector<double> in(n);
      std::vector<double> applied(n);
      for (std::uint64_t step = 0; step < 5; ++step) {
        bool const wrong = step % 2 == 1;
        auto update = gradient(n, comm.rank(), step);
        if (wrong && comm.rank() == 2) update.pop_back();
        auto const before = compressor.state();
        bool const enters = !wrong || comm.rank() != 2;
        for (std::size_t i = 0; enters && i < n; ++i) in[i] += static_cast<double>(update[i]);
        auto const how = ending([&] { compressor.exchange(comm, std::span{update}); });
        if (!wrong) {
          found.expect(how.empty(), "said " + how);
          for (std::size_t i = 0; i < n; ++i) applied[i] += static_cast<double>(update[i]);
        } else if (comm.rank() == 2) {
          found.expect(how == "invalid_argument: gradsieve: gradient has " + std::to_string(n - 1) +
                                  " elements, the layout has " + std::to_string(n),
                       "said " + how);
          found.expect(compressor.state() == before, "a compressor changed that was given a wrong size");
          compressor.discard_step();
          found.expect(compressor.state() == before, "discard_step() took back an older step");
        } else {
          found.expect(contains(how, "communication_error: gradsieve: ") && contains(how, "failed in this step"),
                       "said " + how);
        }
      }
      auto const held = sum_over_ranks(comm, compressor.residual());
      comm.all_reduce(here, std::span{in}, gs::reduction::sum);
      for (std::size_t i = 0; i < n; ++i)
        found.expect(std::fabs(in[i] - 3 * applied[i] - held[i]) < 1e-4, "mass was lost at " + std::to_string(i));
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  check(gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 0.02, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}});
  check(gs::recipe{
      .density = 0.02, .partitioner = gs::deft{}, .exchange = gs::gather{}, .on_non_finite = gs::non_finite::fail});
  check(gs::recipe{.density = 1.0, .partitioner = gs::layerwise{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}});
}

TEST_CASE("a rank that is restored or constructed again while the others go on") {
  auto const check = [&](auto const& recipe, int world) {
    for (int odd = 0; odd < world; ++odd)
      for (std::uint64_t const own_step : {0u, 1u, 3u}) {
        CAPTURE(odd);
        CAPTURE(own_step);
        auto const said = on_ranks(world, [&](communicator comm) { return rejoin(comm, recipe, odd, 3, own_step); });
        for (auto const& each : said) CHECK(each == said[0]);
        std::string const mine = own_step == 0 ? "0, made anew" : "1, restored from a checkpoint";
        std::string const first = "mismatch: gradsieve: rank " + std::to_string(odd == 0 ? 1 : odd);
        CHECK(said[0] == (own_step == 3 ? ""
                          : odd == 0    ? first + " and rank 0 differ in step: 3; and " + mine
                                        : first + " and rank 0 differ in step: " + mine + "; and 3"));
      }
  };
  check(gs::recipe{.density = 0.02}, 3);
  check(gs::recipe{.density = 0.02, .exchange = gs::index_union{}}, 2);
  check(gs::recipe{.density = 0.02, .exchange = gs::reduce_scatter{}}, 3);
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}}, 3);
  check(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}}, 3);
  check(gs::recipe{.density = 0.02, .partitioner = gs::deft{}, .on_non_finite = gs::non_finite::fail}, 2);
}

TEST_CASE("more ranks than a word is kept for without memory") {
  auto const said = on_ranks(40, [&](communicator comm) {
    gs::compressor compressor{here, gs::layout::flat(100), gs::recipe{.density = 0.1}};
    std::vector<float> update(100, 1.0f);
    for (int step = 0; step < 2; ++step) compressor.exchange(comm, std::span{update});
    return std::string{};
  });
  CHECK(joined(said) == "");
}

// ---- Ways back ---------------------------------------------------------------------------------------------

TEST_CASE("a partitioner that throws leaves no half of a plan") {
  auto const layers = mixed_layers();
  auto const n = layers.size();
  gs::recipe<gs::radix, moody> recipe{};
  recipe.density = 0.05;
  gs::compressor compressor{here, layers, recipe};
  gs::compressor spared{here, layers, recipe};
  for (auto* each : {&compressor, &spared}) each->compress(gradient(n, 0, 0));
  auto update = gradient(n, 0, 1);
  moody::fails = true;
  CHECK(ending([&] { compressor.connect(gs::self{}); }) == "exception: in a bad mood");
  CHECK(ending([&] { compressor.exchange(gs::self{}, update); }) == "exception: in a bad mood");
  CHECK(update == gradient(n, 0, 1));
  CHECK(ending([&] { compressor.compress(update); }) == "exception: in a bad mood");
  CHECK(ending([&] { compressor.exchange(gs::self{}, update); }) == "exception: in a bad mood");
  moody::fails = false;
  CHECK(compressor.state() == spared.state());
  SUBCASE("for compress()") {
    auto const sent = compressor.compress(update);
    auto const expected = spared.compress(update);
    CHECK(std::equal(sent.indices.begin(), sent.indices.end(), expected.indices.begin(), expected.indices.end()));
    CHECK(!sent.indices.empty());
  }
  SUBCASE("for exchange()") {
    auto same = update;
    CHECK(compressor.exchange(gs::self{}, update).selected == spared.exchange(gs::self{}, same).selected);
    CHECK(same_bits(update, same));
  }
  CHECK(compressor.state() == spared.state());
}

TEST_CASE("discard_step() restores bit for bit, and again changes nothing") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    auto const said = on_ranks(3, [&](communicator comm) {
      findings found;
      gs::compressor compressor{here, mixed_layers(), recipe};
      auto const policy = recipe.residual;
      constexpr auto states = decltype(policy)::states;
      for (std::uint64_t step = 0; step < 6; ++step) {
        auto const before = states_of(compressor);
        auto const g = gradient(n, comm.rank(), step);
        auto update = g;
        compressor.exchange(comm, std::span{update});
        if (step % 2 == 0) continue;
        compressor.discard_step();
        auto entered = before;
        for (std::size_t i = 0; i < n; ++i) {
          gs::element_state<states> state{};
          for (std::size_t s = 0; s < states; ++s) state[s] = before[s * n + i];
          policy.accumulate_element(g[i], state);
          for (std::size_t s = 0; s < states; ++s) entered[s * n + i] = state[s];
        }
        found.expect(same_bits(states_of(compressor), entered), "not the accumulator of step " + std::to_string(step));
        compressor.discard_step();
        found.expect(same_bits(states_of(compressor), entered), "a second call changed something");
      }
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  check(gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 0.02, .partitioner = gs::layerwise{}, .residual = gs::momentum_correction{}});
  check(gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}, .exchange = gs::reduce_scatter{}});
  check(gs::recipe{
      .density = 0.02, .selector = gs::laplacian{}, .partitioner = gs::deft{}, .residual = gs::momentum_correction{}});
  check(gs::recipe{.density = 1.0, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.02, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = 0.5f}});

  SUBCASE("compress") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02}};
    auto const g = gradient(n, 0, 0);
    compressor.compress(std::span<float const>{g});
    compressor.discard_step();
    CHECK(residual_of(compressor) == g);
  }
  SUBCASE("scaled, if the residual was scaled in between") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}}};
    gs::compressor twin{here, mixed_layers(), gs::recipe{.density = 0.02, .residual = gs::momentum_correction{}}};
    auto const g = gradient(n, 0, 0);
    for (auto* each : {&compressor, &twin}) each->compress(std::span<float const>{g});
    compressor.rescale(0.5f);
    compressor.discard_step();
    twin.discard_step();
    twin.rescale(0.5f);
    CHECK(states_of(compressor) == states_of(twin));
  }
  SUBCASE("not across absorb and restore: what they made stays") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02}};
    auto const g = gradient(n, 0, 0);
    auto const saved = compressor.state();
    compressor.compress(std::span<float const>{g});
    compressor.restore(saved);
    compressor.discard_step();
    CHECK(compressor.state() == saved);

    compressor.compress(std::span<float const>{g});
    compressor.absorb(compressor.state());
    auto const absorbed = compressor.state();
    compressor.discard_step();
    CHECK(compressor.state() == absorbed);
  }
  SUBCASE("nor into another world") {
    gs::compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.02, .exchange = gs::index_union{}}};
    auto g = gradient(n, 0, 0);
    compressor.exchange(gs::self{}, std::span{g});
    auto const before = compressor.state();
    compressor.connect(gs::self{});
    compressor.discard_step();
    CHECK(compressor.state() == before);
  }
}

TEST_CASE("what was sent leaves with the next step or when somebody looks: all the same") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    auto const said = on_ranks(2, [&](communicator comm) {
      findings found;
      gs::compressor watched{gs::host{2}, mixed_layers(), recipe};
      gs::compressor alone{gs::host{3}, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 12; ++step) {
        auto seen = gradient(n, comm.rank(), step);
        auto unseen = seen;
        watched.exchange(comm, std::span{seen});
        alone.exchange(comm, std::span{unseen});
        found.expect(same_bits(seen, unseen), "another update in step " + std::to_string(step));
        for (int looks = 0; looks < 2; ++looks) found.expect(watched.residual().size() == n, "no residual");
        if (step % 4 == 2)
          for (auto* each : {&watched, &alone}) each->discard_step();
        if (step % 4 == 3)
          for (auto* each : {&watched, &alone}) each->rescale(0.75f);
      }
      found.expect(same_bits(states_of(watched), states_of(alone)), "another residual");
      return found.text();
    });
    CHECK(joined(said) == "");
  };
  check(gs::recipe{.density = 0.1});
  check(gs::recipe{.density = 0.02, .selector = gs::laplacian{}, .partitioner = gs::layerwise{}});
  check(gs::recipe{.density = 0.1, .selector = gs::hierarchical{}, .residual = gs::momentum_correction{}});
  check(gs::recipe{.density = 0.1, .residual = gs::error_feedback{.decay = 0.5f}, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.05, .partitioner = gs::deft{}, .residual = gs::momentum_correction{}});
  check(gs::recipe{.density = 1.0, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.05, .partitioner = gs::cyclic{}, .residual = gs::filtered{.beta = 0.5f}});
  check(gs::recipe{.density = 0.1, .selector = above_mean{}, .on_non_finite = gs::non_finite::fail});
}

TEST_CASE("rescale and residual_norm") {
  auto const layers = gs::layout{{"w", 4}};
  gs::compressor compressor{here, layers, gs::recipe{.density = 0.0, .residual = gs::momentum_correction{}}};
  CHECK(compressor.residual_norm() == 0.0);
  compressor.compress(std::span<float const>{std::vector{3.0f, -4.0f, 0.75f * largest, 0.0f}});
  compressor.rescale(0.5f);
  CHECK(states_of(compressor) == std::vector{1.5f, -2.0f, 0.375f * largest, 0.0f, 1.5f, -2.0f, 0.375f * largest, 0.0f});
  compressor.rescale(4.0f);  // too much for one element
  CHECK(residual_of(compressor) == std::vector{6.0f, -8.0f, 0.375f * largest, 0.0f});
  auto const before = compressor.state();
  CHECK(contains(ending([&] { compressor.rescale(not_a_number); }),
                 "invalid_argument: gradsieve: rescale factor is not finite"));
  CHECK(contains(ending([&] { compressor.rescale(-infinity); }), "not finite"));
  CHECK(compressor.state() == before);
  compressor.rescale(0.0f);
  CHECK(compressor.residual_norm() == 0.0);

  gs::compressor small{here, layers, gs::recipe{.density = 0.0}};
  small.compress(std::span<float const>{std::vector{3.0f, -4.0f, 0.0f, 12.0f}});
  CHECK(small.residual_norm() == 13.0);
}

TEST_CASE("residual_norm over the gradient's norm, as RUNNING.md has it: for noise, and for gradients that stay") {
  auto const n = std::uint64_t{10'000};
  auto const ratio = [&](bool noise) {
    gs::compressor compressor{here, gs::layout::flat(n), gs::recipe{.density = 0.01}};
    double squares = 0;
    for (std::uint64_t step = 0; step < 300; ++step) {
      auto const g = gradient(n, 0, noise ? step : 0);
      squares = 0;
      for (float const each : g) squares += static_cast<double>(each) * static_cast<double>(each);
      compressor.compress(std::span{g});
    }
    return compressor.residual_norm() / std::sqrt(squares);
  };
  double const noise = ratio(true);  // 0.4 / sqrt(density), and less where layers differ in scale
  CHECK(noise > 2);
  CHECK(noise < 4.4);
  double const stays = ratio(false);  // 0.45 / density, likewise
  CHECK(stays > 15);
  CHECK(stays < 50);
}

// ---- Formats -----------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("half precision in, its nearest value of the float mean out", T, gs::float16, gs::bfloat16) {
  auto const n = mixed_layers().size();
  gs::recipe const recipe{.density = 0.02};
  auto const said = on_ranks(3, [&](communicator comm) {
    findings found;
    gs::compressor half{here, mixed_layers(), recipe};
    gs::compressor full{here, mixed_layers(), recipe};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto stored = data::as<T>(gradient(n, comm.rank(), step));
      std::vector<float> wide(n);
      std::transform(stored.begin(), stored.end(), wide.begin(), [](T x) { return gs::to_float(x); });
      half.exchange(comm, std::span{stored});
      full.exchange(comm, std::span{wide});
      found.expect(half.state() == full.state(), "the residuals differ");
      found.expect(stored == data::as<T>(wide), "the updates differ");
    }
    return found.text();
  });
  CHECK(joined(said) == "");
}

// ---- How much, and who -------------------------------------------------------------------------------------

TEST_CASE("a warm-up sends what its step's density says") {
  auto const n = std::uint64_t{10'000};
  gs::compressor compressor{
      here, gs::layout::flat(n),
      gs::recipe{.density = gs::warm_up{.initial = 0.25, .final = 0.001, .steps = 8, .stages = 4}}};
  std::vector<gs::index_type> sent;
  for (std::uint64_t step = 0; step < 10; ++step)
    sent.push_back(
        static_cast<gs::index_type>(compressor.compress(std::span<float const>{gradient(n, 0, step)}).indices.size()));
  std::vector<gs::index_type> expected;
  for (double const stage : {0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0})
    expected.push_back(gs::budget_of(0.25 * std::pow(0.004, stage / 4), n));
  CHECK(sent == expected);
  CHECK(sent.front() == 2500);
  CHECK(sent.back() == 10);
}

TEST_CASE("the union grows with the ranks, and with deft it does not") {
  constexpr std::uint64_t n = 20'000;
  constexpr double density = 0.02;
  auto const k = gs::budget_of(density, n);
  auto const unions = [&](int world, auto recipe) {
    recipe.density = density;
    std::vector<double> sizes(at(world));
    gs::threads::run(world, [&](communicator comm) {
      gs::compressor compressor{here, gs::layout{data::equal_layers(n, 7)}, recipe};
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto update = data::make(data::law::laplace, n, 100 * step + at(comm.rank()) + 1);
        sizes[at(comm.rank())] += static_cast<double>(compressor.exchange(comm, std::span{update}).union_size) / 4;
      }
    });
    return sizes;
  };
  for (int world = 1; world <= 16; world = world < 4 ? world + 1 : 2 * world) {
    CAPTURE(world);
    double const expected = n * (1 - std::pow(1 - density, world));
    for (double const size : unions(world, gs::recipe{.residual = gs::none{}}))
      CHECK(size == doctest::Approx(expected).epsilon(0.05));
    for (double const size : unions(world, gs::recipe{.partitioner = gs::deft{}})) CHECK(size == k);
  }
}

TEST_CASE("deft: each fragment belongs to one rank, and the work goes round") {
  constexpr std::uint64_t n = 12'000;
  constexpr int world = 4;
  auto const layers = gs::layout{data::equal_layers(n, 4)};
  for (std::size_t const every : {1u, 2u, 100u}) {
    CAPTURE(every);
    // chosen[step][rank]: where that rank's own entries were
    std::vector<std::vector<std::vector<std::uint64_t>>> counts(8, std::vector<std::vector<std::uint64_t>>(world));
    std::vector<std::vector<std::uint64_t>> selected(8, std::vector<std::uint64_t>(world));
    auto const said = on_ranks(world, [&](communicator comm) {
      findings found;
      // gather: a rank's own choice is what left its residual
      gs::compressor compressor{here, layers,
                                gs::recipe{.density = 0.01,
                                           .partitioner = gs::deft{.rotate_every = every},
                                           .residual = gs::none{},
                                           .exchange = gs::gather{}}};
      for (std::uint64_t step = 0; step < 8; ++step) {
        auto const g = data::make(data::law::laplace, n, 5);  // the same every step, on every rank
        auto update = g;
        auto const it = compressor.exchange(comm, std::span{update});
        selected[step][at(comm.rank())] = it.selected;
        auto& fragments = counts[step][at(comm.rank())];
        fragments.assign(4, 0);
        for (std::size_t i = 0; i < n; ++i)
          if (g[i] != 0 && compressor.residual()[i] == 0) ++fragments[i / 3000];
        found.expect(it.selected == std::accumulate(fragments.begin(), fragments.end(), std::uint64_t{0}),
                     "selected elsewhere");
        found.expect(it.union_size == 120 && it.budget == 120, "the update has not k entries");
      }
      return found.text();
    });
    CHECK(joined(said) == "");
    for (std::size_t step = 0; step < 8; ++step) {
      CHECK(std::accumulate(selected[step].begin(), selected[step].end(), std::uint64_t{0}) == 120);
      for (std::size_t rank = 0; rank < world; ++rank) {
        // the data never changes: what a rank does now, the rank before it does in the next turn
        if (step + 1 < 8) {
          bool const moves = (step + 1) % every == 0;
          CHECK(counts[step + 1][moves ? (rank + world - 1) % world : rank] == counts[step][rank]);
        }
        CHECK(std::count_if(counts[step][rank].begin(), counts[step][rank].end(),
                            [](std::uint64_t c) { return c > 0; }) == 1);
      }
    }
  }
}

// ---- Trivial inputs ----------------------------------------------------------------------------------------

TEST_CASE("nothing to send, nothing to send it of, nobody to send it to") {
  auto const check = [](auto recipe) {
    for (int const world : {1, 3}) {
      auto const said = on_ranks(world, [&](communicator comm) {
        findings found;
        auto const zeros = [](std::span<float const> all) {
          return std::all_of(all.begin(), all.end(), [](float x) { return x == 0; });
        };
        {  // density 0
          auto none = recipe;
          none.density = 0.0;
          auto const layers = gs::layout{{"a", 300}, {"b", 200}};
          gs::compressor compressor{here, layers, none};
          auto const g = gradient(500, comm.rank(), 0);
          auto update = g;
          auto const it = compressor.exchange(comm, std::span{update});
          found.expect(zeros(update) && it.selected == 0 && it.union_size == 0 && it.build_up() == 0,
                       "density 0 sent something");
          found.expect(residual_of(compressor) == g, "density 0 lost something");
        }
        // no elements, in three ways
        for (auto const& layers : {gs::layout{}, gs::layout{{"a", 0}, {"b", 0}}, gs::layout::flat(0)}) {
          gs::compressor compressor{here, layers, recipe};
          std::vector<float> empty;
          for (int step = 0; step < 2; ++step) {
            auto const it = compressor.exchange(comm, std::span{empty});
            found.expect(it.selected == 0 && it.baseline_bytes == 0 && it.union_size == 0, "no elements gave some");
          }
          found.expect(compressor.compress(std::span<float const>{empty}).indices.empty(), "compress of nothing");
          compressor.discard_step();
          gs::compressor other{here, layers, recipe};
          other.restore(compressor.state());
          found.expect(other.residual_norm() == 0, "a norm of nothing");
        }
        {  // fewer layers than ranks, fewer elements than ranks
          for (std::uint64_t const n : {1u, 2u, 5u}) {
            auto some = recipe;
            some.density = 0.5;
            gs::compressor compressor{here, gs::layout{{"only", n}}, some};
            auto update = std::vector<float>(n, 1.0f);
            auto const it = compressor.exchange(comm, std::span{update});
            auto const k = (n + 1) / 2;
            auto const sent = data::count_nonzero(update);
            found.expect(sent <= k && sent >= std::max<std::uint64_t>(1, k * 4 / 5), "k of a tiny gradient");
            found.expect(it.union_size + it.passthrough_elements == sent, "report of a tiny gradient");
          }
        }
        {  // nothing but zeros, and nothing but NaN
          gs::compressor compressor{here, mixed_layers(), recipe};
          std::vector<float> update(mixed_layers().size());
          auto it = compressor.exchange(comm, std::span{update});
          found.expect(zeros(update) && it.selected == 0, "zeros were sent");
          std::fill(update.begin(), update.end(), not_a_number);
          it = compressor.exchange(comm, std::span{update});
          found.expect(zeros(update) && it.non_finite == update.size() && compressor.residual_norm() == 0,
                       "NaN went somewhere");
        }
        return found.text();
      });
      CHECK(joined(said) == "");
    }
  };
  check(gs::recipe{});
  check(gs::recipe{.selector = gs::laplacian{.count = gs::count_mode::exact}, .partitioner = gs::layerwise{}});
  check(gs::recipe{.selector = gs::hierarchical{}, .exchange = gs::index_union{}});
  check(gs::recipe{.partitioner = gs::deft{}});
  check(gs::recipe{.partitioner = gs::cyclic{}});
  check(gs::recipe{.selector = gs::laplacian{.tolerance = 0.0f}, .partitioner = gs::deft{}, .exchange = gs::gather{}});
}

TEST_CASE("one rank: what is sent is the accumulator's part, unchanged") {
  auto const n = mixed_layers().size();
  gs::compressor alone{here, mixed_layers(), gs::recipe{.density = 0.02}};
  gs::compressor by_hand{here, mixed_layers(), gs::recipe{.density = 0.02}};
  gs::averager server{here, mixed_layers()};
  for (std::uint64_t step = 0; step < 3; ++step) {
    auto const g = gradient(n, 0, step);
    auto update = g;
    alone.exchange(gs::self{}, std::span{update});
    auto const message = by_hand.encode(by_hand.compress(std::span<float const>{g}));
    std::vector<float> applied(n, not_a_number);
    server.apply(std::span{&message, 1}, std::span{applied});
    CHECK(same_bits(update, applied));
    CHECK(alone.state() == by_hand.state());
  }
}

// ---- Without a communicator --------------------------------------------------------------------------------

TEST_CASE("two peers that carry their messages themselves get what exchange gives") {
  auto const n = mixed_layers().size();
  auto const check = [&](auto recipe) {
    std::vector<std::vector<float>> exchanged;
    gs::threads::run(2, [&](communicator comm) {
      gs::compressor compressor{here, mixed_layers(), recipe};
      for (std::uint64_t step = 0; step < 4; ++step) {
        auto update = gradient(n, comm.rank(), step);
        compressor.exchange(comm, std::span{update});
        if (comm.rank() == 0) exchanged.push_back(update);
      }
    });
    gs::compressor a{here, mixed_layers(), recipe};
    gs::compressor b{here, mixed_layers(), recipe};
    gs::averager of_a{here, a.layers(), recipe.codec, recipe.passthrough};
    gs::averager of_b{here, b.layers(), recipe.codec, recipe.passthrough};
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto const from_a = a.compress(std::span<float const>{gradient(n, 0, step)});
      auto const from_b = b.compress(std::span<float const>{gradient(n, 1, step)});
      std::vector<std::span<std::byte const>> const messages{a.encode(from_a), b.encode(from_b)};
      std::vector<float> at_a(n, not_a_number);
      std::vector<float> at_b(n, 7.0f);
      of_a.apply(std::span{messages}, std::span{at_a});
      of_b.apply(std::span{messages}, std::span{at_b});
      CHECK(same_bits(at_a, at_b));
      CHECK(same_bits(at_a, exchanged[step]));
    }
  };
  check(gs::recipe{.density = 0.02});
  check(gs::recipe{.density = 0.02, .selector = gs::laplacian{}, .residual = gs::momentum_correction{}});
}

TEST_CASE("momentum_correction in plain numbers: the velocity of Lin et al., cleared where a value is sent") {
  gs::momentum_correction store{.momentum = 0.5f};
  gs::element_state<2> state{};
  store.accumulate_element(1, state);
  store.accumulate_element(2, state);
  CHECK(state[1] == 2.5f);  // 0.5 * 1 + 2
  CHECK(state[0] == 3.5f);  // 1 + 2.5
  auto sent = state;
  store.remove_sent(3.5f, sent, false);
  CHECK(sent[0] == 0);
  CHECK(sent[1] == 0);
  sent = state;
  store.remove_sent(3.5f, sent, true);  // a layer that is sent in full keeps its velocity
  CHECK(sent[1] == 2.5f);
  store.masking = false;
  sent = state;
  store.remove_sent(3.5f, sent, false);
  CHECK(sent[1] == 2.5f);
}
