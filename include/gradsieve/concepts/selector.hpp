// What a selector must offer, and what it may.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve {

/// Family 1 of selectors: fits a threshold to the accumulator once a step and keeps what the threshold keeps. No kernel
/// to write. `fit` gets the workspace (statistics and counting passes), the accumulator and the budget k; `keep` is
/// asked once per element. More than k kept: the k largest of them are sent, the rest waits.
template <class P, class Workspace>
concept threshold_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, float value) {
      p.fit(work, acc, k);
      { p.keep(value, std::declval<decltype(p.fit(work, acc, k)) const&>()) } noexcept -> std::same_as<bool>;
    };

/// Family 2 of selectors: writes at most `out.indices.size()` entries, index-ordered, and returns how many. There is
/// room for `capacity(k)` of them, or k where that is not declared, and less only where a segment is nearly sent in
/// full.
template <class P, class Workspace>
concept direct_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, selection_span out) {
      { p.select(work, acc, k, out) } -> std::same_as<index_type>;
    };

/// A bin as selectors of family 3 see it: consecutive elements of one segment, and how many of its k entries are due
/// here. `kth_largest` gives the threshold that keeps the k largest.
struct bin_archetype {
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] index_type budget() const noexcept;
  [[nodiscard]] key_type max_key() const noexcept;
  [[nodiscard]] threshold kth_largest(index_type k) const noexcept;
};

/// Family 3 of selectors: chooses in short bins, in the accumulate pass. `bin_length` says how long they are in the
/// layer that a segment begins with. `threshold_of` gives a bin's threshold, which is held against the accumulators, or
/// against their score. Where bins keep more than the segment's k, its k largest are sent instead. Needs a partitioner
/// without norms.
template <class P>
concept bin_selector = policy<P> && requires(P const p, layer const& each, bin_archetype const& bin) {
  { p.bin_length(each) } -> std::same_as<std::uint32_t>;
  { p.threshold_of(bin) } noexcept -> std::same_as<threshold>;
};

namespace detail {

template <class Member>
struct member_of;
template <class Member, class Class>
struct member_of<Member Class::*> {
  using type = Class;
};
/// The class that a pointer to a member belongs to.
template <class Member>
using class_of = typename member_of<Member>::type;

}  // namespace detail

/// Chooses the entries of an accumulator that are sent.
template <class P, class Workspace>
concept selector = threshold_selector<P, Workspace> || direct_selector<P, Workspace> || bin_selector<P>;

// ---- What a selector may offer -----------------------------------------------------------------------------

/// `capacity(k)` entries may be sent for a budget of k; without it k.
template <class P>
concept capacity_selector = requires(P const p, index_type k) {
  { p.capacity(k) } -> std::same_as<index_type>;
};

/// `predict` names, before the accumulate pass, a key that about k or a few more elements will reach; what reaches it
/// is then collected by that pass, and `select` has it from the workspace without reading again. 0: no such key. It is
/// a template of the workspace, which may be a preview: that answers `sample()` alone, of what the pass will write.
template <class P, class Workspace>
concept predicting_selector = requires(P const p, Workspace& work, accumulator_ref const acc, index_type k) {
  { p.predict(work, acc, k) } -> std::same_as<key_type>;
};

template <class P>
concept predicting_warm_members = requires(P const p) {
  { p.predicts_warm() } noexcept -> std::same_as<bool>;
  requires std::is_member_function_pointer_v<decltype(&P::predicts_warm)>;
};

/// `predicts_warm()` is true: wherever a warm threshold fits (warm_threshold_fits), that is what `predict` gives. A
/// device then need not call it in a step whose budgets are those of the step before. It is a member of the selector
/// itself: what it inherits knows nothing of a `predict` of its own.
template <class P>
concept warm_selector = predicting_warm_members<P> && std::same_as<detail::class_of<decltype(&P::predicts_warm)>, P>;

