// One bit for every element of the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Bit i % 8 of byte i / 8 is set if element i is selected; the bits after the last element are zero.
/// When not: below a density of 0.25, where `elias_fano` is smaller; on a device, where it is refused.
/// Cost: n / 8 bytes, written once and read twice.
struct bitmap {
  static constexpr char const* name = "bitmap";
  static constexpr std::uint16_t id = 3;

  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t) const noexcept {
    return (n + 7) / 8;
  }

  [[nodiscard]] std::uint64_t bytes(message_info const& info, std::span<index_type const>) const noexcept {
    return max_bytes(info.n, 0);
  }

  /// Writes the bytes; see index_codec. @pre every index is below info.n
  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    auto const map = to.first(max_bytes(info.n, 0));
    if (!map.empty()) std::memset(map.data(), 0, map.size());
    for (auto const i : indices) map[i / 8] |= static_cast<std::byte>(1u << (i % 8));
    return map.size();
  }

  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    auto const size = max_bytes(info.n, 0);
    wire::expect(from.size() >= size, "bytes for indices", from.size(), "at least ", size);
    auto const map = from.first(size);
    auto const count = wire::count_bits(map);
    wire::expect(count == out.size(), "number of bits set", count, "", out.size());
    wire::list_bits(map, out);
    return size;
  }

  friend bool operator==(bitmap const&, bitmap const&) = default;
};
static_assert(index_codec<bitmap>);

}  // namespace gradsieve
