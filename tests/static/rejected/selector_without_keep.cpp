#include <gradsieve/gradsieve.hpp>

struct no_keep {
  template <class Workspace>
  float fit(Workspace& work, gradsieve::accumulator_ref accumulator, gradsieve::index_type) const {
    return work.mean_abs(accumulator);
  }
  friend bool operator==(no_keep const&, no_keep const&) = default;
};

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{.selector = no_keep{}}};
}
