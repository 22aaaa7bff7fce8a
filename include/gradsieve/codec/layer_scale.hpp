// One magnitude for all entries of a layer, for ternary values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::wire {

/// |x| in units of 2^-31 of the power of two below 2^(top - 126), rounded down. @pre top is the largest exponent field
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t in_units(key_type key, unsigned top) noexcept {
  auto const [significand, exponent] = gradsieve::detail::parts_of(key);
  unsigned const down = top - exponent;
  return down > 31 ? 0 : (std::uint64_t{significand} << 8) >> down;
}

/// The mean magnitude of `count` values whose in_units() sum to `sum`.
[[nodiscard]] GRADSIEVE_HD constexpr float mean_of_units(std::uint64_t sum, std::uint64_t count,
                                                         unsigned top) noexcept {
  double const unit = gradsieve::bit_cast<double>((std::uint64_t{top} + 1023 - 158) << 52);
  return narrowed(divide(static_cast<double>(sum), static_cast<double>(count)) * unit);
}

}  // namespace gradsieve::wire

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The mean magnitude of fewer than 2^32 finite values; exact if all magnitudes are equal, 0 for no values. Sums whole
/// numbers: the same bits in any order. Magnitudes below 2^-31 of the largest count as zero. Cost: two passes.
[[nodiscard]] inline float mean_magnitude(std::span<float const> values) noexcept {
  key_type largest = 0;
  for (float const x : values) largest = larger(largest, magnitude_key(x));
  if (largest == 0) return 0;
  unsigned const top = larger(largest >> 23, 1u);
  std::uint64_t sum = 0;
  for (float const x : values) sum += wire::in_units(magnitude_key(x), top);
  return wire::mean_of_units(sum, values.size(), top);
}

/// Replaces the magnitude of every value by its layer's mean and keeps its sign. Idempotent.
inline void to_layer_scale(message_info const& info, std::span<index_type const> indices,
                           std::span<float> values) noexcept {
  for_each_layer(info, indices, [&](std::size_t, std::size_t first, std::size_t last) {
    auto const here = values.subspan(first, last - first);
    float const scale = mean_magnitude(here);
    for (float& x : here) x = with_sign_of(x, scale);
  });
}

}  // namespace gradsieve::detail
