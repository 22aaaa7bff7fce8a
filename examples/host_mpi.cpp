// The same over MPI, around a communicator that stays the user's. Run: mpirun -n 2 host_mpi
#include <gradsieve/comm/mpi.hpp>
#include <gradsieve/compressor.hpp>

#include <iostream>
#include <random>
#include <vector>

namespace gs = gradsieve;

int main(int argc, char** argv) {
  auto const session = gs::mpi::session{argc, argv};
  auto const comm = gs::mpi::communicator_ref{MPI_COMM_WORLD};

  auto const layers = gs::layout{{"embedding", 400'000}, {"fc.weight", 65'536}, {"fc.bias", 256}};
  auto const recipe = gs::recipe{.density = 0.01, .residual = gs::error_feedback{}};
  auto reducer = gs::compressor{gs::host{}, layers, recipe};

  std::mt19937 random(static_cast<unsigned>(comm.rank()));
  std::normal_distribution<float> normal;
  std::vector<float> gradient(layers.size());
  for (int step = 0; step < 5; ++step) {
    for (auto& g : gradient) g = normal(random);
    auto const report = reducer.exchange(comm, gradient);
    double norm = reducer.residual_norm() * reducer.residual_norm();
    comm.all_reduce(gs::host{}, std::span{&norm, 1}, gs::reduction::sum);
    if (comm.rank() == 0) std::cout << report << ", build-up " << report.build_up() << ", residual^2 " << norm << '\n';
  }
}
