// Values in binary32.
#pragma once

#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Values as binary32, little-endian. Lossless; 32 bits per value.
struct fp32 {
  static constexpr char const* name = "fp32";
  static constexpr std::uint16_t id = 1;

  [[nodiscard]] constexpr std::uint64_t value_bytes() const noexcept { return 4; }
  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept { return 4 * count; }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return bytes / 4; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return 4 * indices.size();
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    wire::store(to, values);
  }
  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const noexcept {
    wire::load(values, from);
  }

  friend bool operator==(fp32 const&, fp32 const&) = default;
};
static_assert(value_codec<fp32>);

}  // namespace gradsieve
