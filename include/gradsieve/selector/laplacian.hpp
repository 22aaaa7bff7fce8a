// Top-k by a Laplace estimate of the threshold, corrected by counting.
#pragma once

#include <cmath>
#include <cstdint>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The number of entries that a threshold selector sends.
enum class count_mode {
  band,  ///< between k and (1 + tolerance) * k: all that the first threshold within the band keeps; k where k is small
  exact  ///< k: the k largest of the elements that the threshold keeps
};

template <>
inline constexpr std::array value_names<count_mode>{std::string_view{"band"}, std::string_view{"exact"}};

/// Sends the entries above a threshold that keeps between k and (1 + tolerance) * k of them, or in `exact` mode the k
/// largest. The first threshold is b * ln(nonzero / k), b = mean magnitude of the nonzero elements, from a sample; the
/// accumulate pass collects what it keeps. If the sample does not follow a Laplace law, the pass collects the elements
/// above a sampled lower bound, and the threshold is found among them. If many elements are equal, b is measured, and
/// bracketed bisection on integer keys corrects the threshold; it ends on any data, with exactly k if ties allow no
/// count within the band. With `warm`, later steps start from the previous step's threshold. If chance moves the count
/// at a threshold by more than the band's width, at k < (6 / tolerance)^2, which is 576 by default, either mode sends
/// exactly k, from a lower bound as `radix` uses it.
/// When not: with `band` and `warm`, if the count must not depend on earlier steps; it is still deterministic.
/// Cost: the accumulate pass and O(k); without a warm threshold 2^15 more scattered reads, twice that if data are not
/// Laplace; with many equal elements one pass per probe. Memory: none of its own.
/// Source: LDTE-BS (Chen, Liu, Han 2021). Its rules for estimate and bracket are not published in full; the sample, the
/// bracket and the use of the last threshold are this library's.
struct laplacian {
  static constexpr char const* name = "laplacian";
  static constexpr auto fields() {
    return std::tuple{field<&laplacian::tolerance>{"tolerance", at_least(0)}, field<&laplacian::count>{"count"},
                      field<&laplacian::warm>{"warm"}};
  }
  float tolerance = 0.25f;              ///< width of the band, as a share of k, >= 0
  count_mode count = count_mode::band;  ///< how many entries are sent
  bool warm = true;                     ///< start from the last step's threshold

  [[nodiscard]] GRADSIEVE_HD constexpr index_type capacity(index_type k) const noexcept {
    return count == count_mode::exact ? k : band(k);
  }

