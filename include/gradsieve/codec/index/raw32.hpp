// Indices in 32 bits.
#pragma once

#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Indices as u32, little-endian.
/// When not: on slow links, as `elias_fano` needs only a quarter to a half of these bytes.
/// Cost: one copy, 32 bits per index.
struct raw32 {
  static constexpr char const* name = "raw32";
  static constexpr std::uint16_t id = 1;

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t, std::uint64_t count) const noexcept {
    return 4 * count;
  }

  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return 4 * indices.size();
  }

  [[nodiscard]] std::uint64_t encode(message_info const&, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    wire::store(to, indices);
    return indices.size_bytes();
  }

  [[nodiscard]] std::uint64_t decode(message_info const&, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    wire::expect(from.size() >= out.size_bytes(), "bytes for indices", from.size(), "at least ", out.size_bytes());
    wire::load(out, from);
    return out.size_bytes();
  }

  friend bool operator==(raw32 const&, raw32 const&) = default;
};
static_assert(index_codec<raw32>);

}  // namespace gradsieve
