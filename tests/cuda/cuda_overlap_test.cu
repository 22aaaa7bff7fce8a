// Groups of a plan, exchanged on a second stream while gradients arrive on the first: the bits of the groups exchanged
// one after the other on the host.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/overlap.cuh>

#include "gpu.cuh"
#include "groups.hpp"

using namespace gpu;
using groups::one_by_one;
using groups::order_type;
using groups::plan_of;

namespace {

order_type shuffled(std::size_t count, std::uint64_t seed) {
  order_type order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  data::generator random{seed};
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

auto const recipe = gs::recipe{.density = 0.05};
auto const on_host = [](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
auto const on_device = [](gs::device where) {
  return [where](gs::layout const& part) { return gs::compressor{where, part, recipe}; };
};
auto const mean_on_host = [](gs::layout const&) { return gs::dense_mean{}; };
auto const mean_on_device = [](gs::device where) {
  return [where](gs::layout const&) { return gs::device_dense_mean{where}; };
};

template <class Compressor>
std::vector<float> residual_of(Compressor& compressor, gs::device where) {
  auto const now = compressor.residual();
  return fetched(where, now.data(), now.size());
}

/// Steps with layers ready in any order, and one layer not at all in odd steps.
template <class OfHost, class OfDevice>
std::string compare(steps::communicator comm, OfHost const& of_host, OfDevice const& of_device,
                    std::vector<std::size_t> const& borders) {
  auto const layers = steps::mixed_layers();
  auto const planned = shuffled(layers.count(), 3);
  auto const plan = plan_of(layers, planned, borders);
  steps::findings found;
  stream const computing, second;
  gs::device const aside{second};
  one_by_one expected{layers, plan, planned, of_host};
  gs::overlap exchange{aside, gs::staged{comm}, layers, plan, of_device(aside), planned};
  gs::device const where{computing};
  array<float> const gradient{where, layers.size()};
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto values = steps::gradient(layers.size(), comm.rank(), step);
    std::size_t const unused = step % 2 == 0 ? layers.count() : 4;
    exchange.begin(gradient.span(), computing);
    for (auto const layer : shuffled(layers.count(), 100 * step + static_cast<std::uint64_t>(comm.rank()))) {
      auto const here = std::span{values}.subspan(layers.offset(layer), layers[layer].size);
      where.copy(std::as_bytes(here),
                 std::as_writable_bytes(gradient.span().subspan(layers.offset(layer), here.size())));
      if (layer == unused)
        std::ranges::fill(here, 0.0f);  // on the host only: the device finds out
      else
        exchange.ready(layer);
    }
    auto const report = exchange.wait();
    expected.exchange(comm, values);
    found.expect(steps::same_bits(gradient.get(), values), "an update differs from the host's");
    auto const told = report.get();
    std::uint64_t baseline = 0;
    for (std::size_t g = 0; g < plan.groups().size(); ++g) baseline += 4 * exchange.layers_of(g).size();
    found.expect(told.exchanged.baseline_bytes == baseline && told.exchanged.world == 2, "a report of other groups");
    found.expect(told.busy > 0 && told.exposed >= 0, "no times in the report");
    auto const times = exchange.times();
    for (std::size_t g = 0; g < times.size(); ++g)
      found.expect(times[g].finish >= times[g].start && (g == 0 || times[g].start >= times[g - 1].finish),
                   "groups at the same time");
  }
  return found.text();
}

}  // namespace

TEST_CASE("groups on a second stream: the host's bits, whatever is ready first") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    return compare(comm, on_host, on_device, {2, 5, 6, 9}) + compare(comm, mean_on_host, mean_on_device, {9}) +
           compare(comm, mean_on_host, mean_on_device, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  });
  CHECK(said == std::vector<std::string>(2));
}

