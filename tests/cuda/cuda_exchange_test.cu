// Exchanges on a device: ranks that are threads, staged through the host, end with the host's bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/published.cuh>

#include "gpu.cuh"

using namespace gpu;

/// A communicator that damages a byte of what it gathers, once.
template <class Inner>
struct damaging {
  static constexpr bool stream_ordered = true;
  Inner inner;
  std::size_t* countdown;
  std::size_t place;

  [[nodiscard]] int rank() const { return inner.rank(); }
  [[nodiscard]] int size() const { return inner.size(); }
  template <class T>
  void all_reduce(gs::device const& where, std::span<T> in_out, gs::reduction how) const {
    inner.all_reduce(where, in_out, how);
  }
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    inner.all_gather(where, mine, all);
    if ((*countdown)-- != 1) return;
    auto bytes = fetched(where, all.data(), all.size());
    bytes[place] ^= std::byte{0x40};
    where.copy(bytes, all);
    where.synchronize();
  }
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    inner.all_gather(where, mine, all, sizes);
  }
};

/// The same, and all_gather throws while `broken`.
template <class Inner>
struct breaking : damaging<Inner> {
  bool* broken;

  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    if (*broken) throw gs::communication_error("this transport breaks");
    damaging<Inner>::all_gather(where, mine, all);
  }
  using damaging<Inner>::all_gather;
};

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

template <class T = float, class Recipe>
void same_on_ranks(Recipe const& recipe, int ranks, std::uint64_t count = 4) {
  gpu::same_on_ranks<T>(recipe, layers, ranks, count,
                        [](int rank, std::uint64_t step) { return steps::gradient(n, rank, step); });
}

}  // namespace

TEST_CASE("gather, with layers that pass through") {
  for (int const ranks : {1, 3}) same_on_ranks(gs::recipe{.density = 0.03}, ranks);
  same_on_ranks<gs::bfloat16>(gs::recipe{.density = 0.03, .residual = gs::momentum_correction{}}, 2);
}

TEST_CASE("segments that are sent in full") {
  same_on_ranks(gs::recipe{.density = 1.0}, 2, 2);  // with layers that pass through
  same_on_ranks(gs::recipe{.density = 1.0, .partitioner = gs::layerwise{}}, 2, 2);
  same_on_ranks(gs::recipe{.density = 0.02, .partitioner = gs::layerwise{}}, 2, 2);
}

TEST_CASE("deft and the union of indices") {
  for (int const ranks : {1, 2, 4}) same_on_ranks(gs::recipe{.density = 0.03, .partitioner = gs::deft{}}, ranks);
  same_on_ranks(gs::recipe{.density = 0.03, .partitioner = gs::deft{.rotate_every = 1}}, 4);
  same_on_ranks(
      gs::recipe{.density = 0.03, .partitioner = gs::deft{.sharing = gs::deft_sharing::by_fragment, .rotate_every = 2}},
      3);
  same_on_ranks(gs::recipe{.density = 0.9, .partitioner = gs::deft{}, .residual = gs::momentum_correction{}}, 2);
  same_on_ranks(gs::recipe{.density = 0.03, .exchange = gs::index_union{}}, 3);
}

TEST_CASE("values that a format or a sum cannot hold: cut and counted as on the host, and the updates are finite") {
  float const largest = gs::largest_value<float>;
  auto const scaled = [&](float most) {
    return [=](int rank, std::uint64_t step) {
      auto values = steps::gradient(n, rank, step);
      for (std::size_t i = 0; i < n; ++i) values[i] = i % 7 == step % 3 ? (i % 2 == 0 ? most : -most) : values[i];
      return values;
    };
  };
  auto const halves = scaled(60000.0f);
  gpu::same_on_ranks<gs::float16>(gs::recipe{.density = 0.03}, layers, 2, 4, halves);
  gpu::same_on_ranks<gs::float16>(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}}, layers, 2, 4, halves);
  gpu::same_on_ranks<float>(
      gs::recipe{.density = 0.03, .codec = gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}}}, layers, 2,
      4, scaled(90000.0f));
  auto const huge = scaled(0.45f * largest);
  gpu::same_on_ranks<float>(gs::recipe{.density = 0.03}, layers, 3, 4, huge);
  gpu::same_on_ranks<float>(gs::recipe{.density = 0.03, .exchange = gs::index_union{}}, layers, 3, 4, huge);
  gpu::same_on_ranks<gs::bfloat16>(gs::recipe{.density = 0.03, .partitioner = gs::deft{}}, layers, 2, 4, huge);
}

