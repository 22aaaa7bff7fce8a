// What a partitioner must offer, and what it may.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>

namespace gradsieve {

/// Splits the layers that are selected from into disjoint segments, in order, once for a world size; then says
/// each step how many entries each segment gives (`k`) and which rank selects there (`owner`). Every rank
/// computes the same decision from the same inputs. `squared_norms[i]` belongs to `segments[i]`, summed over all
/// ranks, and is valid if `needs_norms`. `disjoint`: no two ranks select from the same segment.
template <class P>
concept partitioner =
    policy<P> && requires(P const p, std::span<range const> layers, segment_list& list, std::span<segment> segments,
                          std::span<double const> squared_norms, step_budget const budget, partition_scratch& scratch) {
      typename P::default_exchange;
      { P::needs_norms } -> std::convertible_to<bool>;
      { P::disjoint } -> std::convertible_to<bool>;
      p.split(layers, int{}, list);
      p.assign(segments, squared_norms, budget, scratch);
    };

// ---- What a partitioner may offer --------------------------------------------------------------------------

/// `rotates` is true: a segment's owner is (its owner in step 0 + step) % world, and nothing but the owner and the
/// density depends on the step. A device then passes the turn on by itself; else it is told anew by each step that
/// decides otherwise, and a CUDA graph repeats one decision.
template <class P>
concept rotating_partitioner = partitioner<P> && requires { requires detail::flag<P::rotates>; };

/// It says with `within_layers` whether no segment goes beyond one layer. Where it does not say, segments are looked at
/// when they are planned.
template <class P>
concept says_within_layers = requires { detail::flag<P::within_layers>; };

/// No segment goes beyond one layer, as it says.
template <class P>
concept layer_partitioner = partitioner<P> && requires { requires detail::flag<P::within_layers>; };

/// It says with `single_owner` whether one rank selects in a step, from all segments, and no other. Where it does not
/// say, the exchange finds out.
template <class P>
concept says_single_owner = requires { detail::flag<P::single_owner>; };

/// One rank selects in a step, as it says.
template <class P>
concept single_owner_partitioner = partitioner<P> && requires { requires detail::flag<P::single_owner>; };

// ---- Whether an optional member is one that will be read: else it would be passed over ---------------------

template <class P>
inline constexpr bool rotates_fits =
    !(requires { &P::rotates; } || requires { P::rotates; }) || requires { detail::flag<P::rotates>; };
template <class P>
inline constexpr bool within_layers_fits =
    says_within_layers<P> || !(requires { &P::within_layers; } || requires { P::within_layers; });
template <class P>
inline constexpr bool single_owner_fits =
    says_single_owner<P> || !(requires { &P::single_owner; } || requires { P::single_owner; });

}  // namespace gradsieve
