// A user's program: whatever way the library came in, this compiles, links and runs.
#include <gradsieve/gradsieve.hpp>
#include <iostream>
#include <string>
#if defined(WITH_MPI)
#include <gradsieve/comm/mpi.hpp>
#endif

namespace gs = gradsieve;

int main() {
  auto const layers = gs::layout{{"conv1.weight", 9'408}, {"fc.weight", 2'048'000}, {"fc.bias", 1'000}};
  auto const version = std::to_string(GRADSIEVE_VERSION_MAJOR) + '.' + std::to_string(GRADSIEVE_VERSION_MINOR) + '.' +
                       std::to_string(GRADSIEVE_VERSION_PATCH);
  auto const expected = std::string{EXPECTED_VERSION};  // empty where CMake does not hand it to the parent project

  std::cout << "gradsieve " << version << ": " << layers.count() << " layers, " << layers.size() << " elements\n";
  return layers.size() == 2'058'408 && (expected.empty() || expected == version) ? 0 : 1;
}
