// What a group of a plan is exchanged by, and what a step of all groups reports.
#pragma once

#include <algorithm>
#include <concepts>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/report.hpp>

namespace gradsieve {

/// What a group is exchanged by: a compressor for the group's layers, dense_mean, or your own. It need not move. What
/// exchange() returns is a report, or reads one when it is converted, as a device compressor's does.
template <class E, class Comm, class T>
concept group_exchange = requires(E& exchange, Comm const& comm, std::span<T> gradient) {
  { exchange.exchange(comm, gradient) } -> std::convertible_to<step_report>;
};

/// One that a rank can take part in without a gradient: where one rank calls fail() while the others call exchange(),
/// exchange() throws on all of them and no rank gives anything up. `gradient` is as long as exchange()'s; its values
/// are not read and may be overwritten. Compressors and dense_mean have it; an overlap needs it to cancel a step.
template <class E, class Comm, class T>
concept failing_exchange =
    group_exchange<E, Comm, T> &&
    requires(E& exchange, Comm const& comm, std::span<T> gradient) { exchange.fail(comm, gradient); };

/// One whose last step can be taken back, so that what it gave up goes out later. Compressors have it.
template <class E>
concept discarding_exchange = requires(E& exchange) { exchange.discard_step(); };

/// One step of one rank, all groups together.
struct overlap_report {
  step_report exchanged;
  double busy = 0;     ///< seconds in which groups were exchanged
  double exposed = 0;  ///< seconds that wait(), or a device's stream there, waited: of `busy`, what
                       ///< the backward pass did not hide

  /// Share of the exchange that was hidden; 1 where nothing was exchanged.
  [[nodiscard]] double hidden() const noexcept { return busy > 0 ? std::max(0.0, 1 - exposed / busy) : 1; }
};

}  // namespace gradsieve
