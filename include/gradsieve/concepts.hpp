// The whole contract on one page: what a space, a selector, a partitioner, a residual store, a codec, an
// exchange and a communicator must offer. Policies are regular values without base class or registration.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/layout.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve {

// ---- Where work runs ---------------------------------------------------------------------------------------

/// Where memory lives and in which order work runs: `host`, or the CUDA header's `device`. A space is a small
/// value that holds no gradient; its `workspace` owns the scratch of one compressor and has the passes over
/// memory as members (accumulate, sample, count_above, key_histogram, compact, gather, scatter_add, apply).
template <class S>
concept space = std::copyable<S> && requires { typename S::workspace; };

// ---- Policies ----------------------------------------------------------------------------------------------

/// A policy is a plain value: default-constructible, copyable, comparable, and cheap to hand to a kernel. It may have
/// `void check() const`, which throws invalid_argument where its values make no sense; a recipe's check() calls it.
/// For a device, the members that a step calls are marked GRADSIEVE_HD, and where they take the workspace
/// GRADSIEVE_EITHER_SPACE; see examples/custom_selector.cpp.
template <class P>
concept policy = std::regular<P> && std::is_trivially_copyable_v<P>;

/// Family 1 of selectors: fits a cut to the accumulator once a step and keeps what the cut keeps. No kernel to
/// write. `fit` gets the workspace (statistics and counting passes), the accumulator and the budget k; `keep`
/// is asked once per element. More than k kept: the k largest of them are sent, the rest waits.
template <class P, class Workspace>
concept cut_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, float value) {
      p.fit(work, acc, k);
      { p.keep(value, std::declval<decltype(p.fit(work, acc, k)) const&>()) } noexcept -> std::same_as<bool>;
    };

/// Family 2 of selectors: writes at most `out.indices.size()` entries, index-ordered, and returns how many. There is
/// room for `capacity(k)` of them, or k where that is not declared, and less only where a segment is nearly sent whole.
/// `predict` may name, before the accumulate pass, a key that about k or a few more elements will reach; what
/// reaches it is then collected by that pass, and `select` has it from the workspace without reading again.
template <class P, class Workspace>
concept direct_selector =
    policy<P> && requires(P const p, Workspace& work, accumulator_ref const acc, index_type k, selection_span out) {
      { p.select(work, acc, k, out) } -> std::same_as<index_type>;
    };

/// A bin as selectors of family 3 see it: consecutive elements of one segment, and how many of its k entries are due
/// here. `kth_largest` gives the cut that keeps the k largest.
struct bin_archetype {
  [[nodiscard]] std::size_t size() const noexcept;
  [[nodiscard]] index_type budget() const noexcept;
  [[nodiscard]] key_type max_key() const noexcept;
  [[nodiscard]] cut kth_largest(index_type k) const noexcept;
};

/// Family 3 of selectors: chooses in short bins, in the accumulate pass. `bin_length` says how long they are in the
/// layer that a segment begins with; with `bins_within_layers` a segment must not go beyond one. `cut_of` gives a bin's
/// cut. It is held against the accumulators, or against `score(accumulator, gradient)` where that is declared. Where
/// bins keep more than the segment's k, its k largest are sent instead. `sent(accumulator, mean of the bins' largest
/// magnitudes)`, where declared, is the value that goes out; k is then a limit only, and a segment that may give all
/// its elements is not sent whole. Needs a partitioner without norms.
template <class P>
concept bin_selector = policy<P> && requires(P const p, layer const& each, bin_archetype const& bin) {
  { p.bin_length(each) } -> std::same_as<std::uint32_t>;
  { p.cut_of(bin) } noexcept -> std::same_as<cut>;
};

/// Whether a selector that is to give all elements of a segment does: then they need no indices.
template <class P>
inline constexpr bool gives_whole_segments = !(bin_selector<P> && requires(P const p) { p.sent(0.0f, 0.0f); });

/// Chooses the entries of an accumulator that are sent.
template <class P, class Workspace>
concept selector = cut_selector<P, Workspace> || direct_selector<P, Workspace> || bin_selector<P>;

