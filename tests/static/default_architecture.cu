// Compiled for nvcc's default architecture, which is older than what the tests are built for.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

void use(std::span<float> gradient) {
  gs::recipe const recipe{.selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
  gs::compressor reducer{gs::device{}, gs::layout::flat(10), recipe};
  reducer.exchange(gs::self{}, gradient);
}
