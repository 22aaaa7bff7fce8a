#include <gradsieve/gradsieve.hpp>

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.residual = gradsieve::in_bfloat16{gradsieve::error_feedback{}}}};
}
