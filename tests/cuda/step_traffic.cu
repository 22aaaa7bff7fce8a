// Warm steps of one recipe, for a launcher that counts what kernels do: check_traffic.cmake.
//   step_traffic ELEMENTS_LOG2 DENSITY STEPS compress|coo|fixed_width
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>

namespace gs = gradsieve;

namespace {

template <class Codec>
void run(std::uint64_t n, double density, int steps, bool exchange, Codec const& codec) {
  cudaStream_t stream{};
  gs::throw_on_error(cudaStreamCreate(&stream), "cudaStreamCreate");
  gs::device const where{stream};
  gs::compressor compressor{where, gs::layout::flat(n), gs::recipe{.density = density, .codec = codec}};
  gs::cuda_buffer<float> const gradient{where, n};
  std::vector<float> values(n);
  for (int step = 0; step < steps; ++step) {
    for (std::uint64_t i = 0; i < n; ++i) {  // Laplace
      auto const bits = gs::mix(gs::mix(static_cast<std::uint64_t>(step)) + i);
      float const size = -std::log(static_cast<float>((bits >> 40) + 1) * 0x1p-24f);
      values[i] = (bits & 1) != 0 ? size : -size;
    }
    where.copy(std::as_bytes(std::span{values}), std::as_writable_bytes(gradient.span()));
    if (exchange)
      compressor.exchange(gs::self{}, gradient.span());
    else
      (void)compressor.compress(gradient.span());
    where.synchronize();
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  std::uint64_t const n = std::uint64_t{1} << std::atoi(arguments[1]);
  double const density = std::atof(arguments[2]);
  int const steps = std::atoi(arguments[3]);
  if (std::strcmp(arguments[4], "fixed_width") == 0)
    run(n, density, steps, true, gs::packed<gs::fixed_width, gs::fp16>{});
  else
    run(n, density, steps, std::strcmp(arguments[4], "coo") == 0, gs::coo{});
}
