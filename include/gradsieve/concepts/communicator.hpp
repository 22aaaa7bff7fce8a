// What a communicator must offer, and what it may.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/concepts/policy.hpp>

namespace gradsieve {

/// What an all-reduce does with the ranks' values.
enum class reduction { sum, max };

/// A view of a group of ranks that the caller owns. The collectives are concepts of their own, so that an
/// algorithm asks only for those it calls. All are collective, take the space first (a device adapter stays in
/// its stream's order), work on trivially copyable memory and throw when the transport reports an error.
template <class C>
concept communicator = std::copyable<C> && requires(C const c) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
};

/// Every rank ends with the reduced values, the same bits on all of them.
template <class C, class Space, class T>
concept has_all_reduce = communicator<C> && requires(C const c, Space const& where, std::span<T> in_out) {
  c.all_reduce(where, in_out, reduction::sum);
};

/// Every rank ends with its share of the reduced values: that of rank r begins at r * mine.size() in `all`, which holds
/// size() times as much and does not overlap with `mine`. A transport need not have it.
template <class C, class Space, class T>
concept has_reduce_scatter =
    communicator<C> && requires(C const c, Space const& where, std::span<T const> all, std::span<T> mine) {
      c.reduce_scatter(where, all, mine, reduction::sum);
    };

/// Every rank ends with all ranks' bytes, in rank order: equal shares, or shares of `sizes[rank]` bytes.
template <class C, class Space>
concept has_all_gather = communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> mine,
                                                     std::span<std::byte> all, std::span<std::size_t const> sizes) {
  c.all_gather(where, mine, all);
  c.all_gather(where, mine, all, sizes);
};

/// Every rank ends with the root's bytes.
template <class C, class Space>
concept has_broadcast = communicator<C> && requires(C const c, Space const& where, std::span<std::byte> in_out) {
  c.broadcast(where, in_out, int{});
};

/// Sends to one rank while it receives from another (or the same, or itself).
template <class C, class Space>
concept has_send_receive =
    communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> out,
                                std::span<std::byte> in) { c.send_receive(where, out, int{}, in, int{}); };

/// Every rank sends each rank a message of its own, itself too: `out` and `in` hold them back to back in rank order, of
/// `out_sizes[rank]` and `in_sizes[rank]` bytes, which may be 0. What rank a sends to b is what b expects of a.
template <class C, class Space>
concept has_all_to_all =
    communicator<C> && requires(C const c, Space const& where, std::span<std::byte const> out, std::span<std::byte> in,
                                std::span<std::size_t const> sizes) { c.all_to_all(where, out, sizes, in, sizes); };

// ---- What a communicator may offer -------------------------------------------------------------------------

/// `void require_threads() const` throws unless calls may come from another thread than the one that set the transport
/// up, one at a time. Algorithms that call from a thread of their own, such as overlap, ask it; where there is none
/// they take it that any thread may call.
template <class C>
concept thread_checking_communicator = communicator<C> && requires(C const c) { c.require_threads(); };

/// `stream_ordered` is true: with a device as the space its collectives are enqueued in the stream, as kernels are.
template <class C>
concept stream_ordered_communicator = communicator<C> && requires { requires detail::flag<C::stream_ordered>; };

/// `stages` is true: on a device what it sends and receives goes through host memory, which a report says.
template <class C>
concept staging_communicator = communicator<C> && requires { requires detail::flag<C::stages>; };

// ---- Whether an optional member is one that will be used: else it would be passed over ---------------------

template <class C>
inline constexpr bool require_threads_fits =
    thread_checking_communicator<C> || !(requires { &C::require_threads; } || requires(C& c) { c.require_threads(); });
template <class C>
inline constexpr bool stream_ordered_fits = !(
                                                requires { &C::stream_ordered; } || requires { C::stream_ordered; }) ||
                                            requires { detail::flag<C::stream_ordered>; };
template <class C>
inline constexpr bool stages_fits =
    !(requires { &C::stages; } || requires { C::stages; }) || requires { detail::flag<C::stages>; };

}  // namespace gradsieve
