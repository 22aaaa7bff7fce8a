// Error feedback: values that were not sent are added to the next gradient.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Values that are not sent are added to the next gradient: accumulator = decay * residual + gradient; sent values are
/// subtracted exactly. Nothing is lost at decay 1; below 1 old gradients decay. Keep the default unless the learning
/// rate jumps. The default residual store. Cost: 8 bytes read and 4 written per element. Memory: 4 bytes per element.
/// Source: Seide et al. 2014, Stich et al. 2018.
struct error_feedback {
  static constexpr char const* name = "error_feedback";
  using spreads_non_finite = error_feedback;  ///< of a gradient that is not finite state 0 is not finite either
  static constexpr auto fields() { return std::tuple{field<&error_feedback::decay>{"decay", between(0, 1)}}; }
  static constexpr std::size_t states = 1;
  float decay = 1.0f;  ///< in [0, 1]

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    state[0] = multiply_add(decay, state[0], gradient);
  }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool) const noexcept {
    state[0] = subtract(state[0], sent);
  }

  friend bool operator==(error_feedback const&, error_feedback const&) = default;
};
static_assert(residual_store<error_feedback>);

}  // namespace gradsieve
