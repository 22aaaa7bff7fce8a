// The concepts of partitioners.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>

/// @defgroup partitioners Partitioners
/// @ingroup policies
/// Policies that assign parts of the gradient, and numbers of entries, to ranks. A partitioner of your own:
/// @snippet custom_partitioner.cpp partitioner

namespace gradsieve::inline GRADSIEVE_ABI {

/// Needs and promises of a partitioner: `static constexpr partitioner_traits traits{.disjoint = true};`.
struct partitioner_traits {
  bool needs_norms = false;  ///< assign() reads the segments' norms; needs a selector without bins
  bool disjoint = false;     ///< no two ranks select from the same segment
  /// A segment's owner is (its owner in step 0 + step) % world, and nothing but the owner and the density depends on
  /// the step. A device then computes the owner itself, also in a CUDA graph. Without it, a step with a changed
  /// decision sends that to the device, and a CUDA graph repeats one decision.
  bool rotates = false;
  /// Every segment lies within one layer, or need not; if unset, segments are checked when they are planned.
  std::optional<bool> within_layers{};
  /// Exactly one rank selects in a step, from all segments, or need not; if unset, the exchange checks it.
  std::optional<bool> single_owner{};
};

/// Decides which rank selects from which segment, and how many entries. `split` cuts the selectable layers into
/// disjoint segments, in order, once for a world size; every element of these layers is in one. `assign` then sets, in
/// each step, how many entries each segment sends (`k`) and which rank selects there (`owner`: a rank, or
/// segment::every_rank), and nothing else. Every rank computes the same decision from the same inputs.
/// `squared_norms[i]` is the squared norm of `segments[i]`, summed over all ranks; it is valid if `traits.needs_norms`.
/// `default_exchange` is the exchange of a recipe that names none. Both results are checked in every build, in
/// O(segments); faults throw invalid_argument.
template <class P>
concept partitioner =
    policy<P> && requires(P const p, std::span<range const> layers, segment_list& list, std::span<segment> segments,
                          std::span<double const> squared_norms, step_budget const budget, partition_scratch& scratch) {
      typename P::default_exchange;
      requires std::same_as<decltype(P::traits), partitioner_traits const>;
      typename std::bool_constant<P::traits.disjoint>;
      p.split(layers, int{}, list);
      p.assign(segments, squared_norms, budget, scratch);
    };

namespace detail {

/// True if no two ranks select from the same segment.
template <partitioner P>
[[nodiscard]] constexpr bool is_disjoint(P const& how) {
  return with_chosen(how, []<class One>(One const&) { return One::traits.disjoint; });
}

/// True if assign() reads norms. The traits of a partitioner that stands for several are true if one of them does.
template <partitioner P>
[[nodiscard]] constexpr bool reads_norms(P const& how) {
  return with_chosen(how, []<class One>(One const&) { return One::traits.needs_norms; });
}

/// True if it has a member with the name of a trait, which nothing reads.
template <class P>
concept has_stray_promise =
    GRADSIEVE_HAS(P, needs_norms) || GRADSIEVE_HAS(P, disjoint) || GRADSIEVE_HAS(P, rotates) ||
    GRADSIEVE_HAS(P, within_layers) || GRADSIEVE_HAS(P, single_owner);

}  // namespace detail

}  // namespace gradsieve
