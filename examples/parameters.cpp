// Adam on four ranks: each steps its own parameters without momentum, and what that has changed is compressed and
// exchanged; the common parameters move with the momentum of the mean.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/parameters.hpp>

namespace gs = gradsieve;

namespace {

/// For parameters that are to become 0 to 6 by turns; each rank sees noise of its own.
std::vector<float> gradient_of(std::span<float const> parameters, int rank, int step) {
  std::vector<float> gradient(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto const noise =
        gs::mix(gs::mix(static_cast<std::uint64_t>(step)) + i + (static_cast<std::uint64_t>(rank) << 32));
    gradient[i] = parameters[i] - static_cast<float>(i % 7) + static_cast<float>(noise % 1001) / 500.0f - 1.0f;
  }
  return gradient;
}

}  // namespace

int main() {
  gs::threads::run(4, [](auto comm) {
    auto const n = std::size_t{1000};
    std::vector<float> own(n);  // the parameters that this rank trains; the same on all ranks at first
    auto const recipe = gs::recipe{.density = 0.05, .passthrough = {.patterns = {}}};
    auto exchange = gs::parameter_exchange{gs::compressor{gs::host{.threads = 1}, gs::layout::flat(n), recipe},
                                           std::span{own}, {.momentum = gs::parameter_options::of_beta(0.9f, 0.05)}};
    //! [second moments]
    auto moments = gs::second_moments{gs::host{.threads = 1}, exchange.compressor().layers()};
    std::vector<float> square(n);  // of this rank's Adam
    for (int step = 0; step < 2000; ++step) {
      auto gradient = gradient_of(own, comm.rank(), step);
      moments.measure(comm, gradient);            // a thousandth of it, to all ranks
      moments.clip(gradient, 100.0f);             // by the norm that the mean gradient has about: all ranks alike
      float const factor = moments.factors()[0];  // of the one layer
      float const rate = 0.05f * std::min(1.0f, 300.0f / static_cast<float>(step + 1));
      for (std::size_t i = 0; i < n; ++i) {
        square[i] += 0.01f * (factor * gradient[i] * gradient[i] - square[i]);
        own[i] -= rate * gradient[i] / (std::sqrt(square[i]) + 1e-8f);
      }
      exchange.exchange_parameters(comm, own);  // own is now what the next step starts from
    }
    //! [second moments]
    float worst = 0;
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(exchange.common()[i] - static_cast<float>(i % 7)));
    if (comm.rank() == 0) std::cout << "off by " << worst << " at most; " << exchange.report() << '\n';
  });
}
