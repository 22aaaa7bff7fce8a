// Four workers in one process agree on a sparse average of their gradients.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/partitioner/deft.hpp>
#include <gradsieve/selector/laplacian.hpp>

#include <iostream>
#include <vector>

namespace gs = gradsieve;

int main() {
  auto const layers = gs::layout{{"conv.weight", 9'408}, {"fc.weight", 204'800}, {"fc.bias", 100}};
  auto const recipe = gs::recipe{.density = 0.001, .selector = gs::laplacian{}, .partitioner = gs::deft{}};

  gs::threads::run(4, [&](auto comm) {
    auto reducer = gs::compressor{gs::host{.threads = 1}, layers, recipe};  // residual and scratch: here, once
    std::vector<float> gradient(layers.size());
    for (std::size_t i = 0; i < gradient.size(); ++i)  // what a backward pass would leave
      gradient[i] = 1.0f / static_cast<float>(1 + (i * 7919 + static_cast<std::size_t>(comm.rank())) % 10'007);
    auto const report = reducer.exchange(comm, gradient);  // gradient is now the averaged sparse update
    if (comm.rank() == 0) std::cout << recipe << '\n' << report << '\n';
  });
}
