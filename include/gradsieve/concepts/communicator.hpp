// The concepts of communicators.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/error.hpp>

/// @defgroup communicators Communicators
/// Views of a group of ranks, for MPI, NCCL, threads, one rank, and any transport of one's own:
/// @snippet custom_communicator.cpp communicator

namespace gradsieve::inline GRADSIEVE_ABI {

/// Operation of an all-reduce on the ranks' values.
enum class reduction {
  sum,  ///< their sum
  max   ///< the largest of them
};

/// A view of a group of ranks that the caller owns. The collectives are separate concepts, so that an algorithm
/// requires only those it calls. Each takes the space first, works on trivially copyable memory and throws if the
/// transport reports an error. For a device see stream_ordered_communicator.
template <class C>
concept communicator = std::copyable<C> && requires(C const c) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
};

/// `all_reduce(where, in_out, how)`: every rank ends with the reduced values, the same bits on all of them. Collective.
template <class C, class Space, class T>
concept has_all_reduce = communicator<C> && requires(C const c, Space const& where, std::span<T> in_out) {
  c.all_reduce(where, in_out, reduction::sum);
};

/// `reduce_scatter(where, all, mine, how)`: every rank ends with its share of the reduced values. Rank r's share begins
/// at r * mine.size() in `all`, which is size() times as long and does not overlap `mine`. Collective. Optional.
template <class C, class Space, class T>
concept has_reduce_scatter =
    communicator<C> && requires(C const c, Space const& where, std::span<T const> all, std::span<T> mine) {
      c.reduce_scatter(where, all, mine, reduction::sum);
    };

/// `all_gather(where, mine, all)` and `all_gather(where, mine, all, sizes)`: every rank ends with all ranks' bytes, in
/// rank order, in equal shares or in shares of `sizes[rank]` bytes. Collective.
template <class C, class Space>
concept has_all_gather = communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> mine,
                                                     std::span<std::byte> all, std::span<std::size_t const> sizes) {
  c.all_gather(where, mine, all);
  c.all_gather(where, mine, all, sizes);
};

/// `broadcast(where, in_out, root)`: every rank ends with the root's bytes. Collective.
template <class C, class Space>
concept has_broadcast = communicator<C> && requires(C const c, Space const& where, std::span<std::byte> in_out) {
  c.broadcast(where, in_out, int{});
};

/// `send_receive(where, out, to, in, from)`: sends to one rank while it receives from another, or the same, or itself.
template <class C, class Space>
concept has_send_receive =
    communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> out,
                                std::span<std::byte> in) { c.send_receive(where, out, int{}, in, int{}); };

/// `all_to_all(where, out, out_sizes, in, in_sizes)`: every rank sends a message of its own to each rank, itself too.
/// `out` and `in` hold the messages contiguously in rank order, of `out_sizes[rank]` and `in_sizes[rank]` bytes, which
/// may be 0. Both ranks of a pair give the same size. On a device sizes are in host memory, in the library's calls
/// equal. Collective.
template <class C, class Space>
concept has_all_to_all =
    communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> out, std::span<std::byte> in,
                                std::span<std::size_t const> sizes) { c.all_to_all(where, out, sizes, in, sizes); };

// ---- What a communicator may offer -------------------------------------------------------------------------

/// `require_threads()` throws unless any thread may call, one at a time. Algorithms with a thread of their own, such as
/// overlap, call it first; without it they assume that any thread may call.
template <class C>
concept thread_checking_communicator = communicator<C> && requires(C const c) { c.require_threads(); };

/// `stream_ordered` is true: with a device as the space, collectives are enqueued in its stream, as kernels are.
template <class C>
concept stream_ordered_communicator = communicator<C> && requires { requires detail::flag<C::stream_ordered>; };

/// `stages` is true: a device's data goes through host memory; see step_report::staged.
template <class C>
concept staging_communicator = communicator<C> && requires { requires detail::flag<C::stages>; };

namespace detail {

/// The number of ranks. @throws invalid_argument unless this rank is one of them: 0 <= rank() < size()
template <communicator C>
[[nodiscard]] int world_of(C const& comm) {
  int const world = comm.size();
  int const rank = comm.rank();
  if (rank < 0 || rank >= world)
    throw invalid_argument("gradsieve: communicator: rank " + std::to_string(rank) + " of " + std::to_string(world));
  return world;
}

/// True if it stages; one that stands for several has is_staging() besides.
template <communicator C>
[[nodiscard]] constexpr bool is_staging(C const& comm) {
  if constexpr (requires { comm.is_staging(); })
    return comm.is_staging();
  else
    return staging_communicator<C>;
}

// ---- Checks that an optional member, if there is one, has the form that is used ------------------------------
template <class C>
inline constexpr bool require_threads_fits =
    thread_checking_communicator<C> || !(requires { &C::require_threads; } || requires(C& c) { c.require_threads(); });
template <class C>
inline constexpr bool stream_ordered_fits =
    !(requires { &C::stream_ordered; } || requires { C::stream_ordered; }) || requires { flag<C::stream_ordered>; };
template <class C>
inline constexpr bool stages_fits =
    !(requires { &C::stages; } || requires { C::stages; }) || requires { flag<C::stages>; };

}  // namespace detail

}  // namespace gradsieve
