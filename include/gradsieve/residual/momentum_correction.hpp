// Momentum before selection, as Deep Gradient Compression does it.
#pragma once

#include <cmath>
#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve {

/// velocity = momentum * velocity + gradient; accumulator += velocity; what is sent leaves the accumulator and,
/// with `masking`, clears its velocity, so that stale momentum does not push the element on. The optimizer must
/// not apply momentum again to the update. Layers that pass through
/// uncompressed, and segments that an exchange sends whole, keep their velocity.
/// When not: with an optimizer that has its own momentum or second moments (Adam): use `error_feedback`. Where another
/// rank selects in every step (`cyclic`, deft{.rotate_every = 1}), at a density of 0.1 % or less with many ranks:
/// most of what is chosen then is noise of the rank that selects, what waits grows by up to 1 / (1 - momentum) more
/// before it is sent, and training may fail.
/// Cost: 12 bytes read and 8 written per element; with `clip` one more read. Memory: 8 bytes per element.
/// Source: Lin et al. 2018.
struct momentum_correction {
  static constexpr char const* name = "momentum_correction";
  static constexpr auto fields() {
    return std::tuple{field<&momentum_correction::momentum>{"momentum", to_below(0, 1)},
                      field<&momentum_correction::masking>{"masking"},
                      field<&momentum_correction::clip>{"clip", at_least(0)}};
  }
  static constexpr std::size_t states = 2;
  float momentum = 0.9f;  ///< in [0, 1)
  bool masking = true;
  float clip = 0;  ///< limit of the norm of the averaged gradient, 0: none. Each rank clips at clip / sqrt(world)

  /// What a gradient of this norm is multiplied with before it is accumulated.
  [[nodiscard]] GRADSIEVE_HD float factor(double norm, int world) const noexcept {
    double const limit = static_cast<double>(clip) / std::sqrt(static_cast<double>(world));
    return clip > 0 && norm > limit ? static_cast<float>(limit / norm) : 1.0f;
  }

  /// Whether factor() needs to know the norm.
  [[nodiscard]] GRADSIEVE_HD constexpr bool needs_norm() const noexcept { return clip > 0; }

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