TEST_CASE("small: a step in a graph") {
  auto const layers = steps::mixed_layers();
  auto const order = shuffled(layers.count(), 5);
  auto const plan = plan_of(layers, order, {3, 4, 9});
  stream const computing, second;
  gs::device const where{computing};
  one_by_one expected{layers, plan, order, on_host};
  gs::overlap exchange{gs::device{second}, gs::self{}, layers, plan, on_device(gs::device{second}), order};
  array<float> const gradient{where, layers.size()}, fresh{where, layers.size()};
  auto const step = [&] {
    exchange.begin(gradient.span(), computing);
    for (auto const layer : order) {
      auto const part = [&](std::span<float> all) { return all.subspan(layers.offset(layer), layers[layer].size); };
      where.copy(std::as_bytes(part(fresh.span())), std::as_writable_bytes(part(gradient.span())));
      exchange.ready(layer);
    }
    exchange.wait();
  };
  auto const check = [&](std::uint64_t at, auto const& run) {
    auto values = steps::gradient(layers.size(), 0, at);
    fresh.put(values);
    run();
    expected.exchange(gs::self{}, values);
    CHECK(steps::same_bits(gradient.get(), values));
  };
  for (std::uint64_t at = 0; at < 2; ++at) check(at, step);
  graph const captured{computing, step};
  for (std::uint64_t at = 2; at < 5; ++at) check(at, [&] { captured.launch(); });
}

