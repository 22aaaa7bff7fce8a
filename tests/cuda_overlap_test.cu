// Groups of a plan, exchanged on a second stream while gradients arrive on the first: the bits of the groups exchanged
// one after the other on the host.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/schedule/dense_mean.hpp>

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
  gs::device_overlap exchange{aside, gs::staged{comm}, layers, plan, of_device(aside), planned};
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
    exchange.wait();
    expected.exchange(comm, values);
    found.expect(steps::same_bits(gradient.get(), values), "an update differs from the host's");
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
  gs::device_overlap exchange{gs::device{second}, gs::self{}, layers, plan, on_device(gs::device{second}), order};
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
  gs::device_overlap exchange{gs::device{second}, gs::self{}, layers, plan, make};
  CHECK(steps::ending([&] { exchange.ready(0); }).starts_with("invalid_argument: gradsieve: layer 0 is ready, but no"));
  CHECK(steps::ending([&] { exchange.wait(); }).starts_with("invalid_argument: gradsieve: wait(), but no step"));
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