template <class P>
concept choosing_members =
    requires(P const p, accumulator_ref const acc, candidates const& found, index_type k, threshold const at) {
      { p.choose(acc, found, k) } noexcept -> std::same_as<candidate_choice>;
      { p.settle(acc, found, k, at) } -> std::same_as<threshold>;
      &P::choose;
      &P::settle;
    };

/// `choose` says what is wanted of the candidates, where they do; `settle` gets the threshold that keeps that, may
/// leave a warm one behind, and returns the threshold to keep, that one or a lower. `select` must come to the same. A
/// device then searches among candidates with kernels that need no barrier, and calls `select` for other segments
/// alone. Both are members of the selector itself: what it inherits knows nothing of a `select` of its own.
template <class P>
concept candidate_selector = choosing_members<P> && std::same_as<detail::class_of<decltype(&P::choose)>, P> &&
                             std::same_as<detail::class_of<decltype(&P::settle)>, P>;

/// The threshold of a bin is held against `score(accumulator, gradient)`.
template <class P>
concept scoring_selector = bin_selector<P> && requires(P const p, float value) {
  { p.score(value, value) } -> std::same_as<float>;
};

/// `sent(accumulator, mean of the bins' largest magnitudes)` is the value that goes out. k is then a limit only, and a
/// segment that may give all its elements is not sent in full.
template <class P>
concept quantising_selector = bin_selector<P> && requires(P const p, float value) {
  { p.sent(value, value) } -> std::same_as<float>;
};

/// `bins_within_layers` is true: no bin may cross from one layer into the next.
template <class P>
concept layer_bin_selector = bin_selector<P> && requires { requires detail::flag<P::bins_within_layers>; };

/// `same_on_all_ranks` is true: seed, step and segment alone decide which elements are sent, not their values.
template <class P>
concept shared_selector = requires { requires detail::flag<P::same_on_all_ranks>; };

/// Whether a selector that is to give all elements of a segment does: then they need no indices.
template <class P>
inline constexpr bool gives_full_segments = !quantising_selector<P>;

// ---- Whether an optional member is one that will be called: else it would be passed over -------------------

template <class P>
inline constexpr bool capacity_fits =
    capacity_selector<P> || !(requires { &P::capacity; } || requires(P& p) { p.capacity(index_type{}); });
template <class P, class Workspace>
inline constexpr bool predict_fits =
    predicting_selector<P, Workspace> || !(requires { &P::predict; } || requires { &P::template predict<Workspace>; });
template <class P>
inline constexpr bool predicts_warm_fits =
    predicting_warm_members<P> || !(requires { &P::predicts_warm; } || requires(P& p) { p.predicts_warm(); });
template <class P>
inline constexpr bool choose_fits =
    choosing_members<P> ||
    !(
        requires { &P::choose; } || requires { &P::settle; } ||
        requires(P& p) { p.choose(accumulator_ref{}, candidates{}, index_type{}); } ||
        requires(P& p) { p.settle(accumulator_ref{}, candidates{}, index_type{}, threshold{}); });
template <class P>
inline constexpr bool score_fits =
    scoring_selector<P> || !(requires { &P::score; } || requires(P& p) { p.score(0.0f, 0.0f); });
template <class P>
inline constexpr bool sent_fits =
    quantising_selector<P> || !(requires { &P::sent; } || requires(P& p) { p.sent(0.0f, 0.0f); });
template <class P>
inline constexpr bool bins_within_layers_fits =
    !(
        requires { &P::bins_within_layers; } || requires { P::bins_within_layers; }) ||
    (bin_selector<P> && requires { detail::flag<P::bins_within_layers>; });

template <class P>
inline constexpr bool same_on_all_ranks_fits =
    !(
        requires { &P::same_on_all_ranks; } || requires { P::same_on_all_ranks; }) ||
    requires { detail::flag<P::same_on_all_ranks>; };

}  // namespace gradsieve