TEST_CASE("a rank that is restored while the others go on: all throw, and all can go on together") {
  auto const check = [](auto const& recipe) {
    auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
      steps::findings found;
      stream const own;
      gs::device const where{own};
      gs::staged const transport{comm};
      gs::compressor device{where, layers, recipe};
      array<float> const gradient{where, n};
      std::vector<std::byte> saved;
      for (std::uint64_t step = 0; step < 3; ++step) {
        gradient.put(steps::gradient(n, comm.rank(), step));
        static_cast<void>(device.exchange(transport, gradient.span()).get());
        if (step == 0) saved = device.state();
      }
      if (comm.rank() == 1) device.restore(saved);
      gradient.put(steps::gradient(n, comm.rank(), 3));
      auto const how = steps::ending([&] { static_cast<void>(device.exchange(transport, gradient.span()).get()); });
      found.expect(steps::contains(how, "mismatch: gradsieve: "), "said " + how);
      device.restore(saved);
      gradient.put(steps::gradient(n, comm.rank(), 1));
      auto const again = steps::ending([&] { static_cast<void>(device.exchange(transport, gradient.span()).get()); });
      found.expect(again.empty(), "said " + again);
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
}

TEST_CASE("small: directories of updates whose entries crowd, with thousands of empty cells") {
  stream const own;
  gs::device const where{own};
  constexpr std::uint32_t cells = 5000;
  constexpr auto all = gs::index_type{cells} * gs::cuda_kernels::cell_size;
  // A sender's entries: so many, one after the other, from an element on.
  std::vector<std::vector<gs::index_type>> senders;
  for (auto const& [begin, count] : {std::pair{0u, 6000u}, {all / 2, 6000u}, {all - 6000, 6000u}, {all / 4 + 7, 3u},
                                     {all - 1, 1u}, {0u, 1u}, {0u, 0u}}) {
    senders.emplace_back(count);
    std::iota(senders.back().begin(), senders.back().end(), begin);
  }
  senders[1].insert(senders[1].begin(), {3, gs::cuda_kernels::cell_size, 2 * gs::cuda_kernels::cell_size - 1});
  senders[1].push_back(all - 1);
  std::vector<array<gs::index_type>> indices;
  std::vector<array<std::uint32_t>> directories;
  std::vector<gs::cuda_kernels::update> updates;
  for (auto const& each : senders) {
    indices.emplace_back(where, each);
    directories.emplace_back(where, std::vector<std::uint32_t>(cells + 2, 77));
    updates.push_back({indices.back().span().data(), nullptr, static_cast<std::uint32_t>(each.size()),
                       directories.back().span().data()});
  }
  array<gs::cuda_kernels::update> const at{where, updates};
  array<std::uint32_t> const own_cells{where, cells + 2};
  array<std::uint64_t> const error{where, std::vector<std::uint64_t>{0}};
  for (bool const fails : {false, true})
    for (unsigned const blocks : {1u, 3u, 64u}) {
      CAPTURE(fails);
      std::vector<std::uint32_t> const before(cells + 2, 77);
      for (auto const& each : directories) each.put(before);
      own_cells.put(before);
      error.put({fails ? 1u : 0u});
      gs::cuda_kernels::end_exchange<><<<blocks, 256, 0, own>>>(
          nullptr, at.span().data(), static_cast<std::uint32_t>(updates.size()), error.span().data(),
          {{nullptr, nullptr, nullptr, own_cells.span().data()}, cells, true, nullptr, nullptr});
      for (std::size_t s = 0; s < senders.size(); ++s) {
        CAPTURE(s);
        auto expected = before;
        for (std::uint32_t c = 0; c <= cells; ++c) {
          auto const in_earlier = [&](gs::index_type i) { return i / gs::cuda_kernels::cell_size < c; };
          expected[c] = fails ? 0 : static_cast<std::uint32_t>(std::ranges::count_if(senders[s], in_earlier));
        }
        CHECK(directories[s].get() == expected);
      }
      auto expected = before;
      if (fails) std::fill_n(expected.begin(), cells + 1, 0u);
      CHECK(own_cells.get() == expected);
    }
}

TEST_CASE("small: one rank with itself, call by call and then by a graph") {
  auto const check = [](auto const& recipe) {
    stream const own;
    poisoned_memory memory;
    gs::device const where{own, &memory};
    gs::compressor host{gs::host{}, layers, recipe};
    gs::compressor device{where, layers, recipe};
    array<float> const gradient{where, n};
    auto const step = [&](std::uint64_t at, auto const& exchange) {
      auto expected = steps::gradient(n, 0, at);
      gradient.put(expected);
      auto const of_host = host.exchange(gs::self{}, std::span{expected});
      exchange();
      CHECK(steps::same_bits(gradient.get(), expected));
      gs::step_report const report = device.report();
      CHECK(report.union_size == of_host.union_size);
      CHECK(report.step == at);
      CHECK_FALSE(report.staged);
    };
    auto const call = [&] { device.exchange(gs::self{}, gradient.span()); };
    for (std::uint64_t at = 0; at < 2; ++at) step(at, call);
    auto const before = memory.allocations;
    graph const captured{own, call};
    for (std::uint64_t at = 2; at < 5; ++at) step(at, [&] { captured.launch(); });
    CHECK(memory.allocations == before);
    CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.03, .codec = gs::packed{.indices = gs::raw32{}, .values = gs::ternary{}}});
  check(gs::recipe{.density = 0.03, .codec = gs::packed{.indices = gs::fixed_width{}, .values = gs::fp16{}}});
  check(gs::recipe{.density = 0.03, .codec = gs::packed{.indices = gs::fixed_width{}, .values = gs::int2{}}});
  check(gs::recipe{.density = 0.03, .codec = gs::packed<gs::raw32, gs::bf16>{}, .exchange = gs::index_union{}});
}

