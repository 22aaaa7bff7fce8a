// Momentum before selection, as in Deep Gradient Compression.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/power.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Momentum before selection: velocity = momentum * velocity + gradient; accumulator += velocity. A sent value is
/// subtracted from the accumulator; with `masking` it also clears the element's velocity, so that stale momentum has no
/// further effect. The optimizer must not apply momentum again. Passthrough layers, and segments sent in full, keep
/// theirs.
///
/// `clip` limits the norm of the gradient that exchange() gets on one rank, before anything is accumulated: a gradient
/// whose norm over all its elements exceeds clip * sqrt(P) is scaled down to that norm. With P ranks whose gradients
/// are independent and equally large, their mean then has at most the norm `clip`: the mean of P such gradients of norm
/// g has the norm g / sqrt(P). Set `clip` to the limit that clips the averaged gradient in uncompressed training.
/// compress() does not know other ranks and uses P = 1; in two_level_compressor a node counts as one rank.
/// When not: with an optimizer that has its own momentum or second moments (Adam): use `error_feedback`. If another
/// rank selects in every step (`cyclic`, deft{.rotate_every = 1}), with a density of 0.1 % or less and many ranks: the
/// selecting rank mostly selects the noise of its own samples, unsent values grow by up to 1 / (1 - momentum) before
/// they are sent, and training may fail.
/// Cost: 12 bytes read and 8 written per element; with `clip` one more read. Memory: 8 bytes per element.
/// Source: Lin et al. 2018, whose limit clip / sqrt(P) is for gradients that each rank has divided by P before.
struct momentum_correction {
  static constexpr char const* name = "momentum_correction";
  using spreads_non_finite = momentum_correction;  ///< of a gradient that is not finite state 0 is not finite either
  static constexpr auto fields() {
    return std::tuple{field<&momentum_correction::momentum>{"momentum", to_below(0, 1)},
                      field<&momentum_correction::masking>{"masking"},
                      field<&momentum_correction::clip>{"clip", at_least(0)}};
  }
  static constexpr std::size_t states = 2;
  float momentum = 0.9f;  ///< in [0, 1)
  bool masking = true;    ///< true to clear the velocity of sent elements
  float clip = 0;         ///< limit of the averaged gradient's norm, 0: none; each rank clips at clip * sqrt(world)

  /// The factor of a gradient of this norm before it is accumulated; see scaling_residual_store.
  [[nodiscard]] GRADSIEVE_HD float factor(double norm, int world) const noexcept {
    double const limit = exact::multiply(widened(clip), exact::square_root(static_cast<double>(world)));
    return needs_norm() && norm > limit ? narrowed(exact::divide(limit, norm)) : 1.0f;
  }

  /// True if factor() needs the norm.
  [[nodiscard]] GRADSIEVE_HD constexpr bool needs_norm() const noexcept { return magnitude_key(clip) != 0; }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    state[1] = multiply_add(momentum, state[1], gradient);
    state[0] = add(state[0], state[1]);
  }

  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool full_layer) const noexcept {
    state[0] = subtract(state[0], sent);
    if (masking && !full_layer) state[1] = 0;
  }

  friend bool operator==(momentum_correction const&, momentum_correction const&) = default;
};
static_assert(residual_store<momentum_correction>);

}  // namespace gradsieve
