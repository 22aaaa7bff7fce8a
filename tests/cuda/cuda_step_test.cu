// Steps on a device: graphs, streams, what can be taken back, checkpoints, bad input; nothing is lost.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <thrust/device_vector.h>

#include "gpu.cuh"

using namespace gpu;

/// The shortest selector of the second family.
struct plain_top {
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD gs::index_type select(Workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                                     gs::selection_span out) const {
    return work.compact(acc, work.kth_largest(acc, k), out);
  }
  friend bool operator==(plain_top const&, plain_top const&) = default;
  friend std::ostream& operator<<(std::ostream& out, plain_top const&) { return out << "plain_top"; }
};

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

std::vector<float> gradient_of(std::uint64_t step) { return steps::gradient(n, 0, step); }

/// Steps by a graph are the host's steps, to the bit. Returns its nodes.
template <class Recipe>
std::size_t replays(Recipe const& recipe) {
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory, search_blocks()};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  array<float> const gradient{where, gradient_of(0)};
  host.compress(gradient_of(0));
  device.compress(gradient.span());
  auto const before = memory.allocations;
  gs::device_selection sent;
  graph const step{own, [&] { sent = device.compress(gradient.span()); }};
  for (std::uint64_t s = 1; s < 6; ++s) {
    gradient.put(gradient_of(s));
    step.launch();
    CHECK(entries{where, sent} == entries{host.compress(gradient_of(s))});
    CHECK(device.report().get().step == s);
  }
  CHECK(memory.allocations == before);
  CHECK(device.step() == 6);
  CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
  return step.nodes();
}

}  // namespace

TEST_CASE("small: a captured step is replayed as steps of the host") {
  // Two of them for layers that pass through; a number of blocks for searches leaves out the kernel of small gradients.
  CHECK(replays(gs::recipe{.density = 0.03}) == (search_blocks() == 0 ? 3 : 5));
  // The same two; two kernels, a download, the decision on the host, two uploads, and five kernels.
  CHECK(replays(gs::recipe{.density = 0.03, .partitioner = gs::deft{}}) == 13);
}

TEST_CASE("small: a step that has to upload is refused in a capture, and harms neither the capture nor later steps") {
  stream const own;
  gs::device const where{own};
  gs::recipe const recipe{.density = gs::warm_up{.initial = 0.3, .final = 0.02, .steps = 3}};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  array<float> const gradient{where, n};
  auto const step = [&](std::uint64_t s) {
    gradient.put(gradient_of(s));
    entries const expected{host.compress(gradient_of(s))};
    CHECK(entries{where, device.compress(gradient.span())} == expected);
  };
  step(0);
  graph const refused{own, [&] {
    CHECK(steps::contains(steps::ending([&] { device.compress(gradient.span()); }),
                          "budgets or owners differ from those of the last step"));
  }};
  for (std::uint64_t s = 1; s < 5; ++s) step(s);
  CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
}

TEST_CASE("small: a step that estimates is refused in a capture where the next one remembers, after every restart") {
  stream const own;
  gs::device const where{own};
  auto const check = [&](auto const& recipe, bool remembers) {
    CAPTURE(recipe);
    gs::compressor host{gs::host{}, layers, recipe};
    gs::compressor device{where, layers, recipe};
    array<float> const gradient{where, n};
    std::uint64_t at = 0;
    auto const same = [&](gs::device_selection const& sent) {
      CHECK(entries{where, sent} == entries{host.compress(gradient_of(at++))});
    };
    auto const step = [&] {
      gradient.put(gradient_of(at));
      same(device.compress(gradient.span()));
    };
    step();
    gs::device_selection sent;
    graph const warm{own, [&] { sent = device.compress(gradient.span()); }};
    auto const restarts = [&](auto const& restart) {
      restart(host);
      restart(device);
      std::string why;
      graph const cold{own, [&] { why = steps::ending([&] { device.compress(gradient.span()); }); }};
      CHECK(steps::contains(why, "estimate") == remembers);
      CHECK((cold.nodes() == 0) == remembers);
      step();
      for (int i = 0; i < 2; ++i) {
        gradient.put(gradient_of(at));
        warm.launch();
        same(sent);
      }
    };
    restarts([state = host.state()](auto& one) { one.restore(state); });
    restarts([](auto& one) { one.rescale(0.5f); });
    CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
  };
  check(gs::recipe{.density = 0.03}, true);
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}}, true);
  check(gs::recipe{.density = 0.03, .selector = gs::laplacian{.tolerance = 1}}, true);
  check(gs::recipe{.density = 0.03, .selector = gs::laplacian{.warm = false}}, false);
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}}, false);
}

