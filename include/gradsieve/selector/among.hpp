// select() of the selectors that choose among candidates.
#pragma once

#include <gradsieve/concepts/selector.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Writes the entries that a selector's choose() and settle() keep of a segment, and returns how many. Where the
/// candidates do not suffice: the threshold of its search(), or, without one, candidates from a sampled bound and then
/// the k largest. Cost: O(candidates); otherwise a pass or more.
GRADSIEVE_EITHER_SPACE
template <class Selector, class Workspace>
GRADSIEVE_HD index_type select_among(Selector const& chosen, Workspace& work, accumulator_ref const acc, index_type k,
                                     selection_span out) {
  if (k == 0) return 0;
  auto found = work.collected(acc);
  auto wanted = found.complete ? chosen.choose(acc, found, k) : candidate_choice::none();
  if constexpr (searching_selector<Selector, Workspace>) {
    if (!wanted.made) return work.compact(acc, chosen.search(work, acc, k), out);
  } else if (!wanted.made) {
    found = ensure_candidates(work, acc, k);
    wanted = found.complete ? chosen.choose(acc, found, k) : candidate_choice::none();
    if (!wanted.made) wanted.rank = k;
  }
  threshold const at = wanted.rank > 0 ? work.kth_largest(acc, wanted.rank) : every(found);
  return work.compact(acc, chosen.settle(acc, found, k, at), out);
}

}  // namespace gradsieve::detail
