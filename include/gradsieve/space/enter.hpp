// One gradient element into its state, in either space.
#pragma once

#include <cstddef>

#include <gradsieve/types.hpp>

namespace gradsieve {

/// Enters one gradient element into its state; false if it or the new state was not finite. A gradient that is not
/// finite counts as zero; an element whose new state would not be finite keeps its old one.
GRADSIEVE_EITHER_SPACE
template <class Residual, std::size_t States>
GRADSIEVE_INLINE GRADSIEVE_HD constexpr bool enter_one(Residual const& policy, float gradient,
                                                       element_state<States>& state) noexcept {
  auto const before = state;
  bool const usable = is_finite(gradient);
  policy.enter(usable ? gradient : 0.0f, state);
  bool finite = true;
  for (std::size_t s = 0; s < States; ++s) finite = finite & is_finite(state[s]);
  for (std::size_t s = 0; s < States; ++s) state[s] = finite ? state[s] : before[s];
  return usable & finite;
}

}  // namespace gradsieve
