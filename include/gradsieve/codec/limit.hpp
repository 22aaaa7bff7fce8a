// The largest values that codecs and sums can hold.
#pragma once

#include <algorithm>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The largest magnitude for which the sum of `ranks` values is finite in any order: the largest float / ranks, for
/// more than two ranks less the possible rounding. Source: an addition rounds by at most 2^-24 of its result, and a sum
/// of two values that fits is rounded to one that fits.
[[nodiscard]] inline float largest_summand(int ranks) noexcept {
  double const margin = ranks <= 2 ? 0 : std::min(0.5, static_cast<double>(ranks) * 0x1p-23);
  auto const each = exact::divide(static_cast<double>(largest_value<float>), static_cast<double>(ranks));
  return static_cast<float>(exact::multiply(each, 1 - margin));
}

/// The largest value up to `limit` that does not exceed `limit` after rounding by the codec, or value codec.
template <class Codec>
[[nodiscard]] float largest_coded(Codec const& how, message_info const& info, float limit) noexcept {
  if constexpr (limited_codec<Codec>) limit = std::min(limit, how.largest());
  if constexpr (separable_codec<Codec>) {
    return largest_coded(how.values, info, limit);
  } else if constexpr (elementwise_values<Codec> && quantises<Codec>) {
    for (unsigned bits = 0; bits < 24; ++bits) {
      float const candidate = magnitude_of(magnitude_key(limit) >> bits << bits);
      float rounded = candidate;
      how.quantise(info, {}, std::span{&rounded, 1});
      if (magnitude_key(rounded) <= magnitude_key(limit)) return candidate;
    }
  }
  return limit;
}

/// The largest value, at most `limit`, that each of `world` ranks may add to a sum in a value codec's format unclamped.
template <class Values>
[[nodiscard]] float largest_summed(Values const& how, message_info const& info, int world, float limit) noexcept {
  if constexpr (limited_codec<Values>) limit = std::min(limit, divide(how.largest(), static_cast<float>(world)));
  return largest_coded(how, info, limit);
}

}  // namespace gradsieve::detail
