// All entries whose magnitude reaches a given one.
#pragma once

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends the entries whose magnitude is at least `magnitude`; if there are more than `most` * k, the largest of them.
/// The budget k only bounds the messages.
/// When not: if magnitudes change, as a threshold that suits one layer or epoch sends nothing, or all, in the next.
/// Cost: the accumulate pass and O(entries); if more than `most` * k reach it, one or two more passes.
/// Source: Strom 2015 for the fixed threshold, here with the values themselves; DEFT's baseline "hard threshold".
struct fixed_threshold {
  static constexpr char const* name = "fixed_threshold";
  static constexpr auto fields() {
    return std::tuple{field<&fixed_threshold::magnitude>{"magnitude", above_to(0, 3e38)},
                      field<&fixed_threshold::most>{"most", at_least(1)}};
  }
  float magnitude = 0.01f;  ///< in (0, 3e38]
  float most = 1;           ///< entries that may be sent, as a multiple of k, >= 1

  [[nodiscard]] GRADSIEVE_HD constexpr index_type capacity(index_type k) const noexcept {
    double const entries = k * static_cast<double>(most);
    return entries < 4294967295.0 ? static_cast<index_type>(entries) : 4294967295u;
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD key_type predict(Workspace&, accumulator_ref const, index_type) const noexcept {
    return least_key();
  }

  /// For too many candidates, or none: the `capacity(k)` largest that reach the magnitude. Cost: one or two passes.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD threshold search(Workspace& work, accumulator_ref const acc, index_type k) const {
    auto const largest = work.kth_largest(acc, capacity(k));
    return largest.key >= least_key() ? largest : threshold{least_key() - 1, 0};
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    return detail::select_among(*this, work, acc, k, out);
  }

  [[nodiscard]] GRADSIEVE_HD candidate_choice choose(accumulator_ref const, candidates const& found,
                                                     index_type k) const noexcept {
    if (found.threshold != least_key()) return candidate_choice::none();
    return found.count <= capacity(k) ? candidate_choice::all() : candidate_choice::largest(capacity(k));
  }
  [[nodiscard]] GRADSIEVE_HD threshold settle(accumulator_ref const, candidates const&, index_type,
                                              threshold const at) const noexcept {
    return at;
  }

  friend bool operator==(fixed_threshold const&, fixed_threshold const&) = default;

 private:
  [[nodiscard]] GRADSIEVE_HD key_type least_key() const noexcept {
    return larger<key_type>(magnitude_key(magnitude), 1);
  }
};

}  // namespace gradsieve
