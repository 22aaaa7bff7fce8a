// The density of each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/power.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A density that changes geometrically from `initial` to `final`. Deep Gradient Compression's ramp (Lin et al. 2018)
/// of 25 %, 6.25 %, 1.6 %, 0.4 % and 0.1 % is `{.initial = 0.25, .final = 0.001, .steps = 4 epochs, .stages = 4}`.
struct warm_up {
  double initial = 0.25;     ///< density of step 0
  double final = 0.01;       ///< density from step `steps` on
  std::uint64_t steps = 0;   ///< length of the warm-up; 0: none
  std::uint64_t stages = 0;  ///< stages of equal length; 0: another density in every step
};

/// A density for every step: one number, or a warm-up.
class density_schedule {
 public:
  /// The same density in every step.
  constexpr density_schedule(double density = 0.01) noexcept
      : ramp_{density, density, 0, 0} {}  // NOLINT: a number is a schedule
  /// A density that decreases.
  constexpr density_schedule(warm_up ramp) noexcept : ramp_{ramp} {}  // NOLINT

  /// Fraction of the elements to send in a step.
  [[nodiscard]] double operator()(std::uint64_t step) const noexcept {
    if (step >= ramp_.steps) return ramp_.final;
    if (ramp_.stages > 0) step = step * ramp_.stages / ramp_.steps * ramp_.steps / ramp_.stages;
    return exact::multiply(ramp_.initial,
                           exact::power(exact::divide(ramp_.final, ramp_.initial),
                                        exact::divide(static_cast<double>(step), static_cast<double>(ramp_.steps))));
  }

  /// The densities as a warm-up; a constant density has no steps.
  [[nodiscard]] constexpr warm_up const& ramp() const noexcept { return ramp_; }

  /// The largest density of any step, which sizes buffers.
  [[nodiscard]] double most() const noexcept {
    return ramp_.steps > 0 ? std::max(ramp_.initial, ramp_.final) : ramp_.final;
  }

  /// Checks the densities. @throws invalid_argument unless they are in [0, 1], or in (0, 1] for a warm-up.
  void check() const;

  void add_to(fingerprint& to) const noexcept {
    to.add(ramp_.steps > 0 ? ramp_.initial : ramp_.final);  // a ramp without steps has no other parameters
    to.add(ramp_.final);
    to.add(ramp_.steps);
    to.add(ramp_.steps > 0 ? ramp_.stages : 0);
  }

  /// True if both ramps are equal.
  friend bool operator==(density_schedule const& a, density_schedule const& b) noexcept {
    return a.ramp_.initial == b.ramp_.initial && a.ramp_.final == b.ramp_.final && a.ramp_.steps == b.ramp_.steps &&
           a.ramp_.stages == b.ramp_.stages;
  }
  friend std::ostream& operator<<(std::ostream& out, density_schedule const& it);

 private:
  warm_up ramp_;
};

}  // namespace gradsieve

#if !defined(GRADSIEVE_COMPILED)
#include <gradsieve/core/density_bodies.hpp>
#endif
