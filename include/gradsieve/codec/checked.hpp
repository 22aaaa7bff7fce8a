// Checks what codecs return, so that a faulty user codec causes an error that names the fault.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <compare>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// True if decode() itself checks that indices increase below n and that values are finite, as the library's codecs do;
/// results of other codecs are checked once more.
template <class Codec>
inline constexpr bool checks_decoded = false;

namespace detail {

/// @throws invalid_argument unless a member of a policy returned at most `most` bytes.
template <class Policy>
void check_returned(char const* family, char const* member, std::uint64_t bytes, char const* limit,
                    std::uint64_t most) {
  if (bytes > most)
    throw invalid_argument("gradsieve: the " + titled<Policy>(family) + "'s " + member + " returned " +
                           std::to_string(bytes) + " bytes, " + limit + " " + std::to_string(most));
}

/// True if a view lies within another piece of memory.
template <class T>
[[nodiscard]] bool lies_within(std::span<T const> part, view<T> whole) noexcept {
  auto const ordered = [](T const* a, T const* b) { return std::is_lteq(std::compare_three_way{}(a, b)); };
  return part.empty() ||
         (ordered(whole.data(), part.data()) && ordered(part.data() + part.size(), whole.data() + whole.size()));
}

/// Calls a codec's encode(). @throws what encode() throws; invalid_argument if the result exceeds the size of `to`.
template <codec Codec>
[[nodiscard]] std::uint64_t encode_checked(Codec const& how, message_info const& info, selection_view const in,
                                           std::span<std::byte> to) {
  std::uint64_t const bytes = how.encode(info, in, to);
  check_returned<Codec>("codec", "encode()", bytes, "its max_bytes() left room for", to.size());
  return bytes;
}

/// Calls an index codec's encode(); returns the number of bytes. @throws what encode() throws; invalid_argument if that
/// is more than its max_bytes() or than `to` has.
template <class Indices>
[[nodiscard]] std::uint64_t encode_indices_checked(Indices const& how, message_info const& info,
                                                   std::span<index_type const> in, std::span<std::byte> to) {
  std::uint64_t const bytes = how.encode(info, in, to);
  check_returned<Indices>("index codec", "encode()", bytes, "its max_bytes() is",
                          smaller<std::uint64_t>(how.max_bytes(info.n, in.size()), to.size()));
  return bytes;
}

/// Calls a codec's decode(). @throws what decode() throws; invalid_argument if its result is not a part of `out`, has
/// lists of different lengths, or lacks passthrough elements; corrupt_message for indices that do not increase below n
/// and values that are not finite.
template <codec Codec>
[[nodiscard]] selection_view decode_checked(Codec const& how, message_info const& info, std::span<std::byte const> from,
                                            selection_span const out) {
  selection_view const found = how.decode(info, from, out);
  if constexpr (!checks_decoded<Codec>) {
    auto const refuse = [](char const* what) {
      throw invalid_argument("gradsieve: the " + titled<Codec>("codec") + "'s decode() returned " + what);
    };
    if (found.indices.size() != found.values.size()) refuse("lists of indices and values that differ in length");
    if (found.passthrough.size() != info.passthrough) refuse("another number of elements that pass through");
    if (!lies_within(found.indices, out.indices) || !lies_within(found.values, out.values) ||
        !lies_within(found.passthrough, out.passthrough))
      refuse("lists that are not a part of those it was given");
    wire::check_indices(info.n, found.indices);
    wire::check_finite(found.values);
    wire::check_finite(found.passthrough);
  }
  return found;
}

[[nodiscard]] inline bool shares_memory(std::span<std::byte const> a, std::span<std::byte const> b) noexcept {
  std::less<std::byte const*> const before;  // orders pointers to different arrays as well
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

/// Checks a selection before it is encoded, so that every receiver accepts the message and decodes these values.
/// `passthrough`: ranges of the passthrough layers, in order. Cost: one pass over the entries, and one search for each
/// range; for a lossy codec also a copy of the values, which allocates. @throws invalid_argument if the lists differ in
/// length, there are more than `capacity` entries, or the number of passthrough elements is wrong; if indices do not
/// increase below n, or lie in a passthrough layer; if values are not finite, or the codec would round them.
template <class Codec>
void check_selection(Codec const& how, message_info const& info, std::span<range const> passthrough,
                     selection_view const in, std::uint64_t capacity) {
  auto const refuse = [](std::string const& text) { throw invalid_argument("gradsieve: selection " + text); };
  auto const count = in.indices.size();
  if (count != in.values.size())
    refuse("has " + std::to_string(count) + " indices and " + std::to_string(in.values.size()) + " values");
  if (count > capacity)
    refuse("has " + std::to_string(count) + " entries, the recipe sends at most " + std::to_string(capacity));
  if (in.passthrough.size() != info.passthrough)
    refuse("has " + std::to_string(in.passthrough.size()) + " elements that pass through, the layout has " +
           std::to_string(info.passthrough));
  if (std::ranges::adjacent_find(in.indices, std::ranges::greater_equal{}) != in.indices.end())
    refuse("has indices that do not rise strictly");
  if (count > 0 && in.indices.back() >= info.n)
    refuse("has index " + std::to_string(in.indices.back()) + ", which is not below " + std::to_string(info.n));
  for (auto const& each : passthrough)
    if (auto const at = std::ranges::lower_bound(in.indices, each.offset);
        at != in.indices.end() && *at < each.offset + each.size)
      refuse("has index " + std::to_string(*at) + " of a layer that passes through");
  auto const finite = [](float value) { return is_finite(value); };
  if (!std::ranges::all_of(in.values, finite) || !std::ranges::all_of(in.passthrough, finite))
    refuse("has a value that is not finite");
  if constexpr (quantises<Codec>) {
    std::vector<float> rounded(in.values.begin(), in.values.end());
    how.quantise(info, in.indices, std::span{rounded});
    auto const bits = [](float value) { return gradsieve::bit_cast<std::uint32_t>(value); };
    if (!std::ranges::equal(in.values, rounded, {}, bits, bits))
      refuse("has a value that the codec would round: use what compress() returned, or quantise() it");
  }
}

}  // namespace detail

}  // namespace gradsieve
