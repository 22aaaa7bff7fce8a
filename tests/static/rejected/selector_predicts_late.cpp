#include <gradsieve/gradsieve.hpp>

struct predicts_late {
  gradsieve::key_type predict(gradsieve::host_workspace&, gradsieve::accumulator_ref, gradsieve::index_type) const {
    return 1;
  }
  gradsieve::index_type select(gradsieve::host_workspace& work, gradsieve::accumulator_ref accumulator,
                               gradsieve::index_type k, gradsieve::selection_span out) const {
    return gradsieve::radix{}.select(work, accumulator, k, out);
  }
  friend bool operator==(predicts_late const&, predicts_late const&) = default;
};

void use() {
  gradsieve::compressor one{gradsieve::host{}, gradsieve::layout::flat(10),
                            gradsieve::recipe{.selector = predicts_late{}}};
  one.compress(std::vector<float>(10));
}
