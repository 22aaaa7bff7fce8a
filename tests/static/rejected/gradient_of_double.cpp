#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

void use(std::span<double> gradient) {
  gradsieve::compressor reducer{gradsieve::host{}, gradsieve::layout::flat(10), gradsieve::recipe{}};
  reducer.exchange(gradsieve::self{}, gradient);
}
