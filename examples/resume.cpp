// A training that is saved and resumed, with the same bits; and resumed by fewer ranks, and by more.
// The gradient lies in several buffers, one for each parameter, as most frameworks keep it: nothing is copied.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <vector>

namespace gs = gradsieve;

namespace {

using tensors = std::vector<std::vector<float>>;

/// What one rank trains: parameters that are to become 0 to 6 by turns. Each rank sees noise of its own.
struct training {
  tensors parameters{std::vector<float>(6'000), std::vector<float>(10)};
  tensors gradients = parameters;
  gs::compressor<gs::host, gs::recipe<>> reducer{gs::host{.threads = 1}, gs::layout{{"weight", 6'000}, {"bias", 10}},
                                                 gs::recipe{.density = 0.01}};

  void steps(gs::threads::communicator_ref comm, std::uint64_t until) {
    while (reducer.step() < until) {
      auto const seed = gs::mix(reducer.step() << 8 | static_cast<std::uint64_t>(comm.rank()));
      double squares = 0;
      for (std::size_t p = 0; p < parameters.size(); ++p)
        for (std::size_t i = 0; i < parameters[p].size(); ++i) {
          auto const noise = static_cast<float>(gs::mix(seed + i) % 1001) / 500.0f - 1.0f;
          auto const g = gradients[p][i] = parameters[p][i] - static_cast<float>(i % 7) + noise;
          squares += static_cast<double>(g) * static_cast<double>(g);
        }
      //! [pieces]
      auto const pieces = gs::pieces{gradients};           // or pointers, one a layer: gs::pieces{pointers}
      auto const report = reducer.exchange(comm, pieces);  // the averaged update is in the same buffers
      //! [pieces]
      for (std::size_t p = 0; p < parameters.size(); ++p)
        for (std::size_t i = 0; i < parameters[p].size(); ++i) parameters[p][i] -= 0.01f * gradients[p][i];
      if (comm.rank() == 0 && report.step % 100 == 99)
        std::cout << report.json() << "\nresidual / gradient: " << reducer.residual_norm() / std::sqrt(squares) << '\n';
    }
  }
};

}  // namespace

int main() {
  std::vector<std::vector<std::byte>> saved(3);  // of each rank its own; write them to files as they are
  tensors model, uninterrupted, resumed;         // the same on all ranks
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    training run;
    run.steps(comm, 200);
    saved[static_cast<std::size_t>(comm.rank())] = run.reducer.state();
    if (comm.rank() == 0) model = run.parameters;
    run.steps(comm, 300);
    if (comm.rank() == 0) uninterrupted = run.parameters;
  });

  for (int const ranks : {3, 2, 4})
    gs::threads::run(ranks, [&](gs::threads::communicator_ref comm) {
      training run;
      run.parameters = model;
      if (comm.rank() < 3) {
        run.reducer.restore(saved[static_cast<std::size_t>(comm.rank())]);
        if (ranks == 2 && comm.rank() == 0) run.reducer.absorb(saved[2]);  // that rank does not come back
        if (ranks != 3) run.reducer.rescale(static_cast<float>(ranks) / 3.0f);
      } else {
        run.reducer.restore(saved[0]);  // for the step's number
        run.reducer.rescale(0);         // and nothing waits on a new rank
      }
      run.steps(comm, 300);
      if (comm.rank() == 0 && ranks == 3) resumed = run.parameters;
    });
  std::cout << (resumed == uninterrupted ? "resumed with the same bits\n" : "resumed with other bits\n");
  return resumed == uninterrupted ? 0 : 1;
}
