// What a codec and its two parts must offer, and what they may.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve {

struct byte_breakdown;  // report.hpp

/// Selections to bytes and back. `max_bytes(n, count, passthrough)` is enough for `count` entries and for any fewer.
/// `encode` returns the bytes used of a buffer of at least that many; `decode` accepts any bytes at all, throws
/// `corrupt_message` on whatever `encode` cannot have written, and writes nowhere but into `out`. Either throws
/// invalid_argument where it needs `info.layers` or `info.bins` and that is not there. What passes through stays
/// binary32.
template <class P>
concept codec = policy<P> && requires(P const p, message_info info, selection_view in, selection_span out,
                                      std::span<std::byte const> from, std::span<std::byte> to) {
  { p.max_bytes(info.n, std::uint64_t{}, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
  { p.encode(info, in, to) } -> std::same_as<std::uint64_t>;
  { p.decode(info, from, out) } -> std::same_as<selection_view>;
};

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
/// for each layer. What `quantise`, if there is one, has rounded goes through encode and decode unchanged.
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

/// Stands for what choosing_value_codec::with is called with.
struct value_codec_caller {
  template <value_codec P>
  void operator()(P const&) const noexcept;
};

/// A choice among value codecs, for `packed` in place of one. `choose(info, indices, values)` is the id of the one that
/// writes these values; the message has it. `with(id, f)` calls f(codec) with the value codec of this id and returns
/// whether there is one: else a message that has it is refused. `max_bytes` is enough for each of them. `quantise` is
/// this policy's: what it has rounded goes unchanged through the codec that is then chosen.
template <class P>
concept choosing_value_codec =
    policy<P> && requires(P const p, message_info const info, std::span<index_type const> indices,
                          std::span<float const> in, std::uint16_t id, value_codec_caller f) {
      { p.max_bytes(std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { p.choose(info, indices, in) } noexcept -> std::same_as<std::uint16_t>;
      { p.with(id, f) } -> std::same_as<bool>;
    };

// ---- What a codec, or its values' part, may offer ----------------------------------------------------------

/// Its values lose bits: `quantise` makes of them, in place, what a receiver will decode. The compressor calls it
/// before what is sent leaves the residual, so that the residual keeps exactly what was lost; a value that it makes
/// infinite fails the step.
template <class C>
concept quantises =
    requires(C const c, message_info const& info, std::span<index_type const> places, std::span<float> values) {
      { c.quantise(info, places, values) } noexcept;
    };

/// `largest()` is the largest value that it can hold: larger ones are clamped to it before quantise(), and the residual
/// keeps the rest.
template <class C>
concept limited_codec = requires(C const c) {
  { c.largest() } -> std::same_as<float>;
};

/// `most_entries(front, size)` bounds the entries of a message of `size` bytes, of which `front` are the first; a
/// server reserves as much memory for it, and n entries where there is none.
template <class C>
concept bounded_codec = requires(C const c, std::span<std::byte const> front, std::uint64_t size) {
  { c.most_entries(front, size) } -> std::same_as<std::uint64_t>;
};

/// `breakdown(info, selection, passthrough, message)` says for the step's report where the message's bytes went;
/// `passthrough` are the ranges that pass through. Where that tells no kinds of layers, and the selector's bins lie
/// within layers, the bytes are shared out by entries.
template <class C>
concept accounting_codec = requires(C const c, message_info const info, selection_view const in,
                                    std::span<range const> passthrough, std::span<std::byte const> message) {
  { c.breakdown(info, in, passthrough, message) } -> std::same_as<byte_breakdown>;
};

/// A codec that writes places in bins, of `longest_bin` elements at most: it needs a selector that has bins, whose
/// lengths it finds in info.bins. `binned` is one.
template <class C>
concept bin_codec = requires { detail::length<C::longest_bin>; };

/// A value codec of which `most_count(bytes)` values go into that many bytes at most.
template <class C>
concept counting_value_codec = requires(C const c, std::uint64_t bytes) {
  { c.most_count(bytes) } -> std::same_as<std::uint64_t>;
};

/// A value codec that codes each value by itself, in `value_bytes()` bytes: `encode`, `decode` and `quantise` do not
/// look at the indices, which may be empty. Only such values can be summed up; `ternary` is none.
template <class P>
concept elementwise_values = requires(P const p) {
  { p.value_bytes() } noexcept -> std::same_as<std::uint64_t>;
};

/// An index codec that chooses among others: `name_of(part)` is the name of the one that wrote these bytes.
template <class C>
concept choosing_index_codec = requires(C const c, std::span<std::byte const> part) {
  { c.name_of(part) } -> std::same_as<char const*>;
};

/// A codec of an index codec and such a value codec, `indices` and `values`, whose messages can be sent in two parts:
/// what index_union and leader need. `coo` is one, and `packed` with fp32, fp16 or bf16.
template <class C>
concept separable_codec =
    requires(C const c, message_info const& info, std::span<index_type const> in, std::span<index_type> out,
             std::span<std::byte const> from, std::span<std::byte> to) {
      { c.indices.max_bytes(info.n, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { c.indices.encode(info, in, to) } -> std::same_as<std::uint64_t>;
      { c.indices.decode(info, from, out) } -> std::same_as<std::uint64_t>;
      requires elementwise_values<std::remove_cvref_t<decltype(c.values)>>;
    };

/// A separable codec whose values lose bits, so that sums are formed in its own format.
template <class C>
concept rounding_separable_codec =
    separable_codec<C> && requires { requires quantises<std::remove_cvref_t<decltype(C::values)>>; };

// ---- Whether an optional member is one that will be called: else it would be passed over -------------------

template <class C>
inline constexpr bool quantise_fits =
    quantises<C> ||
    !(
        requires { &C::quantise; } || requires(C& c, message_info const& info, std::span<index_type const> places,
                                               std::span<float> values) { c.quantise(info, places, values); });
template <class C>
inline constexpr bool largest_fits =
    limited_codec<C> || !(requires { &C::largest; } || requires(C& c) { c.largest(); });
template <class C>
inline constexpr bool most_entries_fits =
    bounded_codec<C> ||
    !(
        requires { &C::most_entries; } ||
        requires(C& c, std::span<std::byte const> front) { c.most_entries(front, std::uint64_t{}); });
template <class C>
inline constexpr bool account_fits =
    accounting_codec<C> ||
    !(
        requires { &C::breakdown; } ||
        requires(C& c, message_info const& info, selection_view in, std::span<range const> passthrough,
                 std::span<std::byte const> message) { c.breakdown(info, in, passthrough, message); });
template <class C>
inline constexpr bool longest_bin_fits =
    bin_codec<C> || !(requires { &C::longest_bin; } || requires { C::longest_bin; });
template <class C>
inline constexpr bool most_count_fits =
    counting_value_codec<C> || !(requires { &C::most_count; } || requires(C& c) { c.most_count(std::uint64_t{}); });
template <class C>
inline constexpr bool value_bytes_fits =
    elementwise_values<C> || !(requires { &C::value_bytes; } || requires(C& c) { c.value_bytes(); });
template <class C>
inline constexpr bool name_of_fits =
    choosing_index_codec<C> ||
    !(requires { &C::name_of; } || requires(C& c, std::span<std::byte const> part) { c.name_of(part); });

}  // namespace gradsieve
