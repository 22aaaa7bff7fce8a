// Residual stores of which the accumulate pass knows more than their concept says.
#pragma once

#include <concepts>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Whether a gradient that is not finite makes state 0 so, whatever the state was: then only the new states are looked
/// at, not the gradients. A store says so by `using spreads_non_finite` of its own type, so that a store that inherits
/// from it does not.
template <class Residual>
inline constexpr bool spreads_non_finite =
    requires { requires std::same_as<typename Residual::spreads_non_finite, Residual>; };

}  // namespace gradsieve::host_kernels
