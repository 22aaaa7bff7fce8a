// The concepts of exchanges.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>

/// @defgroup exchanges Exchanges
/// @ingroup policies
/// How the ranks' selections become one averaged update. An exchange of one's own:
/// @snippet custom_exchange.cpp exchange

namespace gradsieve {

template <class Comm, class Workspace, class Codec>
struct exchange_round;   // exchange/round.hpp
struct exchange_result;  // exchange/round.hpp

/// How the ranks' selections become one averaged update. `encodes`: whether messages of the codec are sent; if so, the
/// values are quantised before. On the host it is also a host_exchange; on a device it has a specialisation of
/// device_exchange.
template <class E>
concept exchange_policy = policy<E> && requires { detail::flag<E::encodes>; };

/// An exchange that runs on the host: `buffers<Workspace>`, default-constructible, owns the memory of one compressor.
/// `reserve(work, codec, info, world, capacity, disjoint)` makes room for `world` ranks of which each selects at most
/// `capacity` entries, or, if `disjoint`, all of them together; it allocates. `most_sent()` bounds the entries that a
/// rank gives up in a step beyond those that it has selected.
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

// ---- What an exchange may offer ----------------------------------------------------------------------------

/// `needs_broadcast` is true: on the host it needs a communicator with broadcast.
template <class E>
concept broadcasting_exchange = requires { requires detail::flag<E::needs_broadcast>; };

/// `needs_single_owner` is true: exactly one rank selects in a step; see single_owner_partitioner.
template <class E>
concept single_owner_exchange = requires { requires detail::flag<E::needs_single_owner>; };

/// `needs_shared_choice` is true: all ranks select the same elements; see shared_selector.
template <class E>
concept shared_choice_exchange = requires { requires detail::flag<E::needs_shared_choice>; };

/// `sums_values` is true: it sends indices and values apart and sums the values; it needs a separable_codec.
template <class E>
concept summing_exchange = requires { requires detail::flag<E::sums_values>; };

/// `needs_all_to_all` is true: on the host it needs a communicator with all_to_all.
template <class E>
concept all_to_all_exchange = requires { requires detail::flag<E::needs_all_to_all>; };

/// `needs_send_receive` is true: on the host it needs a communicator with send_receive.
template <class E>
concept send_receive_exchange = requires { requires detail::flag<E::needs_send_receive>; };

/// `needs_exact_values` is true: it encodes sums on their way, so the codec must not lose bits.
template <class E>
concept exact_exchange = requires { requires detail::flag<E::needs_exact_values>; };

// ---- Whether an optional member, where there is one, has the type that is read -------------------------------
/// @cond internal

/// Whether messages of the codec are sent. One that stands for several exchanges has encodes_values() besides.
template <exchange_policy E>
[[nodiscard]] constexpr bool encodes_values(E const& how) {
  if constexpr (requires { how.encodes_values(); })
    return how.encodes_values();
  else
    return E::encodes;
}

template <class E>
inline constexpr bool needs_broadcast_fits =
    !(
        requires { &E::needs_broadcast; } || requires { E::needs_broadcast; }) ||
    requires { detail::flag<E::needs_broadcast>; };
template <class E>
inline constexpr bool needs_single_owner_fits =
    !(
        requires { &E::needs_single_owner; } || requires { E::needs_single_owner; }) ||
    requires { detail::flag<E::needs_single_owner>; };
template <class E>
inline constexpr bool needs_shared_choice_fits =
    !(
        requires { &E::needs_shared_choice; } || requires { E::needs_shared_choice; }) ||
    requires { detail::flag<E::needs_shared_choice>; };
template <class E>
inline constexpr bool needs_all_to_all_fits =
    !(
        requires { &E::needs_all_to_all; } || requires { E::needs_all_to_all; }) ||
    requires { detail::flag<E::needs_all_to_all>; };
template <class E>
inline constexpr bool needs_send_receive_fits =
    !(
        requires { &E::needs_send_receive; } || requires { E::needs_send_receive; }) ||
    requires { detail::flag<E::needs_send_receive>; };
template <class E>
inline constexpr bool needs_exact_values_fits =
    !(
        requires { &E::needs_exact_values; } || requires { E::needs_exact_values; }) ||
    requires { detail::flag<E::needs_exact_values>; };
template <class E>
inline constexpr bool sums_values_fits =
    !(requires { &E::sums_values; } || requires { E::sums_values; }) || requires { detail::flag<E::sums_values>; };

/// @endcond

}  // namespace gradsieve
