// A gradient that lies in several buffers, one for each parameter, as most frameworks keep it: nothing is copied.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

#include <iostream>
#include <vector>

namespace gs = gradsieve;

int main() {
  auto const layers = gs::layout{{"hidden.weight", 6'000}, {"hidden.bias", 10}, {"head.weight", 1'000}};
  gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
    auto reducer = gs::compressor{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01}};
    std::vector<std::vector<float>> gradients;  // the framework's
    for (auto const& each : layers) gradients.emplace_back(each.size, 0.0f);
    gradients[0][17] = 5;
    gradients[2][3] = static_cast<float>(comm.rank());
    //! [pieces]
    auto const tensors = gs::pieces{gradients};           // or pointers, one a layer: gs::pieces{pointers}
    auto const report = reducer.exchange(comm, tensors);  // the averaged update is in the same buffers
    //! [pieces]
    if (comm.rank() == 0)
      std::cout << "sent " << report.selected << " entries: " << gradients[0][17] << ", " << gradients[2][3] << '\n';
  });
}
