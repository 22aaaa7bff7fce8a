#include <gradsieve/gradsieve.hpp>

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.partitioner = gradsieve::cyclic{}, .exchange = gradsieve::leader{}}};
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10),
                        gradsieve::recipe{.exchange = gradsieve::leader{}}};
}
