#include <gradsieve/gradsieve.hpp>

struct no_traits {
  template <class Workspace>
  using buffers = gradsieve::gather::buffers<Workspace>;
  friend bool operator==(no_traits const&, no_traits const&) = default;
};

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{.exchange = no_traits{}}};
}
