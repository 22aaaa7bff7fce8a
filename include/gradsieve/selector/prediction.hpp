// Predicts the key that a few more than k elements of a segment reach, before the segment is read.
#pragma once

#include <cmath>
#include <cstdint>

#include <gradsieve/concepts/selector.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A key that at least k elements reach with near certainty, and about 2 k: from a sample in which k has rank 32 or
/// more, five standard deviations below that rank. Never 0. `tied`: it is also the key expected at k. Cost: max(8192,
/// 32 n / k, n / 4096) scattered reads, at most 2^17.
struct sampled_bound {
  key_type key = 1;
  bool tied = false;
};
GRADSIEVE_EITHER_SPACE
template <class Workspace>
[[nodiscard]] GRADSIEVE_HD sampled_bound sampled_lower_bound(Workspace& work, accumulator_ref const acc, index_type k) {
  auto const n = static_cast<double>(acc.values.size());
  auto keys = work.sample(acc, static_cast<std::uint64_t>(clamped(larger(32 * n / k, n / 4096), 8192.0, 131072.0)));
  if (keys.size() == 0) return {};
  double const expected = static_cast<double>(keys.size()) * smaller(1.0, static_cast<double>(k) / n);
  bool const all = keys.size() == acc.values.size();
  auto const rank = static_cast<std::uint64_t>(all ? k : std::ceil(expected + 5 * std::sqrt(expected) + 4));
  if (rank == 0 || rank > keys.size()) return {};
  key_type const at = keys.kth_largest(rank);
  auto const above = static_cast<double>(keys.count_at_least(at + 1));
  return {larger<key_type>(at, 1), above < expected};
}

/// True if the last step left a warm threshold for about this k.
[[nodiscard]] GRADSIEVE_HD inline bool warm_threshold_fits(accumulator_ref const acc, index_type k) noexcept {
  return acc.warm != nullptr && acc.warm->key != 0 && acc.warm->k <= k + k / 4 && k <= acc.warm->k + acc.warm->k / 4;
}

/// The candidates of a segment; after a wrong prediction collected again from a sampled bound. They are still fewer
/// than k, or incomplete, if no bound can do better (ties, few nonzeros). Cost: O(workers), or one pass.
GRADSIEVE_EITHER_SPACE
template <class Workspace>
GRADSIEVE_HD auto ensure_candidates(Workspace& work, accumulator_ref const acc, index_type k) {
  auto const found = work.collected(acc);
  bool const missed = found.complete && found.count < k && found.threshold > 1;
  if (!missed && (found.complete || found.threshold == 0)) return found;
  auto const bound = sampled_lower_bound(work, acc, k);
  if (missed ? bound.key >= found.threshold : bound.tied || bound.key <= found.threshold) return found;
  work.collect_again(acc, bound.key);
  return work.collected(acc);
}

/// Counts at a search's probes until it is done, and notes if the first probe, an estimate, was in the band. Every
/// count collects what it counts, so that the last one has the answer. Cost: one pass per probe.
GRADSIEVE_EITHER_SPACE
template <class Workspace>
GRADSIEVE_HD void count_until_done(Workspace& work, accumulator_ref const acc, bracket_search& search) {
  while (!search.done()) {
    work.collect_again(acc, search.probe());
    auto const counted = work.collected(acc);
    search.next(counted.complete ? counted.count : acc.values.size());  // a full list: far more than the band
  }
  bool const at_once = search.probes() == 1 && search.result().ties == 0;
  work.note_threshold(at_once ? threshold_origin::estimated : threshold_origin::corrected, search.probes());
}

/// Most entries of a band from k to (1 + tolerance) * k.
[[nodiscard]] GRADSIEVE_HD constexpr index_type end_of_band(index_type k, float tolerance) noexcept {
  double const most = k * (1.0 + static_cast<double>(tolerance));
  return most < 4294967295.0 ? static_cast<index_type>(most) : 4294967295u;
}

/// Spare candidates, as a share of k, that make up for the threshold's change from step to step: 0.3, and fewer above a
/// density of 1 %, where the count at a key changes less (by 8 %, 3 % and 1 % at 0.1 %, 1 % and 10 %, simulated error
/// feedback) and each candidate costs more.
[[nodiscard]] GRADSIEVE_HD inline double spare_share(accumulator_ref const acc, index_type k) noexcept {
  return smaller(0.3, 0.03 * std::sqrt(static_cast<double>(acc.values.size()) / k));
}

/// True if the candidates contain the k largest elements, or all nonzero ones.
[[nodiscard]] GRADSIEVE_HD constexpr bool has_largest(candidates const& found, index_type k) noexcept {
  return found.complete && (found.count >= k || found.threshold == 1);
}

[[nodiscard]] GRADSIEVE_HD constexpr threshold every(candidates const& found) noexcept {
  return {found.threshold - 1, 0};
}

/// Stores a warm threshold: the key that about (1 + share) * k elements reach, on the line through this step's two
/// counts, (found.threshold, found.count) and (at.key, k).
GRADSIEVE_HD inline void remember(accumulator_ref const acc, candidates const& found, threshold const at, index_type k,
                                  double share) {
  if (acc.warm == nullptr) return;
  *acc.warm = {0, k};
  if (at.key == 0) return;  // fewer than k: nothing to learn
  double const spare = share * k + 64;
  double step = 1 << 17;  // 1/64 of an octave, by default
  if (found.complete && found.count > k && found.threshold < at.key)
    step = (at.key - found.threshold) * smaller(4.0, spare / static_cast<double>(found.count - k));
  acc.warm->key = static_cast<key_type>(larger(1.0, at.key - step));
}

/// Writes the entries that choose() and settle() keep; returns how many. If the candidates do not suffice: by the
/// threshold of its search(), or else the k largest, from candidates of a sampled bound. Cost: O(candidates); otherwise
/// a pass or more.
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