/// Cuts the layers that are selected from into disjoint segments, in order, once for a world size; then says
/// each step how many entries each segment gives (`k`) and which rank selects there (`owner`). Every rank
/// computes the same decision from the same inputs. `squared_norms[i]` belongs to `segments[i]`, summed over all
/// ranks, and is valid if `needs_norms`. `disjoint`: no two ranks select from the same segment. `rotates`, where it
/// is declared and true: a segment's owner is (its owner in step 0 + step) % world, and nothing but the owner and the
/// density depends on the step. A device then passes the turn on by itself; else it is told anew by each step that
/// decides otherwise, and a CUDA graph repeats one decision.
template <class P>
concept partitioner =
    policy<P> && requires(P const p, std::span<range const> layers, segment_list& list, std::span<segment> segments,
                          std::span<double const> squared_norms, step_budget const budget, partition_scratch& scratch) {
      typename P::default_exchange;
      { P::needs_norms } -> std::convertible_to<bool>;
      { P::disjoint } -> std::convertible_to<bool>;
      p.cut(layers, int{}, list);
      p.assign(segments, squared_norms, budget, scratch);
    };

/// How a gradient enters the state of an element and what stays once a value was sent. `states` floats are
/// kept per element; state 0 is the accumulator, from which entries are selected. `whole_layer`: the element
/// belongs to a layer that passes through uncompressed. `P::stored`, where it is declared, is the format that they are
/// kept in; see in_bfloat16. `P::meaning`, a text, tells checkpoints apart where what the states mean has changed.
template <class P>
concept residual_store = policy<P> && requires(P const p, float g, element_state<P::states>& state, bool whole_layer) {
  { p.enter(g, state) } noexcept;
  { p.leave(g, state, whole_layer) } noexcept;
};

/// The format that a residual store's states are kept in.
template <class Residual>
struct stored_format {
  using type = float;
};
template <class Residual>
  requires requires { typename Residual::stored; }
struct stored_format<Residual> {
  using type = typename Residual::stored;
};
template <class Residual>
using stored_t = typename stored_format<Residual>::type;

