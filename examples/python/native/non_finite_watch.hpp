// Notices a gradient that stays of no use: NaN or infinite in large part, step after step.
#pragma once

#include <cstdint>
#include <string>

#include "compression.hpp"

namespace example {

/// Of one hook. A few such steps are what a loss scale needs to settle; a run of them says that nobody looks.
class non_finite_watch {
 public:
  static constexpr int patience = 20;         ///< steps in a row
  static constexpr std::uint64_t share = 10;  ///< one element of so many, or more, is NaN or infinite in each of them

  /// Counts a step with so many elements and of them so many that were NaN or infinite.
  void add(std::uint64_t elements, std::uint64_t bad) noexcept {
    in_a_row_ = bad > 0 && bad >= elements / share ? in_a_row_ + 1 : 0;
    if (in_a_row_ == patience) due_ = true;
  }

  /// True once: after the first run of `patience` such steps.
  [[nodiscard]] bool due() noexcept {
    if (!due_ || told_) return false;
    return told_ = true;
  }

  /// What to say then, to the user of a hook that treats NaN and infinity like this.
  [[nodiscard]] static std::string sentence(bad_values treated) {
    auto const found = "gradsieve: in each of the last " + std::to_string(patience) +
                       " steps a tenth or more of this rank's gradient, or of what its optimizer has changed in a "
                       "CompressedStep, was NaN or infinite, ";
    if (treated == bad_values::propagate)
      return found +
             "which makes the average NaN on all ranks: lower the learning rate, or the loss scale, as "
             "hook.scaler_step(scaler, optimizer) does";
    return found +
           "which on_non_finite=\"skip\" counts as zero, so that no loss scale follows: with a GradScaler use "
           "register(..., on_non_finite=\"propagate\") and hook.scaler_step(scaler, optimizer); without one, or in a "
           "CompressedStep, lower the learning rate";
  }

 private:
  int in_a_row_ = 0;
  bool due_ = false;
  bool told_ = false;
};

}  // namespace example
