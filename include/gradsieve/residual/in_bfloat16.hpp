// A residual in half the memory.
#pragma once

#include <cstddef>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/residual/error_feedback.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Keeps another store's states as bfloat16. On a device only. Every step rounds the states stochastically without
/// bias, by a hash of step and element: runs repeat to the bit, and gradients below 1/256 of their residual count on
/// average, while rounding to the nearest would lose them. The stored value is sent, and subtracted exactly; rounding
/// adds noise of at most 2^-7 of the accumulator to the residual.
/// When not: if the accumulated gradients must equal the sent values plus the residual.
/// Cost: with error_feedback 8 bytes read and written per element, not 12. Memory: 2 bytes per element, not 4.
/// Source: stochastic rounding as in Gupta et al. 2015.
template <class Store = error_feedback>
struct in_bfloat16 {
  static_assert(
      detail::factor_fits<Store>,
      "in_bfloat16's store: factor and needs_norm must be float factor(double norm, int world) const noexcept "
      "and bool needs_norm() const noexcept");

  static constexpr char const* name = "in_bfloat16";
  static constexpr auto fields() { return std::tuple{field<&in_bfloat16::store>{"store"}}; }
  /// The format of the states; see formatted_residual_store.
  using stored = bfloat16;
  static constexpr std::size_t states = Store::states;
  Store store;  ///< the store whose states are kept

  /// The store's factor(); see scaling_residual_store.
  [[nodiscard]] GRADSIEVE_HD float factor(double norm, int world) const noexcept
    requires scaling_residual_store<Store>
  {
    return store.factor(norm, world);
  }
  /// The store's needs_norm(); see scaling_residual_store.
  [[nodiscard]] GRADSIEVE_HD constexpr bool needs_norm() const noexcept
    requires scaling_residual_store<Store>
  {
    return store.needs_norm();
  }

  GRADSIEVE_EITHER_SPACE
  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void accumulate_element(float gradient,
                                                                  element_state<states>& state) const noexcept {
    store.accumulate_element(gradient, state);
  }
  GRADSIEVE_EITHER_SPACE
  GRADSIEVE_INLINE GRADSIEVE_HD constexpr void remove_sent(float sent, element_state<states>& state,
                                                           bool full_layer) const noexcept {
    store.remove_sent(sent, state, full_layer);
  }

  friend bool operator==(in_bfloat16 const&, in_bfloat16 const&) = default;
};
/// Deduces the store.
template <class Store>
in_bfloat16(Store) -> in_bfloat16<Store>;
static_assert(residual_store<in_bfloat16<>>);

}  // namespace gradsieve
