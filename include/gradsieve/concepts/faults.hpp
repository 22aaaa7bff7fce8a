// Checks for mistakes that keep a type from being a policy, one for each, so that a compile error can name it.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/concepts/codec.hpp>
#include <gradsieve/concepts/exchange.hpp>
#include <gradsieve/concepts/partitioner.hpp>
#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/concepts/residual.hpp>
#include <gradsieve/concepts/selector.hpp>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI {
struct gather;  // exchange/gather.hpp
}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::detail {

// ---- Selectors: checks that a member exists in any form, and that it can be called ----------------------------

template <class P, class W>
concept names_fit = requires { &P::fit; } || requires { &P::template fit<W>; } ||
                    requires(P& p, W& work, accumulator_ref const acc, index_type k) { p.fit(work, acc, k); };
template <class P, class W>
concept names_select = requires { &P::select; } || requires { &P::template select<W>; } ||
                       requires(P& p, W& work, accumulator_ref const acc, index_type k, selection_span out) {
                         p.select(work, acc, k, out);
                       };
template <class P>
concept names_bin_length = requires { &P::bin_length; } || requires(P& p, layer const& each) { p.bin_length(each); };

template <class P, class W>
concept calls_fit = requires(P const p, W& work, accumulator_ref const acc, index_type k) {
  requires !std::is_void_v<decltype(p.fit(work, acc, k))>;
};
template <class P, class W>
using fitted = decltype(std::declval<P const&>().fit(std::declval<W&>(), accumulator_ref{}, index_type{}));
template <class P, class W>
concept calls_keep = requires(P const p, float value, fitted<P, W> const& threshold) {
  { p.keep(value, threshold) } -> std::same_as<bool>;
};
template <class P, class W>
concept keeps_without_throwing = requires(P const p, float value, fitted<P, W> const& threshold) {
  { p.keep(value, threshold) } noexcept;
};

template <class P, class W>
inline constexpr bool is_some_selector =
    names_fit<P, W> || names_select<P, W> || names_bin_length<P> || choosing_members<P> || !choose_fits<P>;
/// True if a policy has `fit` and is of no other family: only then are its fit and keep checked.
template <class P, class W>
inline constexpr bool only_fits =
    names_fit<P, W> && !direct_selector<P, W> && !bin_selector<P> && !choosing_members<P>;
template <class P, class W>
[[nodiscard]] constexpr bool keep_is_there() {
  if constexpr (only_fits<P, W> && calls_fit<P, W>) return calls_keep<P, W>;
  return true;
}
template <class P, class W>
[[nodiscard]] constexpr bool keep_is_noexcept() {
  if constexpr (only_fits<P, W> && calls_fit<P, W>)
    if constexpr (calls_keep<P, W>) return keeps_without_throwing<P, W>;
  return true;
}
template <class P, class W>
inline constexpr bool select_is_called = !names_select<P, W> || direct_selector<P, W> || !policy<P>;
template <class P>
inline constexpr bool bins_are_called = !names_bin_length<P> || bin_selector<P> || !policy<P>;

/// True if one of the checks above has found a mistake.
template <class P, class W>
inline constexpr bool selector_fault_is_named =
    !policy<P> || !is_some_selector<P, W> || (only_fits<P, W> && !calls_fit<P, W>) || !keep_is_there<P, W>() ||
    !keep_is_noexcept<P, W>() || !select_is_called<P, W> || !bins_are_called<P>;

// ---- Partitioners ----------------------------------------------------------------------------------------------

template <class P>
concept names_exchange = requires { typename P::default_exchange; };
template <class P>
concept calls_split =
    requires(P const p, std::span<range const> layers, segment_list& list) { p.split(layers, int{}, list); };
template <class P>
concept calls_assign =
    requires(P const p, std::span<segment> segments, std::span<double const> norms, step_budget const budget,
             partition_scratch& scratch) { p.assign(segments, norms, budget, scratch); };
template <class P>
concept says_promises = requires { requires std::same_as<decltype(P::traits), partitioner_traits const>; };

/// The exchange of a recipe that names none.
template <class P>
struct exchange_of {
  static_assert(names_exchange<P>,
                "recipe.partitioner needs using default_exchange = ..., the exchange of a recipe "
                "that names none, such as gradsieve::gather");
  using type = gather;  // so that this is the only error
};
template <names_exchange P>
struct exchange_of<P> {
  using type = typename P::default_exchange;
};

}  // namespace gradsieve::detail
/// @endcond
