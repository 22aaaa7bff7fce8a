// No residual: what is not sent in its step is dropped.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// accumulator = gradient: values that are not sent are dropped. For unbiased codecs, for measurements, and for callers
/// with a residual of their own.
/// When not: with a biased selector, such as top-k, which need not converge without error feedback.
/// Cost: 4 bytes read and 4 written per element (a cache reads the latter first). Memory: 4 bytes per element.
struct none {
  static constexpr char const* name = "none";
  using spreads_non_finite = none;  ///< of a gradient that is not finite state 0 is not finite either
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
