// What a residual store must offer, and what it may.
#pragma once

#include <concepts>
#include <string_view>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve {

/// How a gradient is added to the state of an element, and what stays once a value was sent. `states` floats are
/// kept per element; state 0 is the accumulator, from which entries are selected. `full_layer`: the element
/// belongs to a layer that passes through uncompressed.
template <class P>
concept residual_store = policy<P> && requires(P const p, float g, element_state<P::states>& state, bool full_layer) {
  { p.accumulate_element(g, state) } noexcept;
  { p.remove_sent(g, state, full_layer) } noexcept;
};

// ---- What a residual store may offer -----------------------------------------------------------------------

/// `stored` is the format that the states are kept in; without it float. See in_bfloat16.
template <class P>
concept formatted_residual_store = requires { requires gradient_value<typename P::stored>; };

/// The format that a residual store's states are kept in.
template <class Residual>
struct stored_format {
  using type = float;
};
template <formatted_residual_store Residual>
struct stored_format<Residual> {
  using type = typename Residual::stored;
};
template <class Residual>
using stored_t = typename stored_format<Residual>::type;

/// Keeps another store's states, `store`, in another format: a checkpoint of one is read by the other.
template <class P>
concept wrapping_residual_store = formatted_residual_store<P> && requires(P const p) { p.store; };

/// A gradient of this L2 norm is multiplied with `factor(norm, world)` before it is accumulated, where `needs_norm()`.
/// Costs a pass.
template <class P>
concept scaling_residual_store = requires(P const p, double norm, int world) {
  { p.factor(norm, world) } noexcept -> std::same_as<float>;
  { p.needs_norm() } noexcept -> std::same_as<bool>;
};

/// `meaning`, a text, tells checkpoints apart where what the states mean has changed.
template <class P>
concept versioned_residual_store = requires {
  { P::meaning } -> std::convertible_to<std::string_view>;
};

// ---- Whether an optional member is one that will be called: else it would be passed over -------------------

template <class P>
inline constexpr bool stored_fits =
    formatted_residual_store<P> || !(requires { typename P::stored; } || requires { &P::stored; });
template <class P>
inline constexpr bool factor_fits =
    scaling_residual_store<P> || !(
                                     requires { &P::factor; } || requires { &P::needs_norm; } ||
                                     requires(P& p) { p.factor(0.0, 1); } || requires(P& p) { p.needs_norm(); });
template <class P>
inline constexpr bool meaning_fits =
    versioned_residual_store<P> || !(requires { &P::meaning; } || requires { P::meaning; });

}  // namespace gradsieve
