// Numbers as little-endian bytes, and a checksum, for messages, checkpoints and plans.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/simd.hpp>

/// Functions for writing and reading messages. All numbers are little-endian.
namespace gradsieve::inline GRADSIEVE_ABI::wire {

/// Writes numbers as little-endian bytes. @pre `to` has enough bytes
template <class T>
void store(std::span<std::byte> to, std::span<T const> from) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size_bytes());
  } else {
    auto const* const bytes = reinterpret_cast<std::byte const*>(from.data());
    for (std::size_t i = 0; i < from.size(); ++i)
      for (std::size_t b = 0; b < sizeof(T); ++b) to[i * sizeof(T) + b] = bytes[(i + 1) * sizeof(T) - 1 - b];
  }
}

/// Reads numbers from little-endian bytes. @pre `from` has as many
template <class T>
void load(std::span<T> to, std::span<std::byte const> from) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    if (!to.empty()) std::memcpy(to.data(), from.data(), to.size_bytes());
  } else {
    auto* const bytes = reinterpret_cast<std::byte*>(to.data());
    for (std::size_t i = 0; i < to.size(); ++i)
      for (std::size_t b = 0; b < sizeof(T); ++b) bytes[i * sizeof(T) + b] = from[(i + 1) * sizeof(T) - 1 - b];
  }
}

/// Reads one number.
template <class T>
[[nodiscard]] T load_one(std::span<std::byte const> from) noexcept {
  T value{};
  load(std::span{&value, 1}, from.first(sizeof(T)));
  return value;
}

/// Writes one number.
template <class T>
void store_one(std::span<std::byte> to, T value) noexcept {
  store(to.first(sizeof(T)), std::span<T const>{&value, 1});
}

/// Writes numbers one behind the other; returns their bytes.
template <class... T>
std::size_t store_all(std::span<std::byte> to, T... values) noexcept {
  std::size_t at = 0;
  ((store_one(to.subspan(at), values), at += sizeof(T)), ...);
  return at;
}
/// Reads numbers that store_all() wrote; returns their bytes.
template <class... T>
std::size_t load_all(std::span<std::byte const> from, T&... values) noexcept {
  std::size_t at = 0;
  ((values = load_one<T>(from.subspan(at)), at += sizeof(T)), ...);
  return at;
}

/// A word of a message, mixed with its position: a summand of checksum(). One to one. By the squares, what a changed
/// bit adds depends on the whole word: two words with a changed bit each cancel with a probability of about 2^-61.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr std::uint64_t mixed(std::uint64_t word,
                                                                          std::uint64_t position) noexcept {
  std::uint64_t x = word ^ (position * 0x9E37'79B9'7F4A'7C15u);
  x ^= x >> 33;  // a square moves a change to higher bits only
  x += 2 * (x * x);
  x = x << 32 | x >> 32;
  return x + 2 * (x * x);
}

/// Sum of all 8-byte words and the size, each mixed with its position, so the order is free. Detects damage, not
/// forgery. `before`: the checksum of what precedes.
[[nodiscard]] inline std::uint64_t checksum(std::span<std::byte const> bytes, std::uint64_t before = 0) noexcept {
  std::size_t const words = bytes.size() / 8;
  std::uint64_t total = mixed(bytes.size(), before);
  total += host_kernels::run_best([from = bytes.data(), words]() GRADSIEVE_LAMBDA_INLINE {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word = 0;
      __builtin_memcpy(&word, from + 8 * i, 8);
      if constexpr (std::endian::native != std::endian::little) word = __builtin_bswap64(word);
      sum += mixed(word, i + 1);
    }
    return sum;
  });
  if (auto const rest = bytes.subspan(8 * words); !rest.empty()) {
    std::array<std::byte, 8> last{};
    std::memcpy(last.data(), rest.data(), rest.size());
    total += mixed(load_one<std::uint64_t>(last), words + 1);
  }
  return total;
}

/// The checksum of saved bytes, which their word at `at` holds, the last of their header.
[[nodiscard]] inline std::uint64_t checksum_around(std::span<std::byte const> bytes, std::size_t at) noexcept {
  return checksum(bytes.subspan(at + 8), checksum(bytes.first(at)));
}

/// Checks the begin of a saved state; refuse(text) throws.
template <class Version, class Refuse>
void check_begin(std::span<std::byte const> bytes, std::size_t header, std::uint32_t magic, Version version,
                 Refuse const& refuse) {
  if (bytes.size() < header) refuse("has " + std::to_string(bytes.size()) + " bytes, fewer than its header");
  if (load_one<std::uint32_t>(bytes) != magic) refuse("does not begin with its magic number");
  if (auto const found = load_one<Version>(bytes.subspan(4)); found != version)
    refuse("has version " + std::to_string(found) + ", expected " + std::to_string(version));
}
/// Checks a saved state's checksum, the last word of its header; refuse(text) throws.
inline void check_sum(std::span<std::byte const> bytes, std::size_t at, auto const& refuse) {
  if (load_one<std::uint64_t>(bytes.subspan(at)) != checksum_around(bytes, at))
    refuse("does not match its checksum: the bytes are damaged");
}

}  // namespace gradsieve::wire
