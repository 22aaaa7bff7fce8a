// No memory: what is not sent in its step is gone.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve {

/// accumulator = gradient. When not: a biased selector without error feedback need not converge; for unbiased
/// codecs, for measurements, and for callers who keep a residual of their own.
/// Cost: 4 bytes read and 4 written per element, and a processor's cache reads those before. Memory: 4 bytes per
/// element, the accumulator.
struct none {
  static constexpr char const* name = "none";
  static constexpr std::size_t states = 1;

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    state[0] = gradient;
  }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool) const noexcept {
    state[0] = subtract(state[0], sent);
  }

  friend bool operator==(none const&, none const&) = default;
};
static_assert(residual_store<none>);

}  // namespace gradsieve
