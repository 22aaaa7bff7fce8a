// Weighted means over ranks: the factor of a rank whose batch counts more or less than another's.
#pragma once

#include <cstddef>
#include <string>

#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/host/space.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

inline constexpr double no_weight = -1;

[[nodiscard]] inline double checked_weight(double weight) noexcept {
  return is_finite(weight) && weight >= 0 && weight <= 1e300 ? weight : no_weight;
}

/// The sum of the ranks' weights, the same on all ranks; no_weight, after refuse(rank), if one is bad. Collective.
template <class Comm, class Refuse>
[[nodiscard]] double sum_of_weights(Comm const& comm, double weight, Refuse const& refuse) {
  int const world = world_of(comm);
  preflight ranks;
  ranks.meet_weights(comm, host{}, weight);
  double sum = 0;
  for (std::size_t r = 0; r < static_cast<std::size_t>(world); ++r) {
    if (!is_finite(ranks.weight(r)) || ranks.weight(r) < 0) {
      refuse(r);
      return no_weight;
    }
    sum += ranks.weight(r);
  }
  return sum;
}

[[nodiscard]] inline float share_of(double weight, double sum, int ranks) {
  if (!(sum > 0))
    throw invalid_argument(
        "gradsieve: the weights of all ranks are 0, there is no mean: leave this step out on all ranks");
  return static_cast<float>(weight / sum * ranks);
}

[[noreturn]] inline void refuse_weight(char const* whose, std::size_t which) {
  throw invalid_argument(std::string{"gradsieve: the weight of "} + whose + ' ' + std::to_string(which) +
                         " is not a number from 0 to 1e300");
}

}  // namespace detail

/// The factor weight * ranks / (the sum of the ranks' weights). A step whose loss, or whose gradient before exchange(),
/// is multiplied by it yields the weighted mean of the gradients: with the tokens of each rank's batch as weights, and
/// a loss that is a mean over these, that of all tokens. It serves every exchange that computes means, in every space,
/// with two_level (which has its own mean_factor), overlap and any_compressor; the residual keeps gradients with their
/// factor. For exchanged parameters pass it to exchange_parameters(). Equal weights: 1. Weight 0: this rank has no part
/// in the mean.
/// `comm`: of the exchange; for a device's communicator through_device{where, comm}, and then the host waits.
/// Collective: call it in a step on all ranks, or on none; a rank that begins an exchange meanwhile throws, as all
/// others do (on a device only if its exchange begins with a handshake). Cost: an all-gather of 32 bytes. Allocates
/// with more than 32 ranks. @throws invalid_argument on every rank if a weight is not in [0, 1e300], or all of them are
/// 0; mismatch on every rank if some begin an exchange; communication_error.
template <communicator Comm>
[[nodiscard]] float mean_factor(Comm const& comm, double weight) {
  auto const mine = detail::checked_weight(weight);
  auto const sum = detail::sum_of_weights(comm, mine, [](std::size_t r) { detail::refuse_weight("rank", r); });
  return detail::share_of(weight, sum, comm.size());
}

}  // namespace gradsieve
