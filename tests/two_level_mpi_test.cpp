// Two levels of MPI processes. Runs under mpirun with any number of ranks; its result is that of all.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/comm/mpi_nodes.hpp>
#include <gradsieve/two_level.hpp>

#include "steps.hpp"

using namespace steps;

namespace {

constexpr gs::host here{.threads = 1};

gs::mpi::communicator_ref world() { return gs::mpi::communicator_ref{MPI_COMM_WORLD}; }

auto pair_of(gs::mpi::nodes const& nodes, std::size_t max_count = gs::mpi::communicator_ref::default_max_count) {
  return gs::two_level{gs::mpi::communicator_ref{nodes.inside(), max_count},
                       gs::mpi::communicator_ref{nodes.across(), max_count}};
}

bool same_everywhere(std::uint64_t value) {
  std::vector<std::uint64_t> all(at(world().size()));
  world().all_gather(here, std::as_bytes(std::span{&value, 1}), std::as_writable_bytes(std::span{all}));
  return std::ranges::all_of(all, [&](auto each) { return each == value; });
}

/// The same bits on all ranks, and all that came in is applied or held: summed over ranks, a rank's gradient is its
/// node's by one of so many.
template <class Ranks, class Recipe>
void balance(Ranks const& ranks, Recipe const& recipe) {
  auto const n = mixed_layers().size();
  gs::two_level_compressor compressor{here, mixed_layers(), recipe, ranks};
  std::vector<double> open(n);
  auto const part = compressor.part();
  for (std::uint64_t step = 0; step < 6; ++step) {
    auto update = gradient(n, world().rank(), step);
    for (std::uint64_t i = 0; i < n; ++i) open[i] += static_cast<double>(update[i]) / part.ranks;
    auto const report = compressor.exchange(ranks, update);
    CHECK(report.world == ranks.across.size());
    CHECK(same_everywhere(hash(update)));
    for (std::uint64_t i = 0; i < n; ++i) open[i] -= static_cast<double>(update[i]) / part.ranks;
  }
  auto const rest = compressor.part_compressor().residual();
  for (std::uint64_t i = 0; i < rest.size(); ++i) open[part.begin() + i] -= static_cast<double>(rest[i]);
  world().all_reduce(here, std::span{open}, gs::reduction::sum);
  double worst = 0;
  for (double const each : open) worst = std::max(worst, std::fabs(each));
  CHECK(worst < 1e-4);
}

}  // namespace

TEST_CASE("nodes: by shared memory, or so many consecutive ranks; equally many or none") {
  int const size = world().size();
  gs::mpi::nodes const by_memory{MPI_COMM_WORLD};
  CHECK(pair_of(by_memory).size() == size);
  CHECK(pair_of(by_memory).inside.size() == size);  // this test runs on one machine
  CHECK(pair_of(by_memory).rank() == world().rank());
  for (int const ranks : {1, 2, 3, 4}) {
    if (size % ranks == 0) {
      gs::mpi::nodes const own{MPI_COMM_WORLD, ranks};
      auto const both = pair_of(own);
      CHECK(both.inside.size() == ranks);
      CHECK(both.across.size() == size / ranks);
      CHECK(both.rank() == world().rank());
    } else if (size > ranks) {
      CHECK(contains(ending([&] { gs::mpi::nodes const own{MPI_COMM_WORLD, ranks}; }),
                     "ranks; two_level needs equally many in each"));
    }
  }
  CHECK_THROWS_WITH_AS(gs::mpi::nodes(MPI_COMM_WORLD, -1),
                       "gradsieve: a node of -1 ranks; the least is 1, 0: MPI decides", gs::invalid_argument);
}

TEST_CASE("two levels over MPI: the same bits on every rank, and mass balance") {
  for (int const ranks : {0, 1, 2}) {
    if (ranks == 2 && world().size() % 2 != 0) continue;
    gs::mpi::nodes const nodes{MPI_COMM_WORLD, ranks};
    for (auto const max_count : {gs::mpi::communicator_ref::default_max_count, std::size_t{500}}) {
      auto const both = pair_of(nodes, max_count);
      balance(both, gs::recipe{.density = 0.03});
      balance(both, gs::recipe{.density = 0.03, .partitioner = gs::deft{}});
      balance(both, gs::recipe{.density = 0.03, .partitioner = gs::cyclic{}});
    }
  }
}

TEST_CASE("two levels over MPI: where one rank fails all throw, and the next step works") {
  auto const n = mixed_layers().size();
  gs::mpi::nodes const nodes{MPI_COMM_WORLD, world().size() % 2 == 0 ? 2 : 1};
  auto const both = pair_of(nodes);
  gs::two_level_compressor compressor{here, mixed_layers(), gs::recipe{.density = 0.03}, both};
  for (std::uint64_t step = 0; step < 4; ++step) {
    auto update = gradient(n, world().rank(), step);
    bool const fails = step % 2 == 1;
    if (fails && world().rank() == world().size() - 1) update.pop_back();
    CHECK(ending([&] { compressor.exchange(both, update); }).empty() == !fails);
    if (!fails) CHECK(same_everywhere(hash(update)));
  }
}

int main(int argc, char** argv) {
  gs::mpi::session const mpi{argc, argv, MPI_THREAD_FUNNELED};
  doctest::Context context{argc, argv};
  context.setOption("minimal", world().rank() != 0);  // the others speak only of failures
  std::uint32_t result = context.run() == 0 ? 0 : 1;
  world().all_reduce(here, std::span{&result, 1}, gs::reduction::max);
  return static_cast<int>(result);
}
