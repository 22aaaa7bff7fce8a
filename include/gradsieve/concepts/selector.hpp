// The concepts of selectors.
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

/// @defgroup selectors Selectors
/// @ingroup policies
/// Policies that choose the entries of an accumulator to send. A selector of your own is a plain struct:
/// @snippet custom_selector.cpp selector

namespace gradsieve::inline GRADSIEVE_ABI {

/// Family 1 of selectors: fits a threshold to the accumulator once per step and keeps the elements that pass it; needs
/// no kernel. `fit` gets the workspace (statistics and counting passes), the accumulator and the budget k; `keep` is
/// called for each element with the result of `fit`. If it keeps more than k, the k largest of them are sent.
template <class P, class Workspace>
concept threshold_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, float value) {
      p.fit(work, acc, k);
      { p.keep(value, std::declval<decltype(p.fit(work, acc, k)) const&>()) } noexcept -> std::same_as<bool>;
    };

/// Family 2 of selectors: writes at most `out.indices.size()` entries in index order and returns their number. There is
/// room for `capacity(k)` entries (k without such a member), for fewer only if k is close to the segment's size. With
/// less to write: `choose` and `settle` (candidate_selector below), and `predict`.
template <class P, class Workspace>
concept direct_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, selection_span out) {
      { p.select(work, acc, k, out) } -> std::same_as<index_type>;
    };

/// A bin as selectors of family 3 see it: consecutive elements of one segment.
struct bin_archetype {
  [[nodiscard]] std::size_t size() const noexcept;                   ///< elements
  [[nodiscard]] index_type budget() const noexcept;                  ///< entries that are due here
  [[nodiscard]] key_type max_key() const noexcept;                   ///< the largest key
  [[nodiscard]] threshold kth_largest(index_type k) const noexcept;  ///< keeps the k largest
};

/// Family 3 of selectors: chooses in short bins, in the accumulate pass. `bin_length` is their length in the layer in
/// which a segment begins. `threshold_of` returns a bin's threshold; accumulators, or their scores, that pass it are
/// sent. If a segment's bins keep more than its k, its k largest are sent instead. Needs a partitioner without norms.
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
template <class Member>
using class_of = typename member_of<Member>::type;

}  // namespace detail

// ---- What a selector may offer -----------------------------------------------------------------------------

/// At most `capacity(k)` entries are sent for a budget of k; without this member k. Buffers are sized for it.
template <class P>
concept capacity_selector = requires(P const p, index_type k) {
  { p.capacity(k) } -> std::same_as<index_type>;
};

/// `predict` returns, before the accumulate pass, a key that about k or a few more elements will reach, or 0. The pass
/// collects the elements that reach it, and `select` gets these candidates from the workspace without another pass.
/// `predict` is a template of the workspace, or of a preview, which has only `sample()`, of what the pass will write.
template <class P, class Workspace>
concept predicting_selector = requires(P const p, Workspace& work, accumulator_ref const acc, index_type k) {
  { p.predict(work, acc, k) } -> std::same_as<key_type>;
};

/// The member of a warm_selector, its own or inherited.
template <class P>
concept predicting_warm_members = requires(P const p) {
  { p.predicts_warm() } noexcept -> std::same_as<bool>;
  requires std::is_member_function_pointer_v<decltype(&P::predicts_warm)>;
};

/// `predicts_warm()` is true if `predict` returns the warm threshold wherever one fits the budget. A device then skips
/// `predict` in steps with unchanged budgets; with norms, which come after the accumulate pass, the host's pass
/// collects candidates with the warm threshold. Results do not change. An inherited member does not count, as it does
/// not know the `predict` of the derived class.
template <class P>
concept warm_selector = predicting_warm_members<P> && std::same_as<detail::class_of<decltype(&P::predicts_warm)>, P>;

/// The members of a candidate_selector, its own or inherited.
template <class P>
concept choosing_members =
    requires(P const p, accumulator_ref const acc, candidates const& found, index_type k, threshold const at) {
      { p.choose(acc, found, k) } noexcept -> std::same_as<candidate_choice>;
      { p.settle(acc, found, k, at) } -> std::same_as<threshold>;
      &P::choose;
      &P::settle;
    };

/// `choose` returns which candidates are selected, if there are enough. `settle` gets the threshold that keeps those,
/// may store a warm threshold, and returns the threshold to use: that one or a lower one that no other element than the
/// candidates reaches. They replace `select`; if a selector has one too, it must give the same entries. A device then
/// reads candidates only, and calls `select` for segments where they do not suffice. Inherited members do not count, as
/// they do not know the `select` of the derived class.
template <class P>
concept candidate_selector = choosing_members<P> && std::same_as<detail::class_of<decltype(&P::choose)>, P> &&
                             std::same_as<detail::class_of<decltype(&P::settle)>, P>;

/// `search` returns the threshold to use if the candidates of a segment do not suffice. Without it they are collected
/// again from a sampled bound; if they still do not suffice, `settle` gets the threshold of the k largest.
template <class P, class Workspace>
concept searching_selector =
    choosing_members<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k) {
      { p.search(work, acc, k) } -> std::same_as<threshold>;
    };

/// A bin's threshold applies to `score(accumulator, gradient)` instead of to the accumulator.
template <class P>
concept scoring_selector = bin_selector<P> && requires(P const p, float value) {
  { p.score(value, value) } -> std::same_as<float>;
};

/// `sent(accumulator, mean)` is the value that is sent for an element. k is then only an upper limit, and a segment
/// whose k is its size is not sent in full.
template <class P>
concept quantising_selector = bin_selector<P> && requires(P const p, float value) {
  { p.sent(value, value) } -> std::same_as<float>;
};

/// `bins_within_layers` is true: no bin may cross a layer border.
template <class P>
concept layer_bin_selector = bin_selector<P> && requires { requires detail::flag<P::bins_within_layers>; };

/// `same_on_all_ranks` is true: seed, step and segment alone decide which elements are sent, not their values.
template <class P>
concept shared_selector = requires { requires detail::flag<P::same_on_all_ranks>; };

/// True if a selector sends all elements of a segment whose k is its size; they then need no indices.
template <class P>
inline constexpr bool gives_full_segments = !quantising_selector<P>;

namespace detail {

/// True if a selector, or the chosen one of several, chooses in bins.
template <class P>
[[nodiscard]] constexpr bool chooses_in_bins(P const& chosen) {
  return with_chosen(chosen, []<class One>(One const&) { return bin_selector<One>; });
}

}  // namespace detail

/// Chooses the entries of an accumulator that are sent: a model of one of the three families, or `choose` and `settle`.
template <class P, class Workspace>
concept selector =
    threshold_selector<P, Workspace> || direct_selector<P, Workspace> || bin_selector<P> || choosing_members<P>;

// ---- Checks that an optional member, if there is one, has the signature that is called -----------------------
namespace detail {

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
template <class P, class Workspace>
inline constexpr bool search_fits = searching_selector<P, Workspace> || !(
    requires { &P::search; } || requires { &P::template search<Workspace>; });
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
    (bin_selector<P> && requires { flag<P::bins_within_layers>; });

template <class P>
inline constexpr bool same_on_all_ranks_fits =
    !(
        requires { &P::same_on_all_ranks; } || requires { P::same_on_all_ranks; }) ||
    requires { flag<P::same_on_all_ranks>; };

}  // namespace detail

}  // namespace gradsieve
