// The exchanges `reduce_scatter` and `coded_all_reduce` on a device: the host's bits where slots suffice, and nothing
// lost where they do not.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/published.cuh>

#include "gpu.cuh"

using namespace gpu;

namespace stand_in {

/// The first of ranks that all have the same gradient.
struct one_of_alike {
  int ranks;

  [[nodiscard]] static int rank() { return 0; }
  [[nodiscard]] int size() const { return ranks; }
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    for (std::size_t at = 0; at < all.size(); at += mine.size())
      gs::self{}.all_gather(where, mine, all.subspan(at, mine.size()));
  }
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const>) const {
    all_gather(where, mine, all);
  }
  template <class Space>
  void all_to_all(Space const& where, std::span<std::byte const> out, std::span<std::size_t const> sizes,
                  std::span<std::byte> in, std::span<std::size_t const>) const {
    all_gather(where, out.first(sizes[0]), in);
  }
  template <class Space, class T, std::size_t Extent>
  void all_reduce(Space const&, std::span<T, Extent>, gs::reduction) const {}

  static constexpr bool stream_ordered = true;
};

}  // namespace stand_in

namespace {

auto const layers = steps::mixed_layers();
auto const n = layers.size();

template <class T = float, class Recipe>
void same(Recipe const& recipe, int ranks, gs::layout const& about = layers) {
  CAPTURE(ranks);
  same_on_ranks<T>(recipe, about, ranks, 4,
                   [&](int rank, std::uint64_t step) { return steps::gradient(about.size(), rank, step); });
}

/// Kernels of a step on so many ranks.
template <class Exchange, class Codec>
std::size_t kernels_on(int ranks) {
  stream const own;
  gs::device const where{own};
  stand_in::one_of_alike const comm{ranks};
  gs::compressor device{where, gs::layout::flat(8192),
                        gs::recipe{.density = 0.03, .codec = Codec{}, .exchange = Exchange{}}};
  array<float> const gradient{where, steps::gradient(8192, 0, 0)};
  device.connect(comm);
  CHECK(device.exchange(comm, gradient.span()).get().union_size > 0);
  return graph{own, [&] { device.exchange(comm, gradient.span()); }}.kernels();
}

}  // namespace

TEST_CASE("coo: whole, and deft, whose ranks may select from one shard alone") {
  for (int const ranks : {1, 2, 3}) same(gs::recipe{.density = 0.03, .exchange = gs::reduce_scatter{}}, ranks);
  auto const no_short_layers = gs::layout{{"a", 3000}, {"b", 2000}, {"c", 4000}};  // none is sent in full
  same<gs::bfloat16>(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .exchange = gs::reduce_scatter{}}, 3,
                     no_short_layers);
}

TEST_CASE("codecs that read the layers, round at random or have chunks see the shard") {
  same(gs::recipe{.density = 0.03,
                  .residual = gs::momentum_correction{},
                  .codec = gs::packed<gs::raw32, gs::ternary>{},
                  .exchange = gs::reduce_scatter{}},
       3);
  auto const noisy = gs::recipe{.density = 0.03,
                                .selector = gs::laplacian{},
                                .partitioner = gs::layerwise{},
                                .codec = gs::packed<gs::fixed_width, gs::qsgd>{},
                                .exchange = gs::reduce_scatter{}};
  same(noisy, 2);
  for (std::uint64_t const size : {1030u, 5u, 2u, 0u})  // the last shards have fewer chunks, or nothing
    same(noisy, 4, gs::layout::flat(size));
}

