// Gradients are exchanged while the backward pass runs, and one rank's backward pass throws: every rank learns of it,
// takes the step back, and goes on. Ranks are threads here; over MPI ask for MPI_THREAD_SERIALIZED.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/overlap.hpp>
#include <gradsieve/plan.hpp>

#include <exception>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace gs = gradsieve;

/// In step 2 rank 1 has a sample that it cannot work on.
template <class Ready>
void backward(int rank, int step, gs::layout const& layers, std::vector<float>& gradient, Ready const& ready) {
  std::mt19937 random(static_cast<unsigned>(100 * step + rank));
  std::normal_distribution<float> normal;
  for (auto layer = layers.count(); layer-- > 0;) {
    if (step == 2 && rank == 1 && layer == 0) throw std::runtime_error("sample 1234 is damaged");
    for (auto i = layers.offset(layer); i < layers.offset(layer) + layers[layer].size; ++i)
      gradient[i] = normal(random);
    ready(layer);  // the last layer is ready first, and is exchanged while others are computed
  }
}

int main() {
  auto const layers = gs::layout{{"embedding", 40'000}, {"hidden.weight", 65'536}, {"head.weight", 2'560}};
  auto const recipe = gs::recipe{.density = 0.01};
  auto const step_times =
      gs::trace{{"head.weight", 4 * 2'560, 1e-4}, {"hidden.weight", 4 * 65'536, 1e-3}, {"embedding", 4 * 40'000, 1e-3}};
  auto const plan = gs::make_plan(step_times, gs::affine{1e-4, 1e-9}, gs::optimal{});  // see train for measured times

  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    auto const make = [&](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
    auto exchange = gs::overlap{comm, layers, plan, make};
    std::vector<float> gradient(layers.size());
    for (int step = 0; step < 4; ++step) {
      auto line = std::ostringstream{};
      line << "step " << step << ", rank " << comm.rank() << ": ";
      try {
        auto const report =
            exchange.run(gradient, [&](auto const& ready) { backward(comm.rank(), step, layers, gradient, ready); });
        line << "sent " << report.exchanged.bytes_sent << " bytes, " << plan.groups().size() << " groups\n";
        // The optimiser's step belongs here: gradient is the averaged update, the same on all ranks.
      } catch (std::exception const& failed) {
        // A backward pass that throws ends the step on all ranks. Groups that went out before are taken back, on all:
        // what this rank had handed over is in its residuals, and goes out with later steps.
        exchange.discard_step();
        line << "no update: " << failed.what() << '\n';
      }
      std::cout << line.str();
    }
  });
}
