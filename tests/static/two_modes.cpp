// Units that are header-only, of another vector level, and units that use gradsieve::compiled, in one program: the same
// bits. The library has the OpenMP of the unit that uses it.
#include "two_modes.hpp"

#include <gradsieve/comm/self.hpp>
#include <gradsieve/run_time.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <vector>

#if !defined(GRADSIEVE_COMPILED)
#error "this unit uses the library"
#endif

namespace {

namespace gs = gradsieve;

/// Of this process, or `otherwise` where there is no OpenMP or no such folder.
std::ptrdiff_t threads([[maybe_unused]] std::ptrdiff_t otherwise) {
#if defined(_OPENMP) && defined(__linux__)
  using std::filesystem::directory_iterator;
  return std::distance(directory_iterator{"/proc/self/task"}, directory_iterator{});
#else
  return otherwise;
#endif
}

}  // namespace

int main() {
  std::vector<float> gradient(1u << 20);
  std::uint32_t state = 1;
  for (float& value : gradient) value = static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) - 8388608.0f;

  bool const alone = threads(1) == 1;
  gs::any_compressor reducer{gs::host{.threads = 3}, gs::layout::flat(gradient.size()),
                             gs::any_recipe<>::parse("laplacian+deft@0.01")};
  auto const compiled = after_three_steps(reducer, gs::any_communicator{gs::self{}}, gradient);
  bool const lent = alone && threads(3) >= 3;
  bool const same = compiled == header_only(gradient) && compiled == by_type(gradient);
  if (!lent) std::cerr << "the library started no threads\n";
  if (!same) std::cerr << "the modes have different bits\n";
  return lent && same ? 0 : 1;
}