/// Each call is refused in a capture after `before` and leaves nothing in the graph, which is launched then.
template <class Before>
void refused_in_capture(stream const& own, Before const& before, std::vector<std::function<void()>> const& calls) {
  auto const nodes = graph{own, before}.nodes();
  for (std::size_t each = 0; each < calls.size(); ++each) {
    CAPTURE(each);
    graph const captured{own, [&] {
      before();
      auto const why = steps::ending(calls[each]);
      CAPTURE(why);
      CHECK((steps::contains(why, "it waits for the stream") || steps::contains(why, "it allocates")));
    }};
    CHECK(captured.nodes() == nodes);
    captured.launch();
  }
}

TEST_CASE("small: a call that waits is refused in a capture, and leaves nothing in the graph") {
  stream const own;
  gs::device const where{own};
  gs::recipe const recipe{.density = 0.03, .residual = gs::momentum_correction{}};
  auto failing = recipe;
  failing.on_non_finite = gs::non_finite::fail;
  gs::compressor device{where, layers, recipe};
  gs::compressor fails{where, layers, failing};
  gs::compressor met{where, layers, recipe};
  gs::compressor met_failing{where, layers, failing};
  gs::compressor unsent{where, layers, recipe};
  gs::averager mean{where, layers, recipe};
  gs::staged const staged{gs::self{}};
  array<float> const gradient{where, gradient_of(0)};
  array<float> const update{where, gradient_of(1)};
  auto const sent = device.compress(gradient.span());
  auto const chosen = unsent.compress(gradient.span());
  auto const state = device.state();
  std::span<std::byte const> message = device.encode(sent);
  met.exchange(gs::self{}, update.span());
  met_failing.exchange(gs::self{}, update.span());

  using calls = std::vector<std::function<void()>>;
  fails.compress(gradient.span());
  refused_in_capture(own, [&] { device.compress(gradient.span()); },
                     calls{[&] { static_cast<void>(device.report().get()); },
                           [&] { static_cast<void>(device.residual_norm()); },
                           [&] { static_cast<void>(device.step()); },
                           [&] { static_cast<void>(device.state()); },
                           [&] { device.restore(state); },
                           [&] { device.absorb(state); },
                           [&] { device.connect(gs::self{}); },
                           [&] { device.exchange(gs::self{}, update.span()); },  // the ranks have not met
                           [&] { static_cast<void>(unsent.encode(chosen)); },
                           [&] { mean.apply(std::span{&message, 1}, update.span()); },
                           [&] { fails.compress(gradient.span()); },
                           [&] { met_failing.exchange(gs::self{}, update.span()); },
                           [&] { static_cast<void>(gs::compressor{where, layers, recipe}); },
                           [&] { staged.all_reduce(where, update.span(), gs::reduction::sum); }});
}

TEST_CASE("small: a gradient in a thrust::device_vector") {
  gs::device const where{};
  gs::recipe const recipe{.density = 0.03};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  auto values = gradient_of(0);
  thrust::device_vector<float> gradient = values;
  auto const chosen = host.compress(values);
  auto const sent = device.compress(std::as_const(gradient));
  CHECK(entries{where, sent} == entries{chosen});
  std::span<std::byte const> message = host.encode(chosen);
  gs::averager{gs::host{}, layers, recipe}.apply(std::span{&message, 1}, values);
  message = device.encode(sent);
  gs::averager{where, layers, recipe}.apply(std::span{&message, 1}, gradient);
  CHECK(gradient == values);
  gradient = values = gradient_of(1);
  host.exchange(gs::self{}, values);
  device.exchange(gs::self{}, gradient);
  CHECK(gradient == values);
}

TEST_CASE("small: two compressors on two streams do not disturb each other") {
  stream const first_stream, second_stream;
  gs::device const first{first_stream}, second{second_stream};
  auto const recipe = gs::recipe{.density = 0.02};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor a{first, layers, recipe};
  gs::compressor b{second, layers, recipe};
  array<float> const ga{first, n}, gb{second, n};
  for (std::uint64_t s = 0; s < 4; ++s) {
    ga.put(gradient_of(s));
    gb.put(gradient_of(s));
    auto const of_a = a.compress(ga.span());
    auto const of_b = b.compress(gb.span());
    entries const expected{host.compress(gradient_of(s))};
    CHECK(entries{first, of_a} == expected);
    CHECK(entries{second, of_b} == expected);
  }
}

TEST_CASE("a step allocates nothing, on the device and on the host's side of it") {
  poisoned_memory memory;
  gs::device const where{nullptr, &memory};
  gs::compressor device{where, layers, gs::recipe{.density = 0.02}};
  array<float> const gradient{where, gradient_of(0)};
  device.compress(gradient.span());
  auto const before = memory.allocations;
  for (int s = 0; s < 3; ++s) device.compress(gradient.span());
  for (int s = 0; s < 3; ++s) device.exchange(gs::self{}, gradient.span());  // a world of one has its buffers already
  where.synchronize();
  CHECK(memory.allocations == before);
}

