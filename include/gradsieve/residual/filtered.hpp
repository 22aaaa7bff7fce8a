// ScaleCom's low-pass filter of the residual.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A low-pass filter of the residual. accumulator = memory + gradient; memory = (1 - beta) memory + beta (accumulator -
/// sent). State 0 is the accumulator; state 1 is memory / beta: the sum of all gradients minus all sent values, to
/// rounding. It does not depend on beta, so a checkpoint may be continued with another beta. At beta 1 this equals
/// `error_feedback` to the last bit, at more cost. Below 1 the memory changes slowly, so ranks with noisy gradients
/// tend to agree on large elements. Nothing is lost, but a sent entry has only a part of its element's unsent sum, and
/// residual() returns state 0, not that sum. Passthrough layers leave nothing behind.
/// When not: with small batches, as their gradients would only be sent later; with beta 1.
/// Cost: 12 bytes read and 8 written per element. Memory: 8 bytes per element.
/// Source: ScaleCom (Chen et al., NeurIPS 2020), which uses beta near 0.1 for large batches.
struct filtered {
  static constexpr char const* name = "filtered";
  static constexpr auto fields() { return std::tuple{field<&filtered::beta>{"beta", above_to(0, 1)}}; }
  static constexpr std::size_t states = 2;
  static constexpr char const* meaning = "memory / beta";  ///< the meaning of state 1
  float beta = 1.0f;                                       ///< in (0, 1]

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    state[0] = multiply_add(beta, state[1], gradient);
    state[1] = add(state[1], gradient);
  }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool) const noexcept {
    state[0] = subtract(state[0], sent);
    float const unsent = subtract(state[1], sent);
    state[1] = is_finite(unsent) ? unsent : state[1];  // a codec may send more than the element has
  }

  friend bool operator==(filtered const&, filtered const&) = default;
};
static_assert(residual_store<filtered>);

}  // namespace gradsieve
