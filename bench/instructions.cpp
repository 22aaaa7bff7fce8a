// Steps to count the instructions of, in an emulator; bench/aarch64.sh compiles it.
//   instructions JOB ELEMENTS DENSITY STEPS

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "floor.hpp"

namespace {

namespace gs = gradsieve;

/// Two gradients of Laplacian values, which are used in turn.
template <class T>
std::vector<std::vector<T>> gradients(std::uint64_t n) {
  std::vector<std::vector<T>> both(2, std::vector<T>(n));
  for (std::uint64_t i = 0; i < 2 * n; ++i) {
    auto const bits = gs::mix(i);
    float const uniform = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    both[i / n][i % n] = gs::from_float<T>((bits & 1) == 0 ? std::log(uniform) : -std::log(uniform));
  }
  return both;
}

template <class T, class Recipe>
void run(Recipe const& recipe, std::uint64_t n, int steps) {
  auto const both = gradients<T>(n);
  gs::compressor reducer{gs::host{1}, gs::layout::flat(n), recipe};
  for (int s = 0; s < steps; ++s) static_cast<void>(reducer.compress(std::span<T const>{both[s % 2]}));
}

void run_floor(std::uint64_t n, int steps) {
  auto const both = gradients<float>(n);
  gs::detail::host_team const team{1};
  auto const residual = bench::zeros(team, n);
  for (int s = 0; s < steps; ++s) bench::accumulate(team, residual.data(), std::span<float const>{both[s % 2]});
}

gs::recipe<gs::adacomp, gs::layerwise> adacomp(std::uint32_t length) {
  gs::recipe<gs::adacomp, gs::layerwise> recipe{};
  recipe.density = 0.5;  // room for all that it may ask for
  recipe.selector.bins = {.rules = {}, .otherwise = length};
  return recipe;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::string_view const job = argv[1];
  std::uint64_t const n = std::strtoull(argv[2], nullptr, 10);
  double const density = std::strtod(argv[3], nullptr);
  int const steps = std::atoi(argv[4]);
  if (job == "floor") run_floor(n, steps);
  if (job == "radix") run<float>(gs::recipe{.density = density}, n, steps);
  if (job == "radix-fp16") run<gs::float16>(gs::recipe{.density = density}, n, steps);
  if (job == "laplacian") run<float>(gs::recipe{.density = density, .selector = gs::laplacian{}}, n, steps);
  if (job == "hierarchical") run<float>(gs::recipe{.density = density, .selector = gs::hierarchical{}}, n, steps);
  if (job == "chunked") run<float>(gs::recipe{.density = density, .selector = gs::chunked{}}, n, steps);
  if (job == "adacomp") run<float>(adacomp(static_cast<std::uint32_t>(std::lround(1 / density))), n, steps);
}