TEST_CASE("a report's bytes are those that went through the communicator, all of them") {
  auto const check = [](auto const& recipe) {
    auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
      steps::findings found;
      stream const own;
      gs::device const where{own};
      gs::compressor device{where, layers, recipe};
      device.connect(gs::staged{comm});
      array<float> const gradient{where, n};
      for (std::uint64_t step = 0; step < 2; ++step) {
        gradient.put(steps::gradient(n, comm.rank(), step));
        steps::traffic moved;
        auto const report = device.exchange(gs::staged{steps::counting{comm, &moved}}, gradient.span()).get();
        found.expect(report.bytes_sent == moved.sent, "sent");
        found.expect(report.bytes_received == moved.received, "received");
      }
      return found.text();
    });
    CHECK(steps::joined(said) == "");
  };
  check(gs::recipe{.density = 0.03, .on_non_finite = gs::non_finite::fail});
  check(gs::recipe{.density = 0.03, .passthrough = {.patterns = {}}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
  check(gs::recipe{.density = 0.03, .exchange = gs::index_union{}});
  check(gs::recipe{.density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .codec = gs::packed<gs::raw32, gs::fp16>{}});
}

TEST_CASE("ranks that disagree throw in their first exchange") {
  auto const said = steps::on_ranks(2, [&](steps::communicator comm) {
    stream const own;
    gs::device const where{own};
    gs::compressor device{where, layers, gs::recipe{.density = comm.rank() == 0 ? 0.1 : 0.2}};
    array<float> const gradient{where, steps::gradient(n, comm.rank(), 0)};
    device.exchange(gs::staged{comm}, gradient.span());
    return std::string{};
  });
  for (auto const& each : said) CHECK(steps::contains(each, "differ in recipe or density"));
}

TEST_CASE("a damaged message: nothing is given up, and the report throws") {
  gs::device const where{};
  for (std::size_t const place : {0u, 16u + 1u, 16u + 25u, 16u + 48u + 1u, 16u + 48u + 4u * 135u + 2u}) {
    CAPTURE(place);
    gs::compressor host{gs::host{}, layers, gs::recipe{.density = 0.03}};
    gs::compressor device{where, layers, gs::recipe{.density = 0.03}};
    std::size_t countdown = 3;  // the first meeting, one good step, and the one that is damaged
    damaging<gs::self> const transport{gs::self{}, &countdown, place};
    array<float> const gradient{where, n};
    gradient.put(steps::gradient(n, 0, 0));
    static_cast<void>(device.exchange(transport, gradient.span()).get());
    auto values = steps::gradient(n, 0, 0);
    host.exchange(gs::self{}, std::span{values});
    gradient.put(steps::gradient(n, 0, 1));
    auto const report = device.exchange(transport, gradient.span());
    if (place == 0) {  // the one rank agrees with itself, whatever it decided
      CHECK_NOTHROW(static_cast<void>(report.get()));
      continue;
    }
    CHECK(steps::contains(steps::ending([&] { static_cast<void>(report.get()); }), "corrupt_message"));
    values = steps::gradient(n, 0, 1);
    host.compress(values);
    host.discard_step();
    CHECK(steps::same_bits(steps::residual_of(host), fetched(where, device.residual().data(), n)));
    gradient.put(steps::gradient(n, 0, 2));
    values = steps::gradient(n, 0, 2);
    host.exchange(gs::self{}, std::span{values});
    static_cast<void>(device.exchange(transport, gradient.span()).get());
    CHECK(steps::same_bits(gradient.get(), values));
  }
}

TEST_CASE("small: a damaged message that no report was read of is reported after a step that threw") {
  gs::device const where{};
  gs::compressor device{where, layers, gs::recipe{.density = 0.03}};
  std::size_t countdown = 3;
  bool broken = false;
  breaking<gs::self> const transport{{gs::self{}, &countdown, 16u + 25u}, &broken};
  array<float> const gradient{where, n};
  auto const step = [&](std::uint64_t number) {
    gradient.put(steps::gradient(n, 0, number));
    return device.exchange(transport, gradient.span());
  };
  auto const first = step(0).get();
  step(1);
  where.synchronize();
  broken = true;
  CHECK(steps::contains(steps::ending([&] { step(2); }), "this transport breaks"));
  broken = false;
  CHECK(steps::contains(steps::ending([&] { step(3); }), "corrupt_message"));
  CHECK(first.union_size > 0);
  CHECK_NOTHROW(static_cast<void>(step(4).get()));
}

TEST_CASE("a rank that fails: the others throw with its number, nothing is given up, and the next step works") {
  auto const check = [](auto const& recipe) {
    std::vector<std::vector<float>> updates(3);
    auto const said = steps::on_ranks(3, [&](steps::communicator comm) {
      steps::findings found;
      stream const own;
      gs::device const where{own};
      gs::staged const transport{comm};
      gs::compressor device{where, layers, recipe};
      array<float> const gradient{where, steps::gradient(n, comm.rank(), 0)};
      device.exchange(transport, gradient.span());
      auto expected = fetched(where, device.residual().data(), n);
      auto const given = steps::gradient(n, comm.rank(), 1);
      gradient.put(given);
      if (comm.rank() == 1) {
        device.fail(transport, gradient.span());
        found.expect(steps::ending([&] { static_cast<void>(device.report().get()); }) == "", "it knows");
      } else {
        for (std::size_t i = 0; i < n; ++i) expected[i] += given[i];
        auto const ends = steps::ending([&] { static_cast<void>(device.exchange(transport, gradient.span()).get()); });
        found.expect(ends == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent", ends);
        found.expect(gradient.get() == std::vector<float>(n), "an update that the residual has back");
      }
      found.expect(steps::same_bits(fetched(where, device.residual().data(), n), expected), "something was given up");
      device.discard_step();
      found.expect(steps::same_bits(fetched(where, device.residual().data(), n), expected), "something came back");
      found.expect(device.step() == 2, "another step");
      gradient.put(steps::gradient(n, comm.rank(), 2));
      auto const report = device.exchange(transport, gradient.span()).get();
      found.expect(report.union_size > 0, "nothing was sent");
      updates[steps::at(comm.rank())] = gradient.get();
      return found.text();
    });
    CHECK(steps::joined(said) == "");
    for (auto const& each : updates) CHECK(steps::same_bits(each, updates[0]));
  };
  check(gs::recipe{.density = 0.03});
  check(gs::recipe{.density = 0.03, .passthrough = {.patterns = {}}});
  check(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .on_non_finite = gs::non_finite::fail});
  check(gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}, .passthrough = {.patterns = {}}});
  check(gs::recipe{.density = 0.03, .exchange = gs::index_union{}, .passthrough = {.patterns = {}}});
  check(gs::recipe{
      .density = 0.03, .selector = gs::random_k{}, .exchange = gs::shared_choice{}, .passthrough = {.patterns = {}}});
  check(gs::recipe{.density = 0.03,
                   .partitioner = gs::cyclic{},
                   .codec = gs::packed<gs::raw32, gs::fp16>{},
                   .passthrough = {.patterns = {}}});
}

