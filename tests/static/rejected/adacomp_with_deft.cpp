#include <gradsieve/gradsieve.hpp>

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.selector = gradsieve::adacomp{}, .partitioner = gradsieve::deft{}}};
}