TEST_CASE("a backward pass that throws on one rank: groups that were complete count, the others fail on all") {
  gs::layout const layers{{"a", 300}, {"b", 200}, {"c", 500}, {"d", 100}};
  order_type const order{2, 0, 3, 1};
  auto const plan = plan_of(layers, order, {1, 3, 4});  // {c} {a, d} {b}: the second in two pieces
  auto const without_passthrough = gs::recipe{.density = 0.05, .passthrough = {.patterns = {}}};
  enum class way { run, cancelled, destructor };
  for (auto const how : {way::run, way::cancelled, way::destructor}) {
    auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
      steps::findings found;
      stream const computing, second;
      gs::device const aside{second};
      gs::device const where{computing};
      auto const make = [&](gs::layout const& part) { return gs::compressor{aside, part, without_passthrough}; };
      gs::staged const transport{comm};
      array<float> const gradient{where, layers.size()};
      auto exchange = std::make_unique<decltype(gs::overlap{aside, transport, layers, plan, make, order})>(
          aside, transport, layers, plan, make, order);
      auto const step = [&](std::uint64_t at, bool fails) {
        gradient.put(steps::gradient(layers.size(), comm.rank(), at));
        exchange->begin(gradient.span(), computing);
        exchange->ready(2);
        exchange->ready(0);
        if (fails) return;
        exchange->ready(3);
        exchange->ready(1);
        exchange->wait();
      };
      step(0, false);
      std::vector<std::vector<float>> before;
      for (std::size_t g = 0; g < 3; ++g) before.push_back(residual_of(exchange->exchange_of(g), aside));
      auto const given = steps::gradient(layers.size(), comm.rank(), 1);
      if (comm.rank() == 0) {
        step(1, false);  // the host does not wait: nothing is known yet
      } else if (how == way::run) {
        gradient.put(given);
        auto const ends = steps::ending([&] {
          exchange->run(gradient.span(), computing, [](auto const& ready) {
            ready(2);
            ready(0);
            throw std::runtime_error("backward failed");
          });
        });
        found.expect(ends == "exception: backward failed", ends);
      } else {
        step(1, true);
        if (how == way::destructor) {
          exchange.reset();
          return found.text();
        }
        exchange->cancel();
        exchange->cancel();  // nothing is open
        found.expect(steps::contains(steps::ending([&] { exchange->wait(); }), "no step is open"), "still open");
      }
      for (std::size_t g = 0; g < 3; ++g) {
        auto const ends = steps::ending([&] { static_cast<void>(exchange->exchange_of(g).report().get()); });
        if (g == 0 || comm.rank() == 1)
          found.expect(ends.empty(), ends);
        else
          found.expect(ends == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent", ends);
      }
      if (how == way::destructor) return found.text();
      exchange->discard_step();  // the first group's as well
      for (std::size_t g = 0; g < 3; ++g) {
        auto expected = before[g];
        std::size_t at = 0;
        for (std::size_t i = 0; i < layers.count(); ++i) {
          bool const mine = g == 0 ? i == 2 : g == 1 ? i == 0 || i == 3 : i == 1;
          if (!mine) continue;
          for (std::size_t e = 0; e < layers[i].size; ++e, ++at)
            if (g == 0 || comm.rank() == 0) expected[at] += given[layers.offset(i) + e];
        }
        found.expect(steps::same_bits(residual_of(exchange->exchange_of(g), aside), expected),
                     "group " + std::to_string(g) + ": another residual");
      }
      step(2, false);
      for (std::size_t g = 0; g < 3; ++g)
        found.expect(exchange->exchange_of(g).report().get().union_size > 0, "the next step");
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  }
}

TEST_CASE("a gradient of another size on one rank: all ranks throw, and the next step works") {
  gs::layout const layers{{"a", 300}, {"b", 200}};
  auto const plan = plan_of(layers, {1, 0}, {1, 2});
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const computing, second;
    gs::device const where{computing};
    gs::overlap exchange{gs::device{second}, gs::staged{comm}, layers, plan, on_device(gs::device{second})};
    array<float> const gradient{where, layers.size()};
    for (std::uint64_t step = 0; step < 3; ++step) {
      gradient.put(steps::gradient(layers.size(), comm.rank(), step));
      auto const size = step == 1 && comm.rank() == 1 ? 499u : 500u;
      auto const ends = steps::ending([&] {
        exchange.begin(gradient.span().first(size), computing);
        exchange.ready(1);
        exchange.flush();
        static_cast<void>(exchange.wait().get());
      });
      if (step != 1)
        found.expect(ends.empty(), ends);
      else if (comm.rank() == 1)
        found.expect(ends == "invalid_argument: gradsieve: gradient has 499 elements, the layout has 500", ends);
      else
        found.expect(ends == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent", ends);
    }
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("means of a step that a rank cancels are NaN on all, and the next are not") {
  gs::layout const layers{{"a", 300}, {"b", 200}};
  auto const plan = plan_of(layers, {1, 0}, {1, 2});
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const computing, second;
    gs::device const aside{second};
    gs::device const where{computing};
    gs::overlap exchange{aside, gs::staged{comm}, layers, plan, mean_on_device(aside)};
    array<float> const gradient{where, layers.size()};
    for (int step = 0; step < 3; ++step) {
      gradient.put(std::vector<float>(layers.size(), static_cast<float>(comm.rank())));
      auto const ends = steps::ending([&] {
        exchange.run(gradient.span(), computing, [&](auto const& ready) {
          ready(1);
          if (step == 1 && comm.rank() == 0) throw std::runtime_error("backward failed");
          ready(0);
        });
      });
      found.expect(ends == (step == 1 && comm.rank() == 0 ? "exception: backward failed" : ""), ends);
      auto const mean = gradient.get();
      found.expect(mean[300] == 0.5f, "the mean of the group that was complete");
      for (std::size_t i = 0; i < 300; ++i)
        found.expect(step == 1 ? mean[i] != mean[i] : mean[i] == 0.5f, "another mean");
    }
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}

TEST_CASE("small: wrong use of an overlap, and an exchange that throws") {
  gs::layout const layers{{"a", 3}, {"b", 2}};
  auto const plan = plan_of(layers, {1, 0}, {1, 2});
  stream const computing, second;
  gs::device const where{computing};
  array<float> const gradient{where, {1, 2, 3, 4, 5}};
  struct fails_first {
    std::size_t size;
    gs::step_report exchange(gs::self const&, std::span<float>) const {
      if (size == 2) throw std::runtime_error("no");
      return {};
    }
  };
  auto const make = [](gs::layout const& part) { return fails_first{part.size()}; };
  gs::overlap exchange{gs::device{second}, gs::self{}, layers, plan, make};
  CHECK(steps::ending([&] { exchange.ready(0); }).starts_with("invalid_argument: gradsieve: layer 0 is ready, but no"));
  CHECK(steps::ending([&] {
          exchange.wait();
        }).starts_with("invalid_argument: gradsieve: flush() or wait(), but no step"));
  CHECK(steps::ending([&] { exchange.begin(gradient.span().first(4), computing); }) ==
        "invalid_argument: gradsieve: gradient has 4 elements, the layout has 5");
  exchange.begin(gradient, computing);
  CHECK(
      steps::ending([&] { exchange.begin(gradient, computing); }).starts_with("invalid_argument: gradsieve: begin()"));
  CHECK(steps::ending([&] { exchange.ready(2); }).starts_with("invalid_argument: gradsieve: layer 2 is ready, the"));
  exchange.ready(1);
  CHECK(steps::ending([&] { exchange.ready(1); }).ends_with("is ready for the second time in a step"));
  CHECK(steps::ending([&] { exchange.wait(); }) == "exception: no");
  CHECK(gradient.get() == std::vector<float>{0, 0, 0, 4, 5});  // layer 0 was not ready
  exchange.begin(gradient, computing);
  CHECK(steps::ending([&] { exchange.wait(); }) == "exception: no");
}
