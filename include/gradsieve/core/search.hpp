// Searches for a threshold, as small values that a space advances: the host in a loop, a device between kernels. Keys
// are integers, so every search ends on any data.
#pragma once

#include <cstdint>
#include <span>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Radix select, most significant digit first: each round makes a histogram of the keys in the current range and
/// narrows the range to the bin that holds the k-th largest key. At most three rounds, near() four.
class digit_search {
 public:
  static constexpr unsigned digit_bits = 11;               ///< bits of a key that a round decides
  static constexpr std::uint32_t bins = 1u << digit_bits;  ///< of a round's histogram

  /// Searches for the k-th largest of the keys in [low, high], low >= 1.
  GRADSIEVE_HD constexpr digit_search(key_type low, key_type high, index_type k) noexcept
      : low_{low}, span_{high - low}, shift_{shift_for(span_)}, wanted_{k}, done_{k == 0 || high < low} {
    if (done_) result_ = {high, 0};
  }

  /// Searches for the k-th largest of the keys from `low` on, which is most likely within half an octave above it: two
  /// rounds then, else up to four. @pre as above
  [[nodiscard]] GRADSIEVE_HD static constexpr digit_search near(key_type low, index_type k) noexcept {
    digit_search search{low, infinite_key - 1, k};
    search.shift_ = smaller(search.shift_, digit_bits);
    return search;
  }

  /// The bin of a key, or `bins` if the key is outside the current range. The last bin has all above it.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t bin(key_type key) const noexcept {
    return inside(key) ? smaller((key - low_) >> shift_, bins - 1) : bins;
  }

  [[nodiscard]] GRADSIEVE_HD constexpr bool inside(key_type key) const noexcept { return key - low_ <= span_; }

  [[nodiscard]] GRADSIEVE_HD constexpr bool done() const noexcept { return done_; }

  /// Rank of the result among the keys of the current range; the largest key has rank 1.
  [[nodiscard]] GRADSIEVE_HD constexpr index_type wanted() const noexcept { return wanted_; }

  /// Narrows the range to one bin of its histogram, on the host; a device calls narrow(). Cost: O(bins).
  constexpr void next(std::span<std::uint32_t const> histogram) noexcept {
    std::uint32_t bin = bins;
    std::uint64_t above = 0;
    while (bin > 0 && above + histogram[bin - 1] < wanted_) above += histogram[--bin];
    if (bin == 0) return keep_everything();
    narrow(bin - 1, above, histogram[bin - 1]);
  }

  /// Keeps all keys of a range with fewer than wanted().
  GRADSIEVE_HD constexpr void keep_everything() noexcept { finish({low_ - 1, 0}); }

  /// Narrows the range to the bin that holds the wanted rank: `above` keys are in the bins above it, `here` keys in it.
  /// @pre above < wanted() <= above + here
  GRADSIEVE_HD constexpr void narrow(std::uint32_t bin, std::uint64_t above, std::uint32_t here) noexcept {
    low_ += bin << shift_;
    span_ -= bin << shift_;
    wanted_ -= static_cast<index_type>(above);
    if (here == wanted_) return finish({low_ - 1, 0});  // the result keeps the whole bin
    if (shift_ == 0) return finish({low_, wanted_});
    if (bin + 1 < bins) span_ = smaller(span_, (key_type{1} << shift_) - 1);  // the last ends where the range does
    shift_ = shift_for(span_);
  }

  /// @pre done()
  [[nodiscard]] GRADSIEVE_HD constexpr threshold result() const noexcept { return result_; }

 private:
  /// The smallest shift at which a range fits the bins.
  [[nodiscard]] GRADSIEVE_HD static constexpr unsigned shift_for(key_type span) noexcept {
    auto const width = bit_width(span);
    return width > digit_bits ? width - digit_bits : 0;
  }

  GRADSIEVE_HD constexpr void finish(threshold found) noexcept {
    result_ = found;
    done_ = true;
  }

  key_type low_;  // the current range is [low_, low_ + span_]
  key_type span_;
  unsigned shift_;
  index_type wanted_;  // rank of the result within the range, from the top
  bool done_;
  threshold result_{};
};

/// Bracketed bisection on C(key) = number of elements whose key is at least `key`. Starts at a guess, moves away in
/// growing strides until the result is bracketed, then halves the bracket. The result keeps between k and `most`
/// elements, or exactly k if ties make that impossible. Source: LDTE-BS (Chen, Liu, Han 2021) for estimating and then
/// correcting by counting; the integer bracket, its bound of 31 halvings and the exact end at ties are this library's.
class bracket_search {
 public:
  /// Searches for a threshold that keeps between k and `most` elements. @pre 1 <= k <= most; `high` exceeds every key
  GRADSIEVE_HD constexpr bracket_search(key_type guess, key_type high, index_type k, index_type most) noexcept
      : high_{high}, k_{k}, most_{most} {
    if (high_ <= 1)
      finish({0, 0});
    else
      probe_ = clamped<key_type>(guess, 1, high_ - 1);
  }

  [[nodiscard]] GRADSIEVE_HD constexpr bool done() const noexcept { return done_; }

  /// The key to count next. @pre !done()
  [[nodiscard]] GRADSIEVE_HD constexpr key_type probe() const noexcept { return probe_; }

  /// Uses C(probe()) to choose the next probe, or ends.
  GRADSIEVE_HD constexpr void next(std::uint64_t count) noexcept {
    ++probes_;
    if (count >= k_ && count <= most_) return finish({probe_ - 1, 0});
    if (count >= k_) {
      low_ = probe_;
    } else {
      high_ = probe_;
      count_high_ = count;
      high_probed_ = true;
    }
    if (high_ - low_ <= 1)  // low_ is the k-th largest key itself; 0: fewer than k elements are not zero
      return finish(low_ == 0 ? threshold{0, 0} : threshold{low_, static_cast<index_type>(k_ - count_high_)});
    if (low_ > 0 && high_probed_) {
      probe_ = low_ + (high_ - low_) / 2;
      return;
    }
    probe_ = low_ > 0 ? low_ + smaller(stride_, high_ - low_ - 1) : high_ - smaller(stride_, high_ - 1);
    stride_ = smaller<key_type>(stride_ * 2, key_type{1} << 30);
  }

  /// @pre done()
  [[nodiscard]] GRADSIEVE_HD constexpr threshold result() const noexcept { return result_; }

  /// Number of counting passes so far.
  [[nodiscard]] GRADSIEVE_HD constexpr int probes() const noexcept { return probes_; }

 private:
  GRADSIEVE_HD constexpr void finish(threshold found) noexcept {
    result_ = found;
    done_ = true;
  }

  key_type low_ = 0;  // C(low_) >= k, or 0 while nothing is known
  key_type high_;     // C(high_) < k
  key_type probe_ = 0;
  key_type stride_ = key_type{1} << 20;  // an eighth of an octave
  index_type k_;
  index_type most_;
  std::uint64_t count_high_ = 0;
  bool high_probed_ = false;
  bool done_ = false;
  int probes_ = 0;
  threshold result_{};
};

}  // namespace gradsieve::detail
