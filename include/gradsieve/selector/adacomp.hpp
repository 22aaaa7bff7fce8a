// AdaComp: bins that decide themselves how many entries they send.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/bins.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends in each bin of a layer the elements that one more gradient would bring to the bin's maximum: with accumulator
/// G = residual + gradient and H = G + (factor - 1) gradient, those with |H| >= max |G|. A bin of zeros, or one whose
/// maximum is subnormal, sends nothing. A sent value is the element's sign times one scale per layer, the mean of the
/// bins' maxima; the residual keeps the difference. The recipe's density is the upper limit: a layer that exceeds it
/// sends its largest elements. The first steps, without a residual, send a sixth to a half of a bin; a density of 0.5
/// allows that. Needs `layerwise`, as bins do not cross layers. `packed` with `ternary`, or on a host `binned`, codes
/// the equal values in few bits.
/// When not: with many ranks, as the update grows with them; with `coo`, which takes 8 bytes per entry.
/// Cost: the accumulate pass, and a second read of each bin in the cache.
/// Memory: 8 bytes per candidate, and address space for as many candidates as elements.
/// Source: Chen et al. 2018 (AAAI).
struct adacomp {
  static constexpr char const* name = "adacomp";
  static constexpr auto fields() {
    return std::tuple{field<&adacomp::bins>{"bins"}, field<&adacomp::factor>{"factor", between(1, 16)}};
  }
  static constexpr bool bins_within_layers = true;
  static constexpr key_type smallest_normal = 0x0080'0000;  ///< key of the smallest normal number

  bin_lengths bins;  ///< of each layer
  float factor = 2;  ///< in [1, 16]; the authors found 1.5 to 3 to work

  [[nodiscard]] std::uint32_t bin_length(layer const& each) const { return bins(each); }
  /// @throws invalid_argument as bin_lengths::check_names().
  void check_names(layout const& layers) const { bins.check_names(layers); }

  GRADSIEVE_EITHER_SPACE
  template <class Bin>
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD threshold threshold_of(Bin const& bin) const noexcept {
    key_type const largest = bin.max_key();
    return {largest < smallest_normal ? infinite_key : largest - 1, 0};
  }

  /// H, which is compared with the bin's maximum of |G|.
  [[nodiscard]] GRADSIEVE_HD constexpr float score(float accumulator, float gradient) const noexcept {
    return multiply_add(subtract(factor, 1.0f), gradient, accumulator);
  }

  /// The value that is sent for an accumulator.
  [[nodiscard]] GRADSIEVE_HD constexpr float sent(float accumulator, float mean_of_maxima) const noexcept {
    return with_sign_of(accumulator, mean_of_maxima);
  }

  friend bool operator==(adacomp const&, adacomp const&) = default;
};
static_assert(bin_selector<adacomp>);

}  // namespace gradsieve
