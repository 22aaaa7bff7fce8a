// A unit with headers of another version than the library's.
#include <gradsieve/run_time/any_compressor.hpp>

int main() {
  namespace gs = gradsieve;
  gs::any_compressor const made{gs::host{}, gs::layout::flat(10), gs::any_recipe<>{}};
  return made.step() == 0 ? 0 : 1;
}
