// The concepts of partitioners.
#pragma once

#include <concepts>
#include <span>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>

/// @defgroup partitioners Partitioners
/// @ingroup policies
/// Which rank selects from which part of the gradient, and how many entries. A partitioner of one's own:
/// @snippet custom_partitioner.cpp partitioner

namespace gradsieve {

/// Says which rank selects from which segment, and how many entries. `split` cuts the layers that are selected from
/// into disjoint segments, in order, once for a world size; every element of these layers is in one. `assign` then
/// sets, in each step, how many entries each segment gives (`k`) and which rank selects there (`owner`: a rank, or
/// segment::every_rank), and nothing else. Every rank computes the same decision from the same inputs.
/// `squared_norms[i]` is the squared norm of `segments[i]`, summed over all ranks; it is valid if `needs_norms`.
/// `disjoint`: no two ranks select from the same segment. `default_exchange` is the exchange of a recipe that names
/// none. What both return is checked in every build, in O(segments): a fault throws invalid_argument, which names it.
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
/// density depends on the step. A device then computes the owner itself, also in a CUDA graph. Without it, a step whose
/// decision differs from the last one sends the new decision to the device, and a CUDA graph repeats one decision.
template <class P>
concept rotating_partitioner = partitioner<P> && requires { requires detail::flag<P::rotates>; };

/// It has the constant `within_layers`: whether every segment lies within one layer. Without it the segments are
/// checked when they are planned.
template <class P>
concept says_within_layers = requires { detail::flag<P::within_layers>; };

/// `within_layers` is true: every segment lies within one layer.
template <class P>
concept layer_partitioner = partitioner<P> && requires { requires detail::flag<P::within_layers>; };

/// It has the constant `single_owner`: whether exactly one rank selects in a step, from all segments. Without it the
/// exchange checks that.
template <class P>
concept says_single_owner = requires { detail::flag<P::single_owner>; };

/// `single_owner` is true: exactly one rank selects in a step.
template <class P>
concept single_owner_partitioner = partitioner<P> && requires { requires detail::flag<P::single_owner>; };

// ---- Whether an optional member, where there is one, has the type that is read -------------------------------
/// @cond internal

/// Whether no two ranks select from the same segment. One that stands for several partitioners has is_disjoint()
/// besides.
template <partitioner P>
[[nodiscard]] constexpr bool is_disjoint(P const& how) {
  if constexpr (requires { how.is_disjoint(); })
    return how.is_disjoint();
  else
    return P::disjoint;
}

template <class P>
inline constexpr bool rotates_fits =
    !(requires { &P::rotates; } || requires { P::rotates; }) || requires { detail::flag<P::rotates>; };
template <class P>
inline constexpr bool within_layers_fits =
    says_within_layers<P> || !(requires { &P::within_layers; } || requires { P::within_layers; });
template <class P>
inline constexpr bool single_owner_fits =
    says_single_owner<P> || !(requires { &P::single_owner; } || requires { P::single_owner; });

/// @endcond

}  // namespace gradsieve