/// Selections to bytes and back. `max_bytes(n, count, dense)` is enough for `count` entries and for any fewer. `encode`
/// returns the bytes used of a buffer of at least that many; `decode`
/// accepts any bytes at all, throws `corrupt_message` on whatever `encode` cannot have written, and writes
/// nowhere but into `out`. Either throws invalid_argument where it needs `info.layers` and that is null.
/// A codec that loses bits of the values has `quantise(info, indices, values) const noexcept`: it makes of the values,
/// in place, what a receiver will decode. The compressor calls it before what is sent leaves the residual, so that the
/// residual keeps exactly what was lost; a value that it makes infinite fails the step. What passes through dense stays
/// binary32.
/// `largest()`, if there is one, is the largest value that it can hold: larger ones are cut to it before quantise(),
/// and the residual keeps the rest. `most_entries(front, size)`, if there is one, bounds the entries of a message of
/// `size` bytes, of which `front` are the first; a server reserves as much memory for it, and n entries where there is
/// none. `account(info, selection, dense, message)`, if there is one, says for the step's report where the message's
/// bytes went, as a message_account; `dense` are the ranges that pass through. Where that tells no kinds of layers, and
/// the selector's bins lie within layers, they are shared out by entries.
template <class P>
concept codec = policy<P> && requires(P const p, message_info info, selection_view in, selection_span out,
                                      std::span<std::byte const> from, std::span<std::byte> to) {
  { p.max_bytes(info.n, std::uint64_t{}, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
  { p.encode(info, in, to) } -> std::same_as<std::uint64_t>;
  { p.decode(info, from, out) } -> std::same_as<selection_view>;
};

/// A codec, or a part of one, whose values lose bits.
template <class C>
concept quantises =
    requires(C const c, message_info const& info, std::span<index_type const> places, std::span<float> values) {
      { c.quantise(info, places, values) } noexcept;
    };

/// Whether its `quantise`, if it has one, is such as will be called: else bits would be lost that no residual keeps.
template <class C>
inline constexpr bool quantise_fits =
    quantises<C> ||
    !(
        requires { &C::quantise; } || requires(C& c, message_info const& info, std::span<index_type const> places,
                                               std::span<float> values) { c.quantise(info, places, values); });

/// The part of a message that says which elements, for the codec `packed`. `encode` returns the bytes used, at most
/// `max_bytes` of as many entries or more; `decode` fills `out`, which is as long as the message says there are
/// indices, from the bytes that are left of the message, and returns how many it took. It throws corrupt_message rather
/// than read behind them; whether indices rise below n is checked by `packed`. Ids from 32768 on are for codecs outside
/// of this library.
template <class P>
concept index_codec =
    policy<P> && requires(P const p, message_info const info, std::span<index_type const> in, std::span<index_type> out,
                          std::span<std::byte const> from, std::span<std::byte> to) {
      { P::id } -> std::convertible_to<std::uint16_t>;
      { p.max_bytes(info.n, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { p.encode(info, in, to) } -> std::same_as<std::uint64_t>;
      { p.decode(info, from, out) } -> std::same_as<std::uint64_t>;
    };

/// The part of a message that says how much, for the codec `packed`. Its size follows from what the receiver knows by
/// then: `bytes(info, indices)`, at most `max_bytes(count)`. `encode` and `decode` get exactly that many; a decoded
/// value that is not finite is found by `packed`. Both sides see the same indices and info, so that scales may be kept
/// for each layer. A value codec that loses bits has `quantise(info, indices, values)`, as a codec, and
/// what it has rounded goes through encode and decode unchanged.
template <class P>
concept value_codec = policy<P> && requires(P const p, message_info const info, std::span<index_type const> indices,
                                            std::span<float const> in, std::span<float> out,
                                            std::span<std::byte const> from, std::span<std::byte> to) {
  { P::id } -> std::convertible_to<std::uint16_t>;
  { p.max_bytes(std::uint64_t{}) } -> std::same_as<std::uint64_t>;
  { p.bytes(info, indices) } -> std::same_as<std::uint64_t>;
  p.encode(info, indices, in, to);
  p.decode(info, indices, from, out);
};

/// A value codec that codes each value by itself, in `value_bytes()` bytes: `encode`, `decode` and `quantise` do not
/// look at the indices, which may be empty. Only such values can be summed up; `ternary` is none.
template <class P>
concept elementwise_values = requires(P const p) {
  { p.value_bytes() } noexcept -> std::same_as<std::uint64_t>;
};

/// A codec of an index codec and such a value codec, `indices` and `values`, whose messages can be sent in two parts:
/// what index_union and leader need. `coo` is one, and `packed` with fp32, fp16 or bf16.
template <class C>
concept separable_codec =
    requires(C const c, message_info const info, std::span<index_type const> in, std::span<index_type> out,
             std::span<std::byte const> from, std::span<std::byte> to) {
      { c.indices.max_bytes(info.n, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { c.indices.encode(info, in, to) } -> std::same_as<std::uint64_t>;
      { c.indices.decode(info, from, out) } -> std::same_as<std::uint64_t>;
      requires elementwise_values<std::remove_cvref_t<decltype(c.values)>>;
    };

// ---- Transport ---------------------------------------------------------------------------------------------

/// What an all-reduce does with the ranks' values.
enum class reduction { sum, max };

/// A view of a group of ranks that the caller owns. The collectives are concepts of their own, so that an
/// algorithm asks only for those it calls. All are collective, take the space first (a device adapter stays in
/// its stream's order), work on trivially copyable memory and throw when the transport reports an error.
/// A communicator may also have `void require_threads() const`: it throws unless calls may come from another thread
/// than the one that set the transport up, one at a time. Algorithms that call from a thread of their own, such as
/// overlap, ask it; where there is none they take it that any thread may call.
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

}  // namespace gradsieve
