// Residual stores of which the accumulate pass knows more than their concept says.
#pragma once

#include <gradsieve/residual/error_feedback.hpp>
#include <gradsieve/residual/momentum_correction.hpp>
#include <gradsieve/residual/none.hpp>

namespace gradsieve::host_kernels {

/// Whether a gradient that is not finite makes state 0 so, whatever the state was: then only the new states are looked
/// at, not the gradients.
template <class Residual>
inline constexpr bool spreads_non_finite = false;
template <>
inline constexpr bool spreads_non_finite<error_feedback> = true;
template <>
inline constexpr bool spreads_non_finite<momentum_correction> = true;
template <>
inline constexpr bool spreads_non_finite<none> = true;

}  // namespace gradsieve::host_kernels
