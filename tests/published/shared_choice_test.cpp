// Places that a seed names, and sums without indices: random_k and shared_choice.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/published.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

constexpr std::uint64_t n = 5000;

/// A selector that says of itself what is not so.
struct own_choice : gs::random_k {
  template <class Workspace>
  [[nodiscard]] gs::index_type select(Workspace& work, gs::accumulator_ref const acc, gs::index_type k,
                                      gs::selection_span out) const {
    return work.compact(acc, work.kth_largest(acc, k), out);
  }
};

/// `bytes_each`: of an entry, with one rank.
template <class Codec>
std::string exchanged(int world, Codec codec, std::uint64_t bytes_each) {
  return joined(on_ranks(world, [&](communicator comm) {
    findings found;
    gs::recipe const recipe{
        .density = 0.05, .selector = gs::random_k{.seed = 3}, .codec = codec, .exchange = gs::shared_choice{}};
    gs::compressor compressor{gs::host{2}, gs::layout::flat(n), recipe};
    auto const k = gs::budget_of(0.05, n);
    std::vector<std::vector<float>> residuals(at(world), std::vector<float>(n));
    for (std::uint64_t step = 0; step < 6; ++step) {
      auto update = gradient(n, comm.rank(), step);
      std::vector<double> came(n);
      auto const before = residual_of(compressor);
      for (std::size_t i = 0; i < n; ++i) came[i] = static_cast<double>(before[i]) + static_cast<double>(update[i]);
      auto const report = compressor.exchange(comm, std::span{update});
      auto const after = residual_of(compressor);
      found.expect(report.selected == k && report.union_size == k, "k entries");
      if (world == 1)
        found.expect(report.bytes_sent == (step == 0 ? 64 : 32) + bytes_each * k, std::to_string(report.bytes_sent));
      // Mass: what all ranks gave up is the update times their number.
      std::vector<double> gave(n);
      for (std::size_t i = 0; i < n; ++i) gave[i] = came[i] - static_cast<double>(after[i]);
      comm.all_reduce(gs::host{1}, std::span{gave}, gs::reduction::sum);
      double worst = 0;
      for (std::size_t i = 0; i < n; ++i)
        worst = std::max(worst, std::abs(gave[i] - static_cast<double>(update[i]) * world));
      found.expect(worst < 1e-5, "mass: " + std::to_string(worst));
      std::vector<std::uint64_t> hashes(at(world));
      auto const mine = hash(update);
      comm.all_gather(gs::host{1}, std::as_bytes(std::span{&mine, 1}), std::as_writable_bytes(std::span{hashes}));
      found.expect(std::ranges::all_of(hashes, [&](auto each) { return each == mine; }), "the ranks' bits");
    }
    return found.text();
  }));
}

}  // namespace

TEST_CASE("random_places rise, lie in strips, and meet every element") {
  for (std::uint64_t const size : {1u, 7u, 1000u, 4'294'967'295u})
    for (std::uint64_t const k : {1u, 3u, 7u, 1000u}) {
      if (k > size) continue;
      gs::detail::random_places const places{size, k, 11};
      for (std::uint64_t j = 0; j < k; ++j) {
        REQUIRE(places[j] >= j * size / k);
        REQUIRE(places[j] < (j + 1) * size / k);
      }
    }
  std::array<int, 100> met{};
  for (std::uint64_t step = 0; step < 10'000; ++step) {
    gs::detail::random_places const places{100, 10, gs::mix(step)};
    for (std::uint64_t j = 0; j < 10; ++j) ++met[places[j]];
  }
  for (int const each : met) CHECK(std::abs(each - 1000) < 150);  // five standard deviations
}

TEST_CASE("no index is sent, and the ranks give up what they get") {
  for (int const world : {1, 2, 3, 4}) {
    CAPTURE(world);
    CHECK(exchanged(world, gs::coo{}, 4) == "");
    CHECK(exchanged(world, gs::packed{.values = gs::fp16{}}, 2) == "");
  }
}

TEST_CASE("ranks that choose otherwise throw") {
  for (auto const& each : on_ranks(2, [&](communicator comm) -> std::string {
         gs::recipe const recipe{.density = 0.05, .selector = own_choice{}, .exchange = gs::shared_choice{}};
         gs::compressor compressor{gs::host{1}, gs::layout::flat(n), recipe};
         auto update = gradient(n, comm.rank(), 0);
         try {
           compressor.exchange(comm, std::span{update});
         } catch (gs::mismatch const& why) {
           return why.what();
         }
         return "";
       }))
    CHECK(each.starts_with("gradsieve: rank 1 and rank 0 chose different places"));
}

TEST_CASE("a seed names the places: the same again, and others by another seed, step and segment") {
  auto const places = [&](std::uint32_t seed, int steps) {
    gs::recipe const recipe{.density = 0.05, .selector = gs::random_k{seed}, .partitioner = gs::layerwise{}};
    gs::compressor compressor{gs::host{2}, gs::layout{{"a", 1000}, {"b", 1000}}, recipe};
    std::vector<gs::index_type> found;
    for (int s = 0; s < steps; ++s) {
      auto const values = gradient(2000, 0, 1);
      auto const got = compressor.compress(std::span{values});
      found.assign(got.indices.begin(), got.indices.end());
    }
    return found;
  };
  auto const first = places(1, 1);
  REQUIRE(first.size() == 100);
  CHECK(places(1, 1) == first);
  CHECK(places(2, 1) != first);
  CHECK(places(1, 2) != first);
  bool same = true;
  for (std::size_t i = 0; i < 50; ++i) same = same && first[50 + i] == first[i] + 1000;
  CHECK(!same);
}