TEST_CASE("messages of one's own transport are the host's") {
  gs::device const where{};
  auto const recipe = gs::recipe{.density = 0.03};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  auto const values = steps::gradient(n, 0, 0);
  array<float> const gradient{where, values};
  auto const expected = host.encode(host.compress(values));
  auto const message = device.encode(device.compress(gradient.span()));
  auto bytes = fetched(where, message.data(), message.size());
  REQUIRE(bytes.size() >= expected.size());
  CHECK(steps::same_bits(std::span<std::byte const>{bytes}.first(expected.size()), expected));
  std::vector<float> update(n, 7.0f);
  array<float> const applied{where, update};
  std::vector<std::span<std::byte const>> const on_host{expected, expected};
  std::vector<std::span<std::byte const>> const on_device{message, message};
  gs::averager server{gs::host{}, layers};
  gs::averager device_server{where, layers};
  server.apply(on_host, update);
  device_server.apply(on_device, applied.span());
  CHECK(steps::same_bits(applied.get(), update));
  bytes[60] ^= std::byte{1};
  array<std::byte> const damaged{where, bytes};
  std::vector<std::span<std::byte const>> const one_bad{message, damaged.span()};
  CHECK_THROWS_AS(device_server.apply(one_bad, applied.span()), gs::corrupt_message);
  CHECK(steps::same_bits(applied.get(), update));
}
