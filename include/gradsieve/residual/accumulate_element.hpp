// Accumulates one gradient element into its state, in either space.
#pragma once

#include <cstddef>

#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Accumulates one gradient element into its state; returns false if the element or the new state was not finite. A
/// gradient that is not finite counts as zero; if the new state would not be finite, the element keeps its old state.
GRADSIEVE_EITHER_SPACE
template <class Residual, std::size_t States>
GRADSIEVE_INLINE GRADSIEVE_HD constexpr bool accumulate_element(Residual const& policy, float gradient,
                                                                element_state<States>& state) noexcept {
  auto const before = state;
  bool const usable = is_finite(gradient);
  policy.accumulate_element(usable ? gradient : 0.0f, state);
  bool finite = true;
  for (std::size_t s = 0; s < States; ++s) finite = finite & is_finite(state[s]);
  for (std::size_t s = 0; s < States; ++s) state[s] = finite ? state[s] : before[s];
  return usable & finite;
}

}  // namespace gradsieve
