// A program with the one header that cmake/amalgamate.py makes of several.
#include SINGLE_HEADER

#include <vector>

namespace gs = gradsieve;

int main() {
  auto const layers = gs::layout{{"w", 1000}};
  gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
    gs::compressor reducer{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01}};
    std::vector<float> gradient(1000, 1.0f);
    reducer.exchange(comm, gradient);
  });
}