TEST_CASE("200 steps: what came in was sent or is still there") {
  gs::device const where{};
  std::uint64_t const size = 3000;
  gs::compressor device{where, gs::layout::flat(size), gs::recipe{.density = 0.02}};
  std::vector<double> balance(size);
  array<float> const gradient{where, size};
  for (std::uint64_t s = 0; s < 200; ++s) {
    auto const values = steps::gradient(size, 0, s);
    gradient.put(values);
    entries const sent{where, device.compress(gradient.span())};
    for (std::uint64_t i = 0; i < size; ++i) balance[i] += static_cast<double>(values[i]);
    for (std::size_t p = 0; p < sent.indices.size(); ++p)
      balance[sent.indices[p]] -= static_cast<double>(sent.values[p]);
  }
  auto const left = fetched(where, device.residual().data(), size);
  double worst = 0;
  for (std::uint64_t i = 0; i < size; ++i)
    worst = std::max(worst, std::fabs(balance[i] - static_cast<double>(left[i])));
  CHECK(worst < 1e-3);
}

TEST_CASE("small: discard, flush_pending, rescale and checkpoints are the host's") {
  auto const check = [](auto const& recipe) {
    gs::device const where{};
    gs::compressor host{gs::host{}, layers, recipe};
    gs::compressor device{where, layers, recipe};
    array<float> const gradient{where, n};
    std::uint64_t at = 0;
    auto const step = [&] {
      gradient.put(gradient_of(at));
      entries const expected{host.compress(gradient_of(at++))};
      CHECK(entries{where, device.compress(gradient.span())} == expected);
    };
    auto const same = [&] { CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host))); };
    auto const discard = [&] {
      host.discard_step();
      device.discard_step();
    };
    step();
    discard();  // before anything has left
    discard();  // and again: nothing more comes back
    step();
    same();     // lets it leave
    discard();  // after it has left
    same();
    step();
    host.rescale(0.5f);
    device.rescale(0.5f);
    discard();
    same();
    step();
    auto const saved = host.state();
    step();
    host.restore(saved);
    device.restore(saved);  // a checkpoint knows no space
    discard();
    same();
    step();
    host.absorb(saved);
    device.absorb(saved);
    step();
    same();
    CHECK(device.step() == host.step());
    host.restore(device.state());
    step();
    same();
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}});
}

TEST_CASE("small: gradients that are not finite") {
  auto const bad = [](std::uint64_t step) {
    auto values = gradient_of(step);
    values[3] = std::numeric_limits<float>::infinity();
    values[n - 1] = std::numeric_limits<float>::quiet_NaN();
    values[1700] = 3e38f;
    return values;
  };
  CHECK(same_as_host(gs::recipe{.density = 0.03}, layers, 3, bad));
  gs::device const where{};
  gs::compressor device{where, layers, gs::recipe{.density = 0.03, .on_non_finite = gs::non_finite::fail}};
  array<float> const gradient{where, gradient_of(0)};
  device.compress(gradient.span());
  auto const before = device.state();
  gradient.put(bad(1));
  CHECK(steps::contains(steps::ending([&] { device.compress(gradient.span()); }), "2 gradient elements are NaN"));
  CHECK(steps::contains(steps::ending([&] { device.exchange(gs::self{}, gradient.span()); }), "all ranks together"));
  device.discard_step();  // what was sent before stays sent
  CHECK(steps::same_bits(device.state(), before));
}

TEST_CASE("small: bad input is named before anything changes") {
  gs::device const where{};
  gs::compressor device{where, layers, gs::recipe{.density = 0.03}};
  array<float> const gradient{where, n - 1};
  CHECK(steps::contains(steps::ending([&] { device.compress(gradient.span()); }),
                        "gradient has " + std::to_string(n - 1) + " elements, the layout has " + std::to_string(n)));
  CHECK_THROWS_AS(device.rescale(std::numeric_limits<float>::infinity()), gs::invalid_argument);
  auto bytes = device.state();
  bytes[bytes.size() / 2] ^= std::byte{1};
  CHECK_THROWS_AS(device.restore(bytes), gs::corrupt_state);
  CHECK_THROWS_AS((gs::compressor{where, layers, gs::recipe{.density = 2.0}}), gs::invalid_argument);
  CHECK(device.report().get().step == 0);
  CHECK_THROWS_AS(gs::throw_on_error(cudaErrorInvalidValue, "a call"), gs::device_error);
}

TEST_CASE("a selector that predicts nothing gets nothing stale") {
  auto const recipe = gs::recipe{.density = 0.02};
  gs::device const where{};
  gs::compressor host{gs::host{}, gs::layout::flat(n), recipe};
  gs::compressor device{where, gs::layout::flat(n), gs::recipe{.density = 0.02, .selector = plain_top{}}};
  array<float> const gradient{where, n};
  for (std::uint64_t s = 0; s < 3; ++s) {
    gradient.put(gradient_of(s));
    CHECK(entries{where, device.compress(gradient.span())} == entries{host.compress(gradient_of(s))});
  }
}
