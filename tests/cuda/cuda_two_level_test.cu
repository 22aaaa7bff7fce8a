// Two levels on a device: ranks that are threads, staged through the host, end with the host's bits.
#include <doctest/doctest.h>
#include <gradsieve/two_level.cuh>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu.cuh"
#include "nodes.hpp"

using namespace gpu;

/// Damages a byte of what it has gathered, in one call.
struct damaging : gs::staged<steps::communicator> {
  using base = gs::staged<steps::communicator>;
  int* countdown;

  damaging(steps::communicator const& comm, int* calls) : base{comm}, countdown{calls} {}

  using base::all_gather;
  void all_gather(gs::device const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    base::all_gather(where, mine, all);
    if ((*countdown)-- != 1) return;
    auto bytes = fetched(where, all.data(), all.size());
    bytes[bytes.size() / 2 + 40] ^= std::byte{0x40};
    where.copy(bytes, all);
    where.synchronize();
  }
};

namespace {

auto const recipe = gs::recipe{.density = 0.03};
gs::layout even_layers() { return {{"a", 1000}, {"b.bias", 40}, {"c", 3760}}; }

template <class T>
void same_as_host(nodes::shape of, gs::layout const& layers) {
  INFO(of.nodes << " x " << of.ranks << ", n " << layers.size());
  auto const n = layers.size();
  auto const said = nodes::run(of, [&](nodes::pair const& ranks) {
    steps::findings found;
    stream const own;
    poisoned_memory memory;
    gs::device const where{own, &memory, search_blocks()};
    gs::two_level const staged{gs::staged{ranks.inside}, gs::staged{ranks.across}};
    gs::two_level_compressor host{gs::host{.threads = 1}, layers, recipe, ranks};
    gs::two_level_compressor device{where, layers, recipe, staged};
    array<T> const gradient{where, n};
    std::uint64_t taken = 0;
    for (std::uint64_t step = 0; step < 4; ++step) {
      auto expected = data::as<T>(steps::gradient(n, ranks.rank(), step));
      gradient.put(expected);
      auto const of_host = host.exchange(ranks, expected);
      gs::step_report const report = device.exchange(staged, gradient.span());
      found.expect(steps::same_bits(gradient.get(), expected), "update of step " + std::to_string(step));
      found.expect(report.union_size == of_host.union_size && report.world == of.nodes, "report");
      if (step > 0) found.expect(memory.allocations == taken, "a warm step allocates");
      taken = memory.allocations;
    }
    found.expect(steps::same_bits(steps::states_of(device.part_compressor()), steps::states_of(host.part_compressor())),
                 "states");
    if (!found.text().empty()) throw gs::mismatch(found.text());
  });
  CHECK(nodes::text(said) == "");
}

}  // namespace

TEST_CASE("two levels on a device end with the host's bits, small") { same_as_host<float>({2, 2}, even_layers()); }

TEST_CASE("two levels on a device end with the host's bits") {
  same_as_host<float>({2, 4}, steps::mixed_layers());
  same_as_host<float>({3, 2}, steps::mixed_layers());
  same_as_host<float>({1, 3}, gs::layout{{"small", 2}});
  same_as_host<gs::bfloat16>({2, 2}, even_layers());
  same_as_host<gs::bfloat16>({2, 4}, steps::mixed_layers());
}

TEST_CASE(
    "two levels on a device: a failed exchange is in the reports of all ranks of the node, or in their next call") {
  auto const layers = even_layers();
  for (bool const looks : {true, false}) {
    auto const said = nodes::run({2, 2}, [&](nodes::pair const& ranks) {
      stream const own;
      gs::device const where{own};
      // The first gather is the ranks' meeting, the second is of messages.
      int countdown = ranks.rank() == 3 ? 3 : 1000;
      gs::two_level const staged{gs::staged{ranks.inside}, damaging{ranks.across, &countdown}};
      gs::two_level_compressor device{where, layers, recipe, staged};
      array<float> const gradient{where, layers.size()};
      std::string how[4];
      for (std::uint64_t step = 0; step < 4; ++step) {
        gradient.put(steps::gradient(layers.size(), ranks.rank(), step));
        how[step] = steps::ending([&] {
          auto const report = device.exchange(staged, gradient.span());
          if (looks) static_cast<void>(report.get());
          where.synchronize();
        });
      }
      // b.bias passes through in the first part; the other place's exchange has none of it: that rank alone is hit
      std::size_t const told = looks ? 1 : 2;
      for (std::size_t step = 0; step < told; ++step)
        if (!how[step].empty()) throw gs::mismatch("step " + std::to_string(step) + ": " + how[step]);
      auto const text = how[told];
      if (ranks.across.rank() == 0) return;
      if (!steps::contains(text, ranks.rank() == 3 ? "corrupt_message" : "another rank of this node failed"))
        throw gs::mismatch("told: " + text);
    });
    CHECK(nodes::text(said) == "");
  }
}

TEST_CASE("two levels on a device: ranks of one node that disagree throw") {
  auto const said = nodes::run({2, 2}, [&](nodes::pair const& ranks) {
    stream const own;
    gs::device const where{own};
    gs::two_level const staged{gs::staged{ranks.inside}, gs::staged{ranks.across}};
    auto mine = recipe;
    mine.density = ranks.rank() == 1 ? 0.02 : 0.03;
    gs::two_level_compressor device{where, even_layers(), mine, staged};
    array<float> const gradient{where, even_layers().size()};
    gradient.put(steps::gradient(even_layers().size(), ranks.rank(), 0));
    auto const how = steps::ending([&] { static_cast<void>(device.exchange(staged, gradient.span()).get()); });
    if (how.empty()) throw gs::mismatch("was not told");
  });
  CHECK(nodes::text(said) == "");
}
