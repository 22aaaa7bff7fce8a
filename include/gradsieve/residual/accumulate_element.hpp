// Accumulates one gradient element into its state, in either space.
#pragma once

#include <cstddef>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Accumulates one gradient element into its state; returns false if the element or the new state was not finite. A
/// gradient that is not finite counts as zero; if the new state would not be finite, the element keeps its old state.
GRADSIEVE_EITHER_SPACE
template <class Residual, std::size_t States>
GRADSIEVE_INLINE GRADSIEVE_HD constexpr bool accumulate_element(Residual const& policy, float gradient,
                                                                element_state<States>& state) noexcept {
  auto const before = state;
  bool const usable = is_finite(gradient);
  policy.accumulate_element(usable ? gradient : 0.0f, state);
  bool finite = true;
  for (std::size_t s = 0; s < States; ++s) finite = finite & is_finite(state[s]);
  for (std::size_t s = 0; s < States; ++s) state[s] = finite ? state[s] : before[s];
  return usable & finite;
}

/// Noise that rounds a step's states to their format: a hash of step, event and element, equal in every pass.
class rounding {
 public:
  enum event : std::uint64_t { accumulated, removed };

  GRADSIEVE_HD constexpr rounding(std::uint64_t step, event what) noexcept : stream_{mix(2 * step + what)} {}

  /// Noise for state s of the elements 4 f to 4 f + 3, 16 bits each. Two products of 32 bits, each half of which is
  /// folded onto the other, and a third: a device has no wider ones at full speed.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t of_four(std::uint32_t f, std::uint32_t s) const noexcept {
    auto const folded = [](std::uint32_t x, std::uint32_t odd) {
      std::uint64_t const product = std::uint64_t{x} * odd;
      return static_cast<std::uint32_t>(product ^ (product >> 32));
    };
    auto const mixed = folded(static_cast<std::uint32_t>(stream_) ^ (f + (s << 30)), 0x9E37'79B1u);
    auto const two = folded(mixed ^ static_cast<std::uint32_t>(stream_ >> 32), 0xC2B2'AE3Du);
    return two | std::uint64_t{two * 0x85EB'CA77u} << 32;
  }

  /// Rounds the states of element i to values that `Stored` can represent.
  template <class Stored, std::size_t States>
  GRADSIEVE_HD constexpr void apply(std::uint64_t i, element_state<States>& state) const noexcept {
    if constexpr (sizeof(Stored) < sizeof(float))
      for (std::uint32_t s = 0; s < States; ++s) {
        auto const noise = of_four(static_cast<std::uint32_t>(i / 4), s) >> (16 * (i % 4));
        state[s] = to_float(to_stored<Stored>(state[s], static_cast<std::uint16_t>(noise)));
      }
  }

 private:
  std::uint64_t stream_;
};

}  // namespace gradsieve
