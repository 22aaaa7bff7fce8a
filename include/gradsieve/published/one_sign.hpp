// The largest entries of one sign.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/magnitude_units.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends the k largest positive entries or the k negative entries of largest magnitude: those whose magnitudes have the
/// larger sum, the positive ones if the sums are equal. Fewer if that sign has fewer. A segment that is sent in full
/// has both signs. With the value codec `sbc` this is Sparse Binary Compression: all values are one mean.
/// When not: almost always, as entries of the other sign wait, and `sbc` still writes a bit for each sign.
/// Cost: the accumulate pass, which measures, and six passes; more with many ties.
/// Source: Sparse Binary Compression (Sattler et al. 2019), which compares means of k; missing entries count as zero.
struct one_sign {
  static constexpr char const* name = "one_sign";

  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD index_type select(Workspace& work, accumulator_ref const acc, index_type k, selection_span out) const {
    magnitude_units const units{acc.values.size(), work.measure(acc).max_key};
    threshold const positive = work.kth_largest(acc, k, 1, sign{0});
    threshold const negative = work.kth_largest(acc, k, 1, sign{1});
    auto const above = work.template add_up<2>(acc, add_above{units, positive.key, negative.key});
    bool const other = above[0] + positive.ties * units.magnitude(positive.key) <
                       above[1] + negative.ties * units.magnitude(negative.key);
    return work.compact(acc, other ? negative : positive, out, sign{other ? 1u : 0u});
  }

  friend bool operator==(one_sign const&, one_sign const&) = default;

 private:
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t sign_bit(float x) noexcept {
    return gradsieve::bit_cast<std::uint32_t>(x) >> 31;
  }

  /// Keeps values with this sign bit.
  struct sign {
    std::uint32_t bit;
    [[nodiscard]] GRADSIEVE_HD constexpr bool operator()(float x) const noexcept { return sign_bit(x) == bit; }
  };

  /// Sums the magnitudes above a key, by sign.
  struct add_above {
    magnitude_units units;
    key_type positive;
    key_type negative;
    GRADSIEVE_HD void operator()(float x, whole_sums<2>& to) const noexcept {
      key_type const key = magnitude_key(x);
      std::uint32_t const bit = sign_bit(x);
      if (key > (bit != 0 ? negative : positive)) to[bit] += units.magnitude(key);
    }
  };
};

}  // namespace gradsieve
