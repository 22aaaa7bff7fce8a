// The concepts of residual stores.
#pragma once

#include <concepts>
#include <string_view>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

/// @defgroup residuals Residual stores
/// @ingroup policies
/// Policies that add gradients to the residual and subtract sent values. A store of your own:
/// @snippet custom_residual.cpp residual

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

/// True for a member that takes the state by value or as const: its result would be lost. A forwarding reference that
/// takes a temporary takes an element_state& too.
template <class P>
concept takes_copy_of_state =
    (requires(P const p) { p.accumulate_element(0.0f, element_state<P::states>{}); } &&
     !requires { static_cast<void (P::*)(float, element_state<P::states>&) const>(&P::accumulate_element); }) ||
    (requires(P const p) { p.remove_sent(0.0f, element_state<P::states>{}, false); } &&
     !requires { static_cast<void (P::*)(float, element_state<P::states>&, bool) const>(&P::remove_sent); });

}  // namespace detail

/// Decides how a gradient enters the residual, and what stays. Keeps `states` floats per element, at least one; state 0
/// is the accumulator, from which entries are selected. `accumulate_element` adds a gradient to an element's state,
/// which it takes by reference; `remove_sent` subtracts a sent value. `full_layer`: of a passthrough layer.
template <class P>
concept residual_store = policy<P> && requires(P const p, float g, element_state<P::states>& state, bool full_layer) {
  requires P::states > 0;
  { p.accumulate_element(g, state) } noexcept;
  { p.remove_sent(g, state, full_layer) } noexcept;
} && !detail::takes_copy_of_state<P>;

// ---- What a residual store may offer -----------------------------------------------------------------------

/// `stored`, a gradient_value, is the format of the states; without it float. See in_bfloat16.
template <class P>
concept formatted_residual_store = requires { requires gradient_value<typename P::stored>; };

/// The format that a residual store's states are kept in.
template <class Residual>
struct stored_format {
  using type = float;  ///< the format
};
/// The format that a formatted residual store names.
template <formatted_residual_store Residual>
struct stored_format<Residual> {
  using type = typename Residual::stored;  ///< the format
};
/// stored_format<Residual>::type.
template <class Residual>
using stored_t = typename stored_format<Residual>::type;

/// Keeps the states of another store, `store`, in another format; each reads the other's checkpoints.
template <class P>
concept wrapping_residual_store = formatted_residual_store<P> && requires(P const p) { p.store; };

/// If `needs_norm()`, the gradient is multiplied by `factor(norm, world)` before it is accumulated; `norm` is its L2
/// norm on this rank. Costs a pass.
template <class P>
concept scaling_residual_store = requires(P const p, double norm, int world) {
  { p.factor(norm, world) } noexcept -> std::same_as<float>;
  { p.needs_norm() } noexcept -> std::same_as<bool>;
};

/// `meaning`, a text, is part of a checkpoint's kind: if it changes, older checkpoints are refused.
template <class P>
concept versioned_residual_store = requires {
  { P::meaning } -> std::convertible_to<std::string_view>;
};

// ---- Checks that an optional member, if there is one, has the signature that is called -----------------------
namespace detail {

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

}  // namespace detail

}  // namespace gradsieve
