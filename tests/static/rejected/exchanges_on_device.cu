// An exchange of which there is no specialisation of device_exchange.
#include <gradsieve/cuda.cuh>
#include <gradsieve/gradsieve.hpp>

namespace gs = gradsieve;

struct on_host : gs::gather {};

void use() {
  gs::compressor{gs::device{}, gs::layout::flat(10), gs::recipe{.exchange = on_host{}}};
}
