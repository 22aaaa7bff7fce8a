// The exchange of a plan's group, and the report of a step of all groups.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/skipped_layers.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Exchanges the gradients of one group: a compressor for the group's layers, dense_mean, or a type of your own, which
/// need not be movable. exchange() returns a step_report or something that converts to one.
template <class E, class Comm, class T>
concept group_exchange = requires(E& exchange, Comm const& comm, std::span<T> gradient) {
  { exchange.exchange(comm, gradient) } -> std::convertible_to<step_report>;
};

/// A group_exchange in which a rank can take part without a gradient: if one rank calls fail() while the others call
/// exchange(), exchange() throws on all of them and no rank subtracts anything. `gradient` is as long as in exchange();
/// it is not read and may be overwritten. Compressors and dense_mean have it; cancelling a step needs it.
template <class E, class Comm, class T>
concept failing_exchange =
    group_exchange<E, Comm, T> &&
    requires(E& exchange, Comm const& comm, std::span<T> gradient) { exchange.fail(comm, gradient); };

/// A group_exchange that can skip layers, as compressor::exchange() does. Compressors have it.
template <class E, class Comm, class T>
concept skipping_exchange = group_exchange<E, Comm, T> && requires(E& exchange, Comm const& comm, std::span<T> gradient,
                                                                   skipped_layers const skipped) {
  { exchange.exchange(comm, gradient, skipped) } -> std::convertible_to<step_report>;
};

/// A group_exchange that accepts a gradient in several pieces, as compressors do. Others get a copy in one piece.
template <class E, class Comm, class T>
concept pieces_exchange =
    group_exchange<E, Comm, T> && requires(E& exchange, Comm const& comm, gradient_ref<T> gradient) {
      { exchange.exchange(comm, gradient) } -> std::convertible_to<step_report>;
    };

/// A group_exchange whose last step can be discarded, so that a later step sends its entries. Compressors have it.
template <class E>
concept discarding_exchange = requires(E& exchange) { exchange.discard_step(); };

/// One step of one rank, all groups together.
struct overlap_report {
  step_report exchanged;      ///< the sum over all groups
  double busy = 0;            ///< seconds in which groups were exchanged
  double exposed = 0;         ///< seconds that wait(), or a device's stream there, waited: the part of `busy` that the
                              ///< backward pass did not hide
  std::size_t not_ready = 0;  ///< layers with elements for which ready() was not called: their gradients count as
                              ///< zero, as if nothing had used them. If it is never 0, a call is missing

  /// Fraction of the exchange that the backward pass hid; 1 if nothing was exchanged.
  [[nodiscard]] double hidden() const noexcept { return busy > 0 ? std::max(0.0, 1 - exposed / busy) : 1; }
};

}  // namespace gradsieve
