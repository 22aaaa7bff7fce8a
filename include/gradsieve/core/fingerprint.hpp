// A hash of everything that must be equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A 64-bit hash of a sequence of values (FNV-1a), the same on every machine. Lengths of text and bytes are included.
class fingerprint {
 public:
  /// Adds a text, with its length.
  constexpr void add(std::string_view text) noexcept {
    add(std::uint64_t{text.size()});
    for (char const each : text) byte(static_cast<unsigned char>(each));
  }

  /// Adds a number by its bits; -0 counts as 0.
  template <class T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  constexpr void add(T value) noexcept {
    if constexpr (std::is_enum_v<T>)
      add(static_cast<std::underlying_type_t<T>>(value));
    else if constexpr (std::is_same_v<T, float>)
      add(without_sign_of_zero(__builtin_bit_cast(std::uint32_t, value)));
    else if constexpr (std::is_same_v<T, double>)
      add(without_sign_of_zero(__builtin_bit_cast(std::uint64_t, value)));
    else
      for (int shift = 0; shift < 64; shift += 8) byte(static_cast<std::uint64_t>(value) >> shift);
  }

  /// Adds bytes, with their number.
  constexpr void add_bytes(std::span<std::byte const> bytes) noexcept {
    add(std::uint64_t{bytes.size()});
    for (auto const each : bytes) byte(std::to_integer<std::uint64_t>(each));
  }

  /// One step of FNV-1a, with a word instead of a byte.
  constexpr void mix(std::uint64_t word) noexcept { hash_ = (hash_ ^ word) * 0x0000'0100'0000'01B3u; }

  /// The hash of everything that was added.
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return hash_; }

 private:
  template <class Bits>
  [[nodiscard]] static constexpr Bits without_sign_of_zero(Bits bits) noexcept {
    return bits << 1 == 0 ? Bits{0} : bits;
  }
  constexpr void byte(std::uint64_t each) noexcept { mix(each & 0xFFu); }

  std::uint64_t hash_ = 0xCBF2'9CE4'8422'2325u;
};

}  // namespace gradsieve
