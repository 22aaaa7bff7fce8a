// The concepts of codecs and of their two parts.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <gradsieve/concepts/policy.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

/// @defgroup codecs Codecs
/// @ingroup policies
/// Selections to bytes and back. A value codec of one's own:
/// @snippet custom_codec.cpp codec

/// @defgroup index_codecs Index codecs
/// @ingroup codecs
/// The part of `packed` for the positions.

/// @defgroup value_codecs Value codecs
/// @ingroup codecs
/// The part of `packed` for the values.

namespace gradsieve::inline GRADSIEVE_ABI {

struct byte_breakdown;  // report.hpp

/// Selections to bytes and back. `max_bytes(n, count, passthrough)` bytes are enough for `count` entries and for fewer.
/// `encode` returns the bytes used of a buffer of at least that size. `decode` accepts any bytes, throws
/// corrupt_message for bytes that `encode` cannot have written, writes only into `out`, and is called concurrently for
/// several messages. Either throws invalid_argument if it needs `info.layers` or `info.bins` and they are missing.
/// Passthrough elements are binary32. A host checks the results of both, see checked.hpp.
template <class P>
concept codec = policy<P> && requires(P const p, message_info info, selection_view in, selection_span out,
                                      std::span<std::byte const> from, std::span<std::byte> to) {
  { p.max_bytes(info.n, std::uint64_t{}, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
  { p.encode(info, in, to) } -> std::same_as<std::uint64_t>;
  { p.decode(info, from, out) } -> std::same_as<selection_view>;
};

/// The part of a message for the positions, for the codec `packed`. `encode` returns the bytes used, at most
/// `max_bytes` of as many entries or more. `decode` gets the rest of the message, fills `out`, which has as many
/// indices as the message announces, and returns the bytes read. It throws corrupt_message instead of reading beyond
/// the end; `packed` checks that indices increase and stay below n. Ids from 32768 on are for your own codecs.
template <class P>
concept index_codec =
    policy<P> && requires(P const p, message_info const info, std::span<index_type const> in, std::span<index_type> out,
                          std::span<std::byte const> from, std::span<std::byte> to) {
      { P::id } -> std::convertible_to<std::uint16_t>;
      { p.max_bytes(info.n, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { p.encode(info, in, to) } -> std::same_as<std::uint64_t>;
      { p.decode(info, from, out) } -> std::same_as<std::uint64_t>;
    };

/// The part of a message for the values, for the codec `packed`. Its size is `bytes(info, indices)`, at most
/// `max_bytes(count)`; `encode` and `decode` get exactly that many bytes. `packed` refuses decoded values that are not
/// finite. Both sides see the same indices and info, so that a codec may have a scale per layer. `encode` and `decode`
/// do not change what `quantise`, if any, has rounded.
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

// ---- What a codec, or its values' part, may offer ----------------------------------------------------------

/// Its values lose bits: `quantise` replaces them, in place, by what a receiver will decode. The compressor calls it
/// before it subtracts the values, so that the residual keeps exactly the error. The step throws if a value becomes
/// infinite.
template <class C>
concept quantises =
    requires(C const c, message_info const& info, std::span<index_type const> places, std::span<float> values) {
      { c.quantise(info, places, values) } noexcept;
    };

/// `largest()` is the largest value that it can represent. Larger ones are clamped first; the residual keeps the rest.
template <class C>
concept limited_codec = requires(C const c) {
  { c.largest() } -> std::same_as<float>;
};

/// `most_entries(front, size)` bounds the entries of a message of `size` bytes that begins with `front`. An averager
/// reserves memory for this many entries; without this member, for n.
template <class C>
concept bounded_codec = requires(C const c, std::span<std::byte const> front, std::uint64_t size) {
  { c.most_entries(front, size) } -> std::same_as<std::uint64_t>;
};

/// `breakdown(info, selection, passthrough, message)` gives the message's bytes by kind of layer, for the step's
/// report; `passthrough`: the ranges that pass through. If it names no kinds, and the selector's bins lie within
/// layers, the report divides the bytes by entries.
template <class C>
concept accounting_codec = requires(C const c, message_info const info, selection_view const in,
                                    std::span<range const> passthrough, std::span<std::byte const> message) {
  { c.breakdown(info, in, passthrough, message) } -> std::same_as<byte_breakdown>;
};

/// A codec that writes positions within bins of at most `longest_bin` elements. It needs a selector with bins and reads
/// their lengths from `info.bins`. `binned` is one.
template <class C>
concept bin_codec = requires { detail::length<C::longest_bin>; };

/// A value codec that bounds the number of values, `most_count(bytes)`, of this many bytes.
template <class C>
concept counting_value_codec = requires(C const c, std::uint64_t bytes) {
  { c.most_count(bytes) } -> std::same_as<std::uint64_t>;
};

/// A value codec that codes each value by itself, in `value_bytes()` bytes: `encode`, `decode` and `quantise` do not
/// read the indices, which may be empty. Only such values can be summed by the exchange: fp32, fp16, bf16.
template <class P>
concept elementwise_values = requires(P const p) {
  { p.value_bytes() } noexcept -> std::same_as<std::uint64_t>;
};

/// An index codec that chooses among others: `name_of(part)` is the name of the one that wrote these bytes.
template <class C>
concept choosing_index_codec = requires(C const c, std::span<std::byte const> part) {
  { c.name_of(part) } -> std::same_as<char const*>;
};

/// A codec of an index codec and elementwise values, `indices` and `values`, which can be sent separately: for
/// index_union and leader. `coo` is one, and `packed` with fp32, fp16 or bf16.
template <class C>
concept separable_codec =
    requires(C const c, message_info const& info, std::span<index_type const> in, std::span<index_type> out,
             std::span<std::byte const> from, std::span<std::byte> to) {
      { c.indices.max_bytes(info.n, std::uint64_t{}) } -> std::same_as<std::uint64_t>;
      { c.indices.encode(info, in, to) } -> std::same_as<std::uint64_t>;
      { c.indices.decode(info, from, out) } -> std::same_as<std::uint64_t>;
      requires elementwise_values<std::remove_cvref_t<decltype(c.values)>>;
    };

/// A separable codec whose values lose bits: sums are rounded to its format.
template <class C>
concept rounding_separable_codec =
    separable_codec<C> && requires { requires quantises<std::remove_cvref_t<decltype(C::values)>>; };

// ---- Checks that an optional member, if there is one, has the signature that is called -----------------------
namespace detail {

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

}  // namespace detail

}  // namespace gradsieve
