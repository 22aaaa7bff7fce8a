// The concepts of exchanges.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/concepts/selector.hpp>
#include <gradsieve/core/selection.hpp>

/// @defgroup exchanges Exchanges
/// @ingroup policies
/// Policies that turn the ranks' selections into one averaged update. An exchange of your own:
/// @snippet custom_exchange.cpp exchange

namespace gradsieve::inline GRADSIEVE_ABI {

template <class Comm, class Workspace, class Codec>
struct exchange_round;   // exchange/round.hpp
struct exchange_result;  // exchange/round.hpp

/// Properties of an exchange: `static constexpr exchange_traits traits{.encodes = true};`. On a device only all_to_all
/// counts of the collectives.
struct exchange_traits {
  bool encodes = false;        ///< messages of the codec are sent; the values are quantised before
  bool sums_values = false;    ///< sends indices and values separately and sums the values; needs a separable_codec
  bool single_owner = false;   ///< exactly one rank selects in a step: needs a partitioner that promises it
  bool shared_choice = false;  ///< all ranks select the same elements: needs a shared_selector
  bool broadcast = false;      ///< needs a communicator with broadcast, on the host
  bool all_to_all = false;     ///< with all_to_all
  bool send_receive = false;   ///< with send_receive
  bool codes_full = false;     ///< segments whose k is their size are encoded too, with all their elements
};

/// Turns the ranks' selections into one averaged update. On the host it is also a host_exchange; on a device it has a
/// specialisation of device_exchange.
template <class E>
concept exchange_policy = policy<E> && requires {
  requires std::same_as<decltype(E::traits), exchange_traits const>;
  typename std::bool_constant<E::traits.encodes>;
};

/// An exchange that runs on the host: `buffers<Workspace>`, default-constructible, owns the memory of one compressor.
/// `reserve(work, codec, info, world, capacity, disjoint)` allocates for `world` ranks of which each selects at most
/// `capacity` entries, or, if `disjoint`, all of them together. `most_sent()` bounds the entries that a rank subtracts
/// in a step beyond those that it has selected.
template <class E, class Workspace, class Codec>
concept host_exchange = exchange_policy<E> && std::movable<typename E::template buffers<Workspace>> &&
                        requires(typename E::template buffers<Workspace>& buffers, Workspace& work, Codec const& codec,
                                 message_info const info, int world, std::uint64_t capacity, bool disjoint) {
                          buffers.reserve(work, codec, info, world, capacity, disjoint);
                          { buffers.most_sent() } -> std::same_as<std::uint64_t>;
                        };

/// An exchange whose buffers run one round of this communicator's ranks: `exchange_result run(round)`. Collective.
template <class E, class Workspace, class Codec, class Comm>
concept runs_with =
    host_exchange<E, Workspace, Codec> &&
    requires(typename E::template buffers<Workspace>& buffers, exchange_round<Comm, Workspace, Codec> const& round) {
      { buffers.run(round) } -> std::same_as<exchange_result>;
    };

namespace detail {

/// True if messages of the codec are sent.
template <exchange_policy E>
[[nodiscard]] constexpr bool encodes_values(E const& how) {
  return with_chosen(how, []<class One>(One const&) { return One::traits.encodes; });
}

/// True if segments whose k is their size are sent whole: the selector does not choose in them.
template <class Recipe>
[[nodiscard]] constexpr bool gives_full(Recipe const& of) {
  return with_chosen(of.selector, []<class S>(S const&) { return gives_full_segments<S>; });
}
/// True if they are encoded; else they are all-reduced as binary32.
template <class Recipe>
[[nodiscard]] constexpr bool codes_full(Recipe const& of) {
  return gives_full(of) && with_chosen(of.exchange, []<class E>(E const&) { return E::traits.codes_full; });
}

/// True if it has a member with the name of a trait, or of an older one, which nothing reads.
template <class E>
concept has_stray_trait =
    GRADSIEVE_HAS(E, encodes) || GRADSIEVE_HAS(E, sums_values) || GRADSIEVE_HAS(E, single_owner) ||
    GRADSIEVE_HAS(E, shared_choice) || GRADSIEVE_HAS(E, broadcast) || GRADSIEVE_HAS(E, all_to_all) ||
    GRADSIEVE_HAS(E, send_receive) || GRADSIEVE_HAS(E, codes_full) || GRADSIEVE_HAS(E, needs_exact_values) ||
    GRADSIEVE_HAS(E, needs_single_owner) || GRADSIEVE_HAS(E, needs_shared_choice) ||
    GRADSIEVE_HAS(E, needs_broadcast) || GRADSIEVE_HAS(E, needs_all_to_all) || GRADSIEVE_HAS(E, needs_send_receive);

}  // namespace detail

}  // namespace gradsieve
