// The time of a step in a program that was compiled with whatever flags a user has; bench/flags.sh compiles it.
//   flags ELEMENTS DENSITY THREADS STEPS      prints the median and the least, in milliseconds

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <vector>

#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::uint64_t const n = std::strtoull(argv[1], nullptr, 10);
  double const density = std::strtod(argv[2], nullptr);
  int const threads = std::atoi(argv[3]);
  auto const steps = static_cast<std::size_t>(std::strtoull(argv[4], nullptr, 10));
  std::vector<float> gradient(n);  // Laplace
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const bits = gs::mix(i);
    float const uniform = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    gradient[i] = (bits & 1) == 0 ? std::log(uniform) : -std::log(uniform);
  }
  gs::compressor reducer{gs::host{threads}, gs::layout::flat(n), gs::recipe{.density = density}};
  std::vector<double> taken;
  for (std::size_t s = 0; s < steps + 3; ++s) {
    auto const start = std::chrono::steady_clock::now();
    (void)reducer.compress(std::span<float const>{gradient});
    auto const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (s >= 3) taken.push_back(1e3 * seconds);  // the first ones warm up
  }
  std::sort(taken.begin(), taken.end());
  std::cout << taken[taken.size() / 2] << ' ' << taken.front() << '\n';
}
