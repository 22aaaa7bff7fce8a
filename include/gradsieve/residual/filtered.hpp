// ScaleCom's low-pass filter: the memory follows what was not sent, at a fraction of its speed.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve {

/// accumulator = memory + gradient; memory = (1 - beta) memory + beta (accumulator - sent). State 0 is the accumulator,
/// state 1 memory / beta, which is all that waits: what came in = what was sent + state 1, to rounding, and as beta
/// is not in it, also where a checkpoint goes on with another beta.
/// At beta 1 this is `error_feedback` to the last bit, at more cost. Below 1 memories move slowly, so that ranks that
/// see noisy gradients come to agree on what is large. A gradient that is not sent at once is added to the memory times
/// beta, and the share 1 - beta of the memory outlives its sending: nothing is lost for good, but less than all
/// of what waits goes out at once, and what is sent and what residual() shows do not add up to what came in. Layers
/// that pass through leave nothing behind.
/// When not: with batches that are not large, as their gradients then wait longer for nothing; with beta 1.
/// Cost: 12 bytes read and 8 written per element. Memory: 8 bytes per element.
/// Source: ScaleCom (Chen et al., NeurIPS 2020), which has beta near 0.1 for large batches.
struct filtered {
  static constexpr char const* name = "filtered";
  static constexpr auto fields() { return std::tuple{field<&filtered::beta>{"beta", above_to(0, 1)}}; }
  static constexpr std::size_t states = 2;
  static constexpr char const* meaning = "memory / beta";  ///< of state 1; it was the memory once
  float beta = 1.0f;                                       ///< in (0, 1]

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    state[0] = multiply_add(beta, state[1], gradient);
    state[1] = add(state[1], gradient);
  }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool) const noexcept {
    state[0] = subtract(state[0], sent);
    float const left = subtract(state[1], sent);
    state[1] = is_finite(left) ? left : state[1];  // a codec may send more than the element has
  }

  friend bool operator==(filtered const&, filtered const&) = default;
};
static_assert(residual_store<filtered>);

}  // namespace gradsieve
