// Encoded lists of indices, as index_union and leader send them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The number of indices of a list, and of the 4-byte words of its encoding, which are never more than indices.
struct list_size {
  std::uint64_t count = 0;
  std::uint64_t words = 0;

  /// Both as one number, which preflight sends.
  [[nodiscard]] constexpr std::uint64_t packed() const noexcept { return count | words << 32; }
  [[nodiscard]] static constexpr list_size of(std::uint64_t packed) noexcept {
    return {packed & 0xFFFF'FFFFu, packed >> 32};
  }

  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept { return 4 * words; }
  /// Whether the indices are sent without encoding.
  [[nodiscard]] constexpr bool is_raw() const noexcept { return words == count; }
};

/// Checks the size of a rank's list. @throws mismatch, naming the rank, if the list exceeds the capacity.
inline void require_fits(list_size size, std::size_t rank, std::uint64_t capacity) {
  if (size.count > capacity || size.words > size.count)
    throw mismatch("gradsieve: rank " + std::to_string(rank) + " announces a size of " + std::to_string(size.count) +
                   " indices in " + std::to_string(size.words) + " words, there is room for " +
                   std::to_string(capacity));
}

/// The most bytes that encode_list() needs for `count` of n indices.
template <class Indices>
[[nodiscard]] std::uint64_t list_capacity(Indices const& how, std::uint64_t n, std::uint64_t count) noexcept {
  if constexpr (std::same_as<Indices, raw32>)
    return 4 * count;
  else
    return (larger(how.max_bytes(n, count), 4 * count) + 3) / 4 * 4;
}

/// Writes a list with an index codec, padded with zeros to whole words; as u32 if the codec saves no word.
/// @pre to.size() >= list_capacity() @throws what the codec throws.
template <class Indices>
[[nodiscard]] list_size encode_list(Indices const& how, message_info const& info, std::span<index_type const> list,
                                    std::span<std::byte> to) {
  std::uint64_t const count = list.size();
  if constexpr (!std::same_as<Indices, raw32>) {
    auto const bytes = encode_indices_checked(how, info, list, to);
    auto const words = (bytes + 3) / 4;
    if (words < count) {
      std::ranges::fill(to.subspan(bytes, 4 * words - bytes), std::byte{});
      return {count, words};
    }
  }
  wire::store(to, list);
  return {count, count};
}

/// Reads what encode_list() wrote. @throws corrupt_message if it is anything else, or if the indices do not increase
/// below n.
template <class Indices>
void decode_list(Indices const& how, message_info const& info, std::span<std::byte const> from,
                 std::span<index_type> out) {
  if (from.size() == out.size_bytes()) {
    wire::load(out, from);
  } else {
    auto const used = how.decode(info, from, out);
    wire::expect(from.size() == (used + 3) / 4 * 4, "size of an index list", from.size(), "", (used + 3) / 4 * 4);
  }
  wire::check_indices(info.n, out);
}

/// The name of the index codec that wrote a list, for the step's report; empty if the codec does not choose one. Of a
/// codec that stands for others, with_chosen() names one of them.
template <class Indices>
[[nodiscard]] char const* list_codec(Indices const& how, list_size size, std::span<std::byte const> list) noexcept {
  if constexpr (requires { how.with_chosen([](auto const&) { return ""; }); })
    return how.with_chosen([&](auto const& it) { return list_codec(it, size, list); });
  else if constexpr (std::same_as<Indices, raw32>)
    return "";
  else if (size.is_raw())
    return raw32::name;
  else if constexpr (choosing_index_codec<Indices>)
    return how.name_of(list);
  else
    return Indices::name;
}

}  // namespace gradsieve::detail
