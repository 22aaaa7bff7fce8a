#include <gradsieve/cuda.cuh>

void use() {
  gradsieve::compressor{gradsieve::device{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.codec = gradsieve::packed{.values = gradsieve::fp16{}}}};
}