  [[nodiscard]] constexpr bool predicts_warm() const noexcept { return warm; }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD key_type predict(Workspace& work, accumulator_ref const acc, index_type k) const {
    if (is_warm(acc, k)) return acc.warm->key;
    return is_small(k) ? detail::sampled_lower_bound(work, acc, k).key : sampled_estimate(work, acc, k);
  }

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    bool const was_warm = is_warm(acc, k);
    auto const predicted = work.collected(acc).threshold;
    auto const found = detail::ensure_candidates(work, acc, k);
    threshold at{};
    if (auto const wanted = choose(acc, found, k); wanted.made) {
      at = settle(acc, found, k, wanted.rank > 0 ? work.kth_largest(acc, wanted.rank) : detail::every(found));
      bool const again = found.threshold != predicted;
      if (found.count > k || found.threshold > 1)
        work.note_threshold(again || at != detail::every(found) ? threshold_origin::corrected
                            : was_warm                          ? threshold_origin::remembered
                                                                : threshold_origin::estimated,
                            again ? 1 : 0);
    } else {
      at = fit_threshold(work, acc, k);
      if (sends_k(k) && at.ties == 0) at = work.kth_largest(acc, k, key_above(at.key));
      if (warm && sends_k(k)) detail::remember(acc, work.collected(acc), at, k, detail::spare_share(acc, k));
      if (warm && !sends_k(k)) remember_threshold(acc, at, k);
    }
    return work.compact(acc, at, out);
  }

  [[nodiscard]] GRADSIEVE_HD candidate_choice choose(accumulator_ref const, candidates const& found,
                                                     index_type k) const noexcept {
    if (!detail::has_largest(found, k)) return candidate_choice::none();
    if (sends_k(k) || is_near_lower_end(found, k)) return candidate_choice::largest(k);
    return found.count > capacity(k) ? candidate_choice::largest(aim(k)) : candidate_choice::all();
  }
  [[nodiscard]] GRADSIEVE_HD threshold settle(accumulator_ref const acc, candidates const& found, index_type k,
                                              threshold const at) const {
    if (sends_k(k)) {
      if (warm) detail::remember(acc, found, at, k, detail::spare_share(acc, k));
      return at;
    }
    if (is_near_lower_end(found, k)) {
      detail::remember(acc, found, at, k, static_cast<double>(tolerance) / 2);
      return detail::every(found);
    }
    if (warm && (found.count > capacity(k) || !is_warm(acc, k))) remember_threshold(acc, at, k);
    return at;
  }

  friend bool operator==(laplacian const&, laplacian const&) = default;

 private:
  /// True if the band is narrower than six standard deviations of the count at a threshold.
  [[nodiscard]] GRADSIEVE_HD constexpr bool is_small(index_type k) const noexcept {
    double const share = static_cast<double>(tolerance);
    return share * share * k < 36;
  }

  [[nodiscard]] GRADSIEVE_HD constexpr bool sends_k(index_type k) const noexcept {
    return count == count_mode::exact || is_small(k);
  }

  [[nodiscard]] GRADSIEVE_HD constexpr index_type band(index_type k) const noexcept {
    return detail::end_of_band(k, tolerance);
  }

  /// The middle of the band: a threshold there stays within the band for a step or more.
  [[nodiscard]] GRADSIEVE_HD constexpr index_type aim(index_type k) const noexcept { return k + (capacity(k) - k) / 2; }

  /// True if a warm band begins to lack entries; its next threshold is then lower, on the line through the k-th.
  [[nodiscard]] GRADSIEVE_HD constexpr bool is_near_lower_end(candidates const& found, index_type k) const noexcept {
    return warm && found.count >= k && found.count <= capacity(k) && 2 * (found.count - k) < aim(k) - k;
  }

  GRADSIEVE_HD static void remember_threshold(accumulator_ref const acc, threshold const at, index_type k) noexcept {
    if (acc.warm != nullptr) *acc.warm = {at.key == 0 ? 0 : at.ties == 0 ? key_above(at.key) : at.key, k};
  }

  [[nodiscard]] GRADSIEVE_HD bool is_warm(accumulator_ref const acc, index_type k) const noexcept {
    return warm && detail::warm_threshold_fits(acc, k);
  }

  /// b * ln(nonzero / k), the threshold that keeps k of Laplace data, with b = sum / nonzero.
  [[nodiscard]] GRADSIEVE_HD static key_type laplace_key(double sum, double nonzero, double k) noexcept {
    return nonzero <= k ? 1
                        : larger<key_type>(magnitude_key(narrowed(sum / nonzero * std::log(nonzero / k))), 1);
  }

  /// The threshold that keeps a little more than k, from 2^15 elements, which give b within 0.6 %, and so the count
  /// within 4 % at a density of 0.1 %. If the number that reaches it is not as expected, the data are not Laplace, and
  /// it is a sampled lower bound. 1 if fewer than k are nonzero.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD static key_type sampled_estimate(Workspace& work, accumulator_ref const acc,
                                                              index_type k) {
    auto keys = work.sample(acc, std::uint64_t{1} << 15);
    double const each =
        static_cast<double>(acc.values.size()) / static_cast<double>(larger<std::uint64_t>(keys.size(), 1));
    double const aimed = 1.125 * k + 2 * std::sqrt(static_cast<double>(k));
    auto const estimate = laplace_key(keys.sum_abs() * each, static_cast<double>(keys.nonzero()) * each, aimed);
    auto const reached = static_cast<double>(keys.count_at_least(estimate));
    bool const laplace = std::abs(reached - aimed / each) <= 3 * std::sqrt(aimed / each) + 3;
    return laplace ? estimate : detail::sampled_lower_bound(work, acc, k).key;
  }

  /// The threshold if no list of candidates gave it, because of ties. Without a warm threshold: bisection, each probe
  /// of which collects what it counts, so that the last one has the answer.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  [[nodiscard]] GRADSIEVE_HD threshold fit_threshold(Workspace& work, accumulator_ref const acc, index_type k) const {
    if (is_warm(acc, k) || is_small(k)) {
      work.note_threshold(threshold_origin::corrected, 0);
      return work.kth_largest(acc, k);
    }
    auto const sums = work.measure(acc);
    if (sums.nonzero <= k) return {0, 0};
    auto const guess = laplace_key(sums.sum_abs, static_cast<double>(sums.nonzero), k);
    detail::bracket_search search{guess, sums.max_key + 1, k, band(k)};
    detail::count_until_done(work, acc, search);
    return search.result();
  }
};

}  // namespace gradsieve
