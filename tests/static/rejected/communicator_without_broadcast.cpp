#include "limited.hpp"

void use(std::span<float> gradient) {
  gradsieve::compressor plain{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{}};
  plain.exchange(limited{}, gradient);  // fits
  gradsieve::compressor reducer{gradsieve::host{}, gradsieve::layout::flat(10),
                                gradsieve::recipe{.partitioner = gradsieve::cyclic{}}};
  reducer.exchange(limited{}, gradient);
}
