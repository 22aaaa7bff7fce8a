// Compiled for nvcc's default architecture, which is older than what the tests are built for.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/step/stages.hpp>

namespace gs = gradsieve;

using plain = gs::recipe<>;
static_assert(gs::step_stages<gs::device::step<plain>, gs::device, plain>);

void use(std::span<float> gradient) {
  gs::recipe const recipe{.selector = gs::adacomp{}, .partitioner = gs::layerwise{}};
  gs::compressor reducer{gs::device{}, gs::layout::flat(10), recipe};
  reducer.exchange(gs::self{}, gradient);
}
