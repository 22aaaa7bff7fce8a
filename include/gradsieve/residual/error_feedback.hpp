// Error feedback: what was not sent is added to the next gradient.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/error.hpp>
#include <gradsieve/text.hpp>

namespace gradsieve {

/// accumulator = decay * residual + gradient; what is sent leaves it, exactly. Nothing is lost at decay 1.
/// Below 1 old gradients fade; the default is right unless the learning rate jumps.
/// Cost: 8 bytes read and 4 written per element. Memory: 4 bytes per element.
/// Source: Seide et al. 2014, Stich et al. 2018.
struct error_feedback {
  static constexpr std::size_t states = 1;
  float decay = 1.0f;  ///< in [0, 1]

  /// @throws invalid_argument
  void check() const { require_between("error_feedback's decay", static_cast<double>(decay), 0, 1); }

  GRADSIEVE_HD constexpr void enter(float gradient, element_state<states>& state) const noexcept {
    state[0] = multiply_add(decay, state[0], gradient);
  }

  GRADSIEVE_HD constexpr void leave(float sent, element_state<states>& state, bool) const noexcept { state[0] -= sent; }

  friend bool operator==(error_feedback const&, error_feedback const&) = default;
  friend std::ostream& operator<<(std::ostream& out, error_feedback const& it) {
    return describe(out, "error_feedback", std::pair{"decay", it.decay});
  }
};
static_assert(residual_store<error_feedback>);

}  // namespace gradsieve