TEST_CASE("coded_all_reduce") {
  auto const no_short_layers = gs::layout{{"a", 3000}, {"b", 2000}, {"c", 4000}};  // none is sent in full
  gs::coded_all_reduce const all{.returned = 8};
  auto const evenly = [](int rank, std::uint64_t step) {  // so that a shard's sums have room; without zeros
    data::generator random{step * 31 + steps::at(rank)};
    std::vector<float> values(n);
    for (auto& each : values) each = static_cast<float>(random.laplace());
    return values;
  };
  for (int const ranks : {1, 2, 3})
    same_on_ranks(gs::recipe{.density = 0.03, .exchange = gs::coded_all_reduce{}}, layers, ranks, 4, evenly);
  auto const large = gs::layout::flat(60'000);  // several blocks search 9,000 sums of a shard, most of them equal
  same_on_ranks(gs::recipe{.density = 0.3, .exchange = gs::coded_all_reduce{.returned = 0.5}}, large, 2, 1,
                [&](int rank, std::uint64_t) {
                  data::generator random{steps::at(rank) + 7};
                  std::vector<float> values(large.size());
                  for (std::size_t i = 0; i < values.size(); ++i)
                    if (i % 10 < 3) values[i] = std::round(3 * static_cast<float>(random.laplace())) + 0.5f;
                  return values;
                });
  same_on_ranks(
      gs::recipe{.density = 1, .codec = gs::packed<gs::elias_fano, gs::int4>{}, .exchange = gs::coded_all_reduce{}},
      gs::layout::flat(n), 3, 4, evenly);
  same(gs::recipe{.density = 0.03, .codec = gs::packed<gs::elias_fano, gs::sign>{}, .exchange = all}, 3);
  same(gs::recipe{.density = 0.03, .exchange = all, .passthrough = {.patterns = {"*"}}}, 2);  // no entries
  same(gs::recipe{.density = 0.03,
                  .residual = gs::momentum_correction{},
                  .codec = gs::packed<gs::fixed_width, gs::int4>{},
                  .exchange = gs::coded_all_reduce{.returned = 0.5}},
       3);
  same<gs::bfloat16>(gs::recipe{.density = 0.03, .partitioner = gs::deft{}, .exchange = gs::coded_all_reduce{}}, 3,
                     no_short_layers);
}

TEST_CASE_TEMPLATE("more entries than a slot has room for: the others stay in the residual, and have their turn",
                   exchange_type, gs::reduce_scatter, gs::coded_all_reduce) {
  constexpr bool in_shards = std::is_same_v<exchange_type, gs::reduce_scatter>;
  constexpr int ranks = 4;
  constexpr std::uint64_t size = 20'000;
  constexpr std::uint64_t given_steps = 3;
  auto const about = gs::layout::flat(size);
  auto const recipe = gs::recipe{.density = 0.1, .exchange = exchange_type{}};
  // Whole numbers, so that sums are exact; all of them in the second shard.
  auto const value = [](int rank, std::uint64_t step, std::size_t i) {
    bool const here = i / (size / ranks) == 1 && step < given_steps;
    return here ? static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(rank) + step) % 15) - 7) : 0.0f;
  };
  std::vector<std::vector<double>> balance(ranks, std::vector<double>(size));
  auto const said = steps::on_ranks(ranks, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::staged const transport{comm};
    gs::compressor device{where, about, recipe};
    array<float> const gradient{where, size};
    auto& mine = balance[steps::at(comm.rank())];
    for (std::uint64_t step = 0; step < (in_shards ? 16 : 24); ++step) {
      std::vector<float> values(size);
      for (std::size_t i = 0; i < size; ++i) mine[i] += values[i] = value(comm.rank(), step, i);
      gradient.put(values);
      auto const report = device.exchange(transport, gradient.span()).get();
      bool const full = report.selected > 1000 && report.selected < 1100;  // 2 k / P + 64
      if (step == 0) found.expect(full, "sent " + std::to_string(report.selected));
      auto const update = gradient.get();
      auto const returned = std::ranges::count_if(update, [](float x) { return x != 0; });
      if (!in_shards) found.expect(returned < 1100, "returned " + std::to_string(returned));
      for (std::size_t i = 0; i < size; ++i) {
        bool const is_mine = i / (size / ranks) == steps::at(comm.rank());
        if (in_shards && update[i] != 0) found.expect(is_mine, "an update elsewhere");
        if (is_mine) mine[i] -= ranks * update[i];
      }
      if (step == given_steps) {
        auto const left = fetched(where, device.residual().data(), size);
        found.expect(std::ranges::any_of(left, [](float x) { return x != 0; }), "nothing was left");
      }
    }
    auto const left = fetched(where, device.residual().data(), size);
    found.expect(std::ranges::all_of(left, [](float x) { return x == 0; }), "an entry had no turn");
    return found.text();
  });
  CHECK(steps::joined(said) == "");
  for (std::size_t i = 0; i < size; ++i) {
    double total = 0;
    for (auto const& each : balance) total += each[i];
    if (total != 0) FAIL_CHECK("element " << i << " has " << total);
  }
}

