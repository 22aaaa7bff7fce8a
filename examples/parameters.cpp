// Adam on four ranks: each steps its own parameters, and what that has changed is compressed and exchanged.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

namespace {

/// Adam, for parameters that are to become 0 to 6 by turns: each rank sees its own noise.
struct adam {
  std::vector<float> mean, square;
  int steps = 0;

  void step(std::span<float> parameters, int rank) {
    ++steps;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto const noise =
          gs::mix(gs::mix(static_cast<std::uint64_t>(steps)) + i + 1000 * static_cast<std::uint64_t>(rank));
      float const gradient =
          parameters[i] - static_cast<float>(i % 7) + static_cast<float>(noise % 1001) / 500.0f - 1.0f;
      mean[i] += 0.1f * (gradient - mean[i]);
      square[i] += 0.01f * (gradient * gradient - square[i]);
      float const rate = 0.05f * std::min(1.0f, 300.0f / static_cast<float>(steps));
      parameters[i] -= rate * mean[i] / (std::sqrt(square[i]) + 1e-8f);
    }
  }
};

}  // namespace

int main() {
  gs::threads::run(4, [](auto comm) {
    auto const n = std::size_t{1000};
    std::vector<float> own(n);  // the parameters that this rank trains; the same on all ranks at first
    auto const recipe = gs::recipe{.density = 0.05, .passthrough = {.patterns = {}}};
    auto exchange =
        gs::parameter_exchange{gs::compressor{gs::host{.threads = 1}, gs::layout::flat(n), recipe}, std::span{own}};
    adam optimizer{std::vector<float>(n), std::vector<float>(n)};
    for (int step = 0; step < 2000; ++step) {
      optimizer.step(own, comm.rank());
      exchange.exchange_parameters(comm, own);  // own is now what the next step starts from
    }
    float worst = 0;
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(exchange.common()[i] - static_cast<float>(i % 7)));
    if (comm.rank() == 0) std::cout << "off by " << worst << " at most; " << exchange.report() << '\n';
  });
}
