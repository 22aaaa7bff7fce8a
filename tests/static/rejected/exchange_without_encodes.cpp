#include <gradsieve/gradsieve.hpp>

struct no_encodes {
  template <class Workspace>
  using buffers = gradsieve::gather::buffers<Workspace>;
  friend bool operator==(no_encodes const&, no_encodes const&) = default;
};

void use() {
  gradsieve::compressor{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{.exchange = no_encodes{}}};
}
