// One of two translation units that include everything: a function or variable without `inline` fails the link.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>

gradsieve::layout layers_of_b();
std::uint64_t passing(gradsieve::layout const& layers);
std::uint64_t passing_in_other();

std::uint64_t passing(gradsieve::layout const& layers) { return gradsieve::passthrough_layers{}.of(layers).size(); }

int main() {
  auto const layers = layers_of_b();
  bool const same = layers == gradsieve::layout{{"weight", 6}, {"bias", 3}};
  return same && passing(layers) == 2 && passing_in_other() == 103 ? 0 : 1;
}
