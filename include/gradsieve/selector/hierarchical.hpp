// Top-k in two levels: a threshold from a sample, an exact choice among the elements above it.
#pragma once

#include <cmath>
#include <cstdint>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends between floor(`least` * k), at least 1, and k entries. The threshold is the key of a sample's corresponding
/// rank; if it keeps more than k elements, the k largest are sent; if too few, counting passes correct it within a
/// bracket. Deterministic: the sample depends on `seed`, step and segment. A share of n that has more than 100 entries
/// of the k is not drawn whole: of 100 their number varies by a tenth, and the threshold then aims at 1.1 k.
/// When not: if the count matters, which varies by 1 / sqrt(sample * density); `radix` is exact.
/// Cost: the accumulate pass, as many scattered reads as the sample has, O(k); after a wrong prediction three passes or
/// more.
/// Source: Deep Gradient Compression (Lin et al. 2018). Unlike its published code, no entry is dropped for its index,
/// the search is bounded, and the sample has a seed.
struct hierarchical {
  static constexpr char const* name = "hierarchical";
  static constexpr auto fields() {
    return std::tuple{field<&hierarchical::sample_ratio>{"sample_ratio", between(0, 1)},
                      field<&hierarchical::least>{"least", above_to(0, 1)},
                      field<&hierarchical::most>{"most", at_least(1)}, field<&hierarchical::seed>{"seed"}};
  }
  float sample_ratio = 0.01f;  ///< of the segment; at least 2 / density elements, at most 100 / density, and 2^20
  float least = 0.8f;          ///< fewest entries, as a share of k, in (0, 1]
  float most = 1.3f;           ///< most elements that a corrected threshold keeps, as a multiple of k, >= 1
  std::uint64_t seed = 0;      ///< of the sample; equal on all ranks

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD key_type predict(Workspace& work, accumulator_ref const acc, index_type k) const {
    auto const n = static_cast<double>(acc.values.size());
    double const ratio = k / n;
    double const share = n * static_cast<double>(sample_ratio);
    bool const is_whole = share <= 100 / ratio;
    auto const wanted = static_cast<std::uint64_t>(std::ceil(larger(is_whole ? share : 100 / ratio, 2 / ratio)));
    auto keys = work.sample(acc, wanted, seed);
    double const above = static_cast<double>(keys.size()) * ratio;
    auto const rank = static_cast<std::uint64_t>(std::ceil(is_whole ? above : 1.1 * above));
    return rank < 1 || keys.size() == 0 ? 1 : larger<key_type>(keys.kth_largest(rank), 1);
  }

  /// Counting passes from the sampled threshold on, if it kept too few.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD threshold search(Workspace& work, accumulator_ref const acc, index_type k) const {
    auto const found = work.collected(acc);
    if (found.count > k) return work.kth_largest(acc, k);
    auto const band = static_cast<index_type>(smaller(4294967295.0, static_cast<double>(most) * k));
    detail::bracket_search counts{found.threshold, infinite_key, fewest(k), larger(band, k)};
    std::uint64_t count = 0;
    while (!counts.done()) {
      count = work.count_at_least(acc, counts.probe());
      counts.next(count);
    }
    threshold const corrected = counts.result();
    return corrected.ties == 0 && count > k ? work.kth_largest(acc, k) : corrected;
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    return detail::select_among(*this, work, acc, k, out);
  }

  [[nodiscard]] GRADSIEVE_HD candidate_choice choose(accumulator_ref const, candidates const& found,
                                                     index_type k) const noexcept {
    if (!found.complete || found.count < fewest(k)) return candidate_choice::none();
    return found.count > k ? candidate_choice::largest(k) : candidate_choice::all();
  }
  [[nodiscard]] GRADSIEVE_HD threshold settle(accumulator_ref const, candidates const&, index_type,
                                              threshold const at) const noexcept {
    return at;
  }

  friend bool operator==(hierarchical const&, hierarchical const&) = default;

 private:
  [[nodiscard]] GRADSIEVE_HD index_type fewest(index_type k) const noexcept {
    return larger<index_type>(1, static_cast<index_type>(least * static_cast<float>(k)));
  }
};

}  // namespace gradsieve
