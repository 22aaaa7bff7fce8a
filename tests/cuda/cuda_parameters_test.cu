// Exchanged parameters and second moments on a device: the host's bits, whatever happens, and about the host's factors.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gradsieve/parameters.cuh>

#include "gpu.cuh"

using namespace gpu;

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();
gs::recipe const usual{.density = 0.03};

template <class T>
std::vector<T> first_parameters() {
  std::vector<T> made(n);
  for (std::size_t i = 0; i < n; ++i) made[i] = gs::from_float<T>(static_cast<float>(gs::mix(i) % 1000) / 1000.0f);
  return made;
}

/// What an optimizer does, on both sides.
template <class T>
void change(std::vector<T>& own, int rank, std::uint64_t step) {
  auto const by = steps::gradient(n, rank, step);
  for (std::size_t i = 0; i < n; ++i) own[i] = gs::from_float<T>(gs::to_float(own[i]) + 0.01f * by[i]);
}

/// A rank on both sides.
template <class T>
struct pair {
  stream own_stream;
  poisoned_memory memory;
  gs::device where{own_stream, &memory, search_blocks()};
  std::vector<T> host_own = first_parameters<T>();
  array<T> device_own{where, host_own};
  gs::parameter_options options{};
  gs::parameter_exchange<gs::compressor<gs::host, std::remove_const_t<decltype(usual)>>, T> host{
      gs::compressor{gs::host{.threads = 1}, layers, usual}, std::span<T const>{host_own}, options};
  gs::parameter_exchange<gs::compressor<gs::device, std::remove_const_t<decltype(usual)>>, T> device{
      gs::compressor{where, layers, usual}, std::span<T const>{device_own.span()}, options};

  explicit pair(float momentum = 0.9f) : options{.momentum = momentum} {}

  void step(int rank, std::uint64_t number) {
    change(host_own, rank, number);
    device_own.put(host_own);
  }
  [[nodiscard]] bool same() const {
    return steps::same_bits(device_own.get(), host_own) &&
           steps::same_bits(fetched(where, device.common().data(), n),
                            std::vector<float>(host.common().begin(), host.common().end()));
  }
};

}  // namespace

TEST_CASE("the host's bits, over skipped layers, weights, NaN, a failed rank, a discarded step and a checkpoint") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    pair<float> both;
    gs::staged const transport{comm};
    for (std::uint64_t step = 0; step < 9; ++step) {
      both.step(comm.rank(), step);
      if (step == 4) {
        both.host_own[17] = std::numeric_limits<float>::quiet_NaN();
        both.device_own.put(both.host_own);
      }
      if (step == 3) {  // rank 1 fails
        auto const host = steps::ending([&] {
          comm.rank() == 1 ? both.host.fail(comm, both.host_own)
                           : static_cast<void>(both.host.exchange_parameters(comm, both.host_own));
        });
        auto const device = steps::ending([&] {
          if (comm.rank() == 1)
            both.device.fail(transport, both.device_own.span());
          else
            static_cast<void>(both.device.exchange_parameters(transport, both.device_own.span()).get());
        });
        found.expect(host.empty() == (comm.rank() == 1), "the host's failure: " + host);
        found.expect(device.empty() == (comm.rank() == 1), "the device's failure: " + device);
      } else if (step == 5) {
        both.host.compressor().exchange(comm, both.host.take_update(both.host_own));
        both.host.discard_step(both.host_own);
        both.device.compressor().exchange(transport, both.device.take_update(both.device_own.span()));
        both.device.discard_step(both.device_own.span());
      } else if (step == 6) {
        auto const saved = both.device.state();
        both.device.restore(saved, both.device_own.span());
        both.host.restore(saved, both.host_own);  // of the device
        both.device.rescale(0.5f, both.device_own.span());
        both.host.rescale(0.5f, both.host_own);
      } else {
        std::vector<unsigned char> skipped(step == 2 ? layers.count() : 0);
        for (std::size_t i = 0; i < skipped.size(); ++i) skipped[i] = i % 3 == 0;
        double const weight = step < 7 ? 2.0 : step == 7 ? 1.0 + 2 * comm.rank() : comm.rank();
        float const factor = gs::mean_factor(comm, weight);
        found.expect(gs::mean_factor(gs::through_device{both.where, transport}, weight) == factor, "a device's factor");
        auto const host = both.host.exchange_parameters(comm, both.host_own, skipped, factor);
        gs::step_report const device =
            both.device.exchange_parameters(transport, both.device_own.span(), skipped, factor);
        found.expect(host.non_finite == (step == 4 ? 1u : 0u) && device.non_finite == host.non_finite, "non-finite");
        found.expect(device.selected == host.selected, "selected");
      }
      found.expect(both.same(), "other bits after step " + std::to_string(step));
      both.device.check_common(transport);
    }
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}

