// Several ranks a node: dense inside, compressed across. Run: mpirun -n 4 two_level [ranks a node] [steps] [elements]
#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/comm/mpi_nodes.hpp>
#include <gradsieve/two_level.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <vector>

namespace gs = gradsieve;

int main(int argc, char** argv) {
  auto const session = gs::mpi::session{argc, argv};
  //! [nodes]
  // 0: what shares memory. Consecutive ranks where one machine stands for several.
  auto const nodes = gs::mpi::nodes{MPI_COMM_WORLD, argc > 1 ? std::atoi(argv[1]) : 0};
  auto const ranks =
      gs::two_level{gs::mpi::communicator_ref{nodes.inside()}, gs::mpi::communicator_ref{nodes.across()}};
  //! [nodes]
  int const steps = argc > 2 ? std::atoi(argv[2]) : 5;
  auto const elements = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 400'000;

  auto const layers = gs::layout{{"embedding", elements}, {"fc.weight", 65'536}, {"fc.bias", 256}};
  auto const recipe = gs::recipe{.density = 0.01, .residual = gs::error_feedback{}};
  auto reducer = gs::two_level_compressor{gs::host{}, layers, recipe, ranks};

  std::mt19937 random(static_cast<unsigned>(ranks.rank()));
  std::normal_distribution<float> normal;
  std::vector<float> gradient(layers.size());
  std::uint64_t sent = 0;
  for (int step = 0; step < steps; ++step) {
    for (auto& g : gradient) g = normal(random);
    auto const report = reducer.exchange(ranks, gradient);  // of this rank's part
    sent += report.bytes_sent;
    if (ranks.rank() == 0) std::cout << report << '\n';
  }
  ranks.inside.all_reduce(gs::host{}, std::span{&sent, 1}, gs::reduction::sum);
  if (ranks.rank() == 0 && steps > 0)
    std::cout << ranks.across.size() << " nodes of " << ranks.inside.size() << ": a node hands "
              << sent / static_cast<std::uint64_t>(steps) << " bytes a step to the network\n";
}
