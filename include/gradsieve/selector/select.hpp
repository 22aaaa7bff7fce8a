// One call for all families of selectors.
#pragma once

#include <gradsieve/concepts.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Most entries that a selector sends for a budget of k: its `capacity(k)`, otherwise k.
GRADSIEVE_EITHER_SPACE
template <class Selector>
[[nodiscard]] GRADSIEVE_HD index_type selection_capacity(Selector const& chosen, index_type k) {
  if constexpr (capacity_selector<Selector>)
    return chosen.capacity(k);
  else
    return k;
}

/// The key from which the accumulate pass collects candidates for a selector; 0: none. `work` may be a preview.
GRADSIEVE_EITHER_SPACE
template <class Selector, class Workspace>
[[nodiscard]] GRADSIEVE_HD key_type predict_candidate_threshold(Selector const& chosen, Workspace& work,
                                                                accumulator_ref const acc, index_type k) {
  if constexpr (predicting_selector<Selector, Workspace>)
    return chosen.predict(work, acc, k);
  else {
    static_assert(
        !requires { &Selector::predict; },
        "a selector's predict() is a template of the workspace: before the accumulate pass it gets a preview; "
        "it returns a key_type");
    return 0;
  }
}

namespace detail {

/// True if a selector may need only complete candidates: choose_among().
template <class Selector>
inline constexpr bool uses_candidates = candidate_selector<Selector> || bin_selector<Selector>;

/// A selector's choice among a segment's candidates: its own `choose`, or all that its bins keep, if not more than k.
template <class Selector>
[[nodiscard]] GRADSIEVE_HD candidate_choice choose_among(Selector const& chosen, accumulator_ref const acc,
                                                         candidates const& found, index_type k) noexcept {
  if (k == 0 || !found.complete) return candidate_choice::none();
  if constexpr (candidate_selector<Selector>)
    return chosen.choose(acc, found, k);
  else
    return found.count <= k ? candidate_choice::all() : candidate_choice::none();
}

/// The threshold to use for a choice of choose_among(), given the one that keeps exactly that choice.
template <class Selector>
GRADSIEVE_HD threshold settle_choice(Selector const& chosen, accumulator_ref const acc, candidates const& found,
                                     index_type k, threshold const at) {
  if constexpr (candidate_selector<Selector>)
    return chosen.settle(acc, found, k, at);
  else
    return at;
}

/// A selector's keep() with the threshold that it fitted.
template <class Selector, class Threshold>
struct fitted_keep {
  Selector const& chosen;
  Threshold const& fitted;

  GRADSIEVE_EITHER_SPACE
  [[nodiscard]] GRADSIEVE_HD bool operator()(float value) const noexcept { return chosen.keep(value, fitted); }
};
template <class Selector, class Threshold>
fitted_keep(Selector const&, Threshold const&) -> fitted_keep<Selector, Threshold>;

/// The value that a bin selector sends for an accumulator.
template <class Selector>
struct value_sent {
  Selector const& chosen;
  float mean = 0;

  GRADSIEVE_HD value_sent(Selector const& selector, float mean_of_maxima) : chosen{selector}, mean{mean_of_maxima} {}
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD value_sent(Selector const& selector, Workspace& work, accumulator_ref const acc) : chosen{selector} {
    if constexpr (quantising_selector<Selector>) mean = work.mean_of_maxima(acc);
  }

  GRADSIEVE_EITHER_SPACE
  [[nodiscard]] GRADSIEVE_HD float operator()(float value) const noexcept {
    if constexpr (quantising_selector<Selector>)
      return chosen.sent(value, mean);
    else
      return value;
  }
};

}  // namespace detail

/// Writes the selector's entries of a segment and returns how many. If a threshold, or the bins, keep more than k, the
/// segment's k largest are sent; zeros are never sent. Cost: the selector's; for a threshold, its fit and two passes
/// (five if over k); for bins O(what they kept), and a pass if over k.
GRADSIEVE_EITHER_SPACE
template <class Selector, class Workspace>
GRADSIEVE_HD index_type select(Selector const& chosen, Workspace& work, accumulator_ref const acc, index_type k,
                               selection_span out) {
  if (k == 0 || acc.values.empty()) return 0;
  if constexpr (direct_selector<Selector, Workspace>) {
    return chosen.select(work, acc, k, out);
  } else if constexpr (bin_selector<Selector>) {
    auto const found = work.collected(acc);
    detail::value_sent<Selector> const sent{chosen, work, acc};
    if (detail::choose_among(chosen, acc, found, k).made) return work.take_candidates(acc, out, sent);
    // Not a choice among what bins keep: there may be room for only a part of it.
    work.collect_again(acc, detail::sampled_lower_bound(work, acc, k).key);
    index_type const count = work.compact(acc, work.kth_largest(acc, k), out);
    work.replace({out.values.data(), smaller<std::uint64_t>(count, out.values.size())}, sent);
    return count;
  } else if constexpr (choosing_members<Selector>) {
    return detail::select_among(chosen, work, acc, k, out);
  } else {
    auto const fitted = chosen.fit(work, acc, k);
    detail::fitted_keep const keep{chosen, fitted};
    index_type const kept = work.compact(acc, threshold{}, out, keep);
    return kept <= k ? kept : work.compact(acc, work.kth_largest(acc, k, 1, keep), out, keep);
  }
}

}  // namespace gradsieve
