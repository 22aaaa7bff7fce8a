// A user's program with the compiled library: a recipe by text, of which this unit compiles nothing.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/run_time/any_compressor.hpp>

#include <iostream>
#include <vector>

namespace gs = gradsieve;

int main() {
  std::vector<float> gradient(10'000, 0.5f);
  gs::any_compressor reducer{gs::host{}, gs::layout::flat(gradient.size()),
                             gs::any_recipe<>::parse("laplacian+deft+packed:delta,fp16@0.01")};
  auto const report = reducer.exchange(gs::any_communicator{gs::self{}}, gradient);
  std::cout << report << '\n';
  return report.selected > 0 ? 0 : 1;
}
