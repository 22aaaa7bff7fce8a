// Exact top-k by magnitude.
#pragma once

#include <gradsieve/core/fields.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends exactly the k entries of largest magnitude, ties to the smaller index; fewer if fewer are nonzero, as zeros
/// are never sent. The same entries on every machine and for any number of threads. The default selector.
/// Cost: the accumulate pass and O(k); a wrong prediction costs a pass more, many ties up to ten. Memory: none of its
/// own.
/// Source: MSD radix select (Alabi et al. 2012; AIR top-k, SC'23) among candidates whose threshold comes from a sample
/// or from the previous step; the check and repair of that prediction are this library's.
struct radix {
  static constexpr char const* name = "radix";
  [[nodiscard]] constexpr bool predicts_warm() const noexcept { return true; }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD key_type predict(Workspace& work, accumulator_ref const acc, index_type k) const {
    return detail::warm_threshold_fits(acc, k) ? acc.warm->key : detail::sampled_lower_bound(work, acc, k).key;
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    return detail::select_among(*this, work, acc, k, out);
  }

  [[nodiscard]] GRADSIEVE_HD candidate_choice choose(accumulator_ref const, candidates const& found,
                                                     index_type k) const noexcept {
    return detail::has_largest(found, k) ? candidate_choice::largest(k) : candidate_choice::none();
  }
  [[nodiscard]] GRADSIEVE_HD threshold settle(accumulator_ref const acc, candidates const& found, index_type k,
                                              threshold const at) const {
    detail::remember(acc, found, at, k, detail::spare_share(acc, k));
    return at;
  }

  friend bool operator==(radix const&, radix const&) = default;
};

}  // namespace gradsieve
