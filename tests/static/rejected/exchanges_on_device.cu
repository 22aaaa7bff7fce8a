// Exchanges of which there is no specialisation of device_exchange.
#include <gradsieve/cuda.cuh>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.cuh>

namespace gs = gradsieve;

void use() {
  gs::compressor{gs::device{}, gs::layout::flat(10), gs::recipe{.exchange = gs::ok_topk{}}};
  gs::compressor{gs::device{}, gs::layout::flat(10), gs::recipe{.exchange = gs::gtopk{}}};
}