TEST_CASE("a rank whose update is still taken, or that has another size, fails on all ranks") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    pair<float> both{0.0f};
    gs::staged const transport{comm};
    bool const odd = comm.rank() == 1;
    for (std::uint64_t step = 0; step < 4; ++step) {
      both.step(comm.rank(), step);
      auto const values = both.device_own.span();
      bool const compressed = step == 1;
      if (compressed) {
        both.device.compressor().exchange(transport, both.device.take_update(values));
        if (!odd) both.device.apply_mean(values, 2);
        both.host.exchange_parameters(comm, both.host_own);
      } else if (odd && step < 3) {
        both.device.take_update(values);
      }
      auto const how = steps::ending([&] {
        if (step == 2 && odd)
          both.device.fail(transport, values);
        else
          static_cast<void>(
              both.device.exchange_parameters(transport, odd && step == 3 ? values.first(9) : values).get());
      });
      found.expect(steps::contains(how, !odd        ? "rank 1"
                                        : step == 3 ? "9 own parameters"
                                                    : "an update was taken already"),
                   how);
      if (odd && step < 3) compressed ? both.device.apply_mean(values, 2) : both.device.discard_step(values);
      both.device.check_common(transport);
      static_cast<void>(both.device.exchange_parameters(transport, values).get());
    }
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}

TEST_CASE("16-bit parameters, alone: the host's bits") {
  pair<gs::bfloat16> both;
  for (std::uint64_t step = 0; step < 4; ++step) {
    both.step(0, step);
    both.host.exchange_parameters(gs::self{}, both.host_own);
    both.device.exchange_parameters(gs::self{}, both.device_own.span());
    CHECK(both.same());
  }
}

TEST_CASE("in a graph, and without an allocation") {
  pair<float> both;
  auto const exchange = [&] { both.device.exchange_parameters(gs::self{}, both.device_own.span()); };
  auto const step = [&](std::uint64_t number, auto const& on_device) {
    both.step(0, number);
    both.host.exchange_parameters(gs::self{}, both.host_own);
    on_device();
    CHECK(both.same());
  };
  step(0, exchange);
  auto const before = both.memory.allocations;
  step(1, exchange);
  graph const captured{both.own_stream, exchange};
  for (std::uint64_t s = 2; s < 5; ++s) step(s, [&] { captured.launch(); });
  CHECK(both.memory.allocations == before);
}

TEST_CASE("second moments: about the host's factors and norm; a checkpoint goes to either side") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    poisoned_memory memory;
    gs::device const where{own, &memory};
    gs::staged const transport{comm};
    gs::moment_options const options{.density = 0.02, .every = 2, .seed = 3};
    gs::second_moments host{gs::host{.threads = 1}, layers, options};
    gs::second_moments device{where, layers, options};
    array<float> const gradient{where, n};
    auto const near = [](float a, float b) { return std::abs(a - b) <= 1e-5f * std::abs(b); };
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto values = steps::gradient(n, comm.rank(), step);
      for (float& x : values) x *= step == 1 ? 0x1p70f : step == 4 ? 0x1p-90f : 1.0f;  // squares beyond binary32
      gradient.put(values);
      host.measure(comm, values);
      device.measure(transport, gradient.span());
      auto const factors = fetched(where, device.factors().data(), layers.count());
      for (std::size_t l = 0; l < factors.size(); ++l)
        found.expect(near(factors[l], host.factors()[l]), "factor of layer " + std::to_string(l));
      found.expect(near(device.norm(), host.norm()),
                   "norm: " + std::to_string(device.norm()) + " for " + std::to_string(host.norm()));
      found.expect(device.bytes() == host.bytes(), "bytes");
      host.clip(values, host.norm() / 4);
      device.clip(gradient.span(), host.norm() / 4);
      auto const clipped = gradient.get();
      for (std::size_t i = 0; i < n; ++i) found.expect(near(clipped[i], values[i]), "clipped " + std::to_string(i));
      if (step == 3) {
        auto const saved = host.state();
        device.restore(saved);
        found.expect(device.state() == saved, "a checkpoint of the host is another on the device");
        host.restore(saved);
      }
    }
    auto const wrong = steps::ending([&] {
      device.measure(transport, comm.rank() == 1 ? gradient.span().first(9) : gradient.span());
    });
    found.expect(wrong.empty() == (comm.rank() == 0) && !gs::is_finite(device.norm()), "another size: " + wrong);
    gs::second_moments other{where, layers, {.window = comm.rank() == 0 ? 5u : 50u}};
    auto const how = steps::ending([&] { other.measure(transport, gradient.span()); });
    found.expect(steps::contains(how, "differ in their options"), how);
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}
