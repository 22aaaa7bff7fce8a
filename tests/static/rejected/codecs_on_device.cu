// Codecs whose messages have no fixed size save nothing on a device.
#include <gradsieve/cuda.cuh>

namespace gs = gradsieve;

struct own_values : gs::ternary {
  static constexpr std::uint16_t id = 32768;
};

void use() {
  gs::compressor{gs::device{}, gs::layout::flat(10), gs::recipe{.codec = gs::packed{.values = gs::fp16{}}}};
  gs::compressor{gs::device{}, gs::layout::flat(10), gs::recipe{.codec = gs::binned{}}};
  gs::compressor{gs::device{}, gs::layout::flat(10),
                 gs::recipe{.codec = gs::packed{.indices = gs::raw32{}, .values = own_values{}}}};
}
