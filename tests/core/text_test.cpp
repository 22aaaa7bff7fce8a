// Numbers as text.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <iomanip>
#include <set>
#include <sstream>

namespace gs = gradsieve;

TEST_CASE("numbers print alike, whatever the stream") {
  std::ostringstream out;
  out << std::setprecision(2) << std::fixed << std::hex << std::showpos << gs::shortest{0.1f} << ' '
      << gs::shortest{0.001} << ' ' << gs::shortest{1e-30} << ' ' << gs::shortest{255} << ' ' << gs::shortest{true};
  CHECK(out.str() == "0.1 0.001 1e-30 255 true");
}