TEST_CASE_TEMPLATE("small: one rank with itself, by a call and then by a graph", exchange_type, gs::reduce_scatter,
                   gs::coded_all_reduce) {
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory};
  auto const recipe = gs::recipe{.density = 0.03, .exchange = exchange_type{}};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  array<float> const gradient{where, n};
  auto const step = [&](std::uint64_t at, auto const& exchange) {
    auto expected = steps::gradient(n, 0, at);
    gradient.put(expected);
    host.exchange(gs::self{}, std::span{expected});
    exchange();
    CHECK(steps::same_bits(gradient.get(), expected));
  };
  auto const call = [&] { device.exchange(gs::self{}, gradient.span()); };
  device.connect(gs::self{});
  auto const before = memory.allocations;
  step(0, call);
  graph const captured{own, call};
  for (std::uint64_t at = 1; at < 4; ++at) step(at, [&] { captured.launch(); });
  CHECK(memory.allocations == before);
  CHECK(steps::same_bits(steps::states_of(device), steps::states_of(host)));
}

TEST_CASE_TEMPLATE("small: more ranks are no more launches", exchange_type, gs::reduce_scatter, gs::coded_all_reduce) {
  auto const same_kernels = []<class Codec>(Codec) {
    auto const on_two = kernels_on<exchange_type, Codec>(2);
    CHECK(kernels_on<exchange_type, Codec>(8) == on_two);
    return on_two;
  };
  bool const twice = std::is_same_v<exchange_type, gs::coded_all_reduce>;
  CHECK(same_kernels(gs::coo{}) <= (twice ? 25 : 11));
  CHECK(same_kernels(gs::packed<gs::elias_fano, gs::sign>{}) <= (twice ? 31 : 14));
  CHECK(same_kernels(gs::packed<gs::fixed_width, gs::fp16>{}) <= (twice ? 31 : 14));
}

TEST_CASE_TEMPLATE(
    "a rank that fails: the others throw with its number, nothing is given up; bytes are those that moved",
    exchange_type, gs::reduce_scatter, gs::coded_all_reduce) {
  auto const recipe = gs::recipe{.density = 0.03, .exchange = exchange_type{}, .passthrough = {.patterns = {}}};
  auto const said = steps::on_ranks(3, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    gs::device const where{own};
    gs::staged const transport{comm};
    gs::compressor device{where, layers, recipe};
    device.connect(transport);
    array<float> const gradient{where, steps::gradient(n, comm.rank(), 0)};
    steps::traffic moved;
    auto const report = device.exchange(gs::staged{steps::counting{comm, &moved}}, gradient.span()).get();
    found.expect(report.bytes_sent == moved.sent && report.bytes_received == moved.received, "bytes");
    auto expected = fetched(where, device.residual().data(), n);
    auto const given = steps::gradient(n, comm.rank(), 1);
    gradient.put(given);
    if (comm.rank() == 1) {
      device.fail(transport, gradient.span());
    } else {
      for (std::size_t i = 0; i < n; ++i) expected[i] += given[i];
      auto const ends = steps::ending([&] { static_cast<void>(device.exchange(transport, gradient.span()).get()); });
      found.expect(ends == "communication_error: gradsieve: rank 1 failed in this step; nothing was sent", ends);
    }
    found.expect(steps::same_bits(fetched(where, device.residual().data(), n), expected), "something was given up");
    gradient.put(steps::gradient(n, comm.rank(), 2));
    found.expect(device.exchange(transport, gradient.span()).get().union_size > 0, "nothing was sent");
    return found.text();
  });
  CHECK(steps::joined(said) == "");
}
