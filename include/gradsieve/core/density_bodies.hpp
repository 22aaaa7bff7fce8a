// The bodies of density.hpp, which units with gradsieve::compiled take from there.
#pragma once

#include <ostream>
#include <utility>

#include <gradsieve/core/density.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

GRADSIEVE_BODY void density_schedule::check() const {
  require_between("density", ramp_.final, 0, 1);
  constexpr interval positive = above_to(0, 1);
  if (ramp_.steps == 0 || (positive.contains(ramp_.initial) && positive.contains(ramp_.final))) return;
  auto message = plain_text();
  message << "gradsieve: warm-up runs from density " << shortest{ramp_.initial} << " to " << shortest{ramp_.final}
          << ", expected both above 0 and up to 1";
  throw invalid_argument(message.str());
}

GRADSIEVE_BODY std::ostream& operator<<(std::ostream& out, density_schedule const& it) {
  plain_output const plain{out};
  if (it.ramp_.steps == 0) return out << shortest{it.ramp_.final};
  return describe(out, "warm_up", std::pair{"initial", it.ramp_.initial}, std::pair{"final", it.ramp_.final},
                  std::pair{"steps", it.ramp_.steps}, std::pair{"stages", it.ramp_.stages});
}

}  // namespace gradsieve
