// The frame around every codec's bytes: codec, layout, counts, and a checksum.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/wire.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Version of the frame and of all codecs' formats. A reader refuses other versions.
inline constexpr std::uint16_t message_version = 2;

/// The layout hash in messages about part r of a gradient with this one.
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t hash_of_part(std::uint64_t layout_hash, std::uint64_t r) noexcept {
  return mix(layout_hash ^ (r + 1));
}

/// The first bytes of every message, little-endian, without padding:
/// magic u32 | version u16 | codec u16 | n u64 | layout hash u64 | count u64 | passthrough u64 | checksum u64.
struct message_header {
  static constexpr std::uint32_t magic = 0x5653'5247;  ///< "GRSV"
  static constexpr std::size_t bytes = 48;             ///< of the header
  static constexpr std::size_t count_at = 24;          ///< where `count` is
  static constexpr std::size_t passthrough_at = 32;    ///< where `passthrough` is

  std::uint16_t codec = 0;        ///< the codec's id
  std::uint64_t n = 0;            ///< elements of the gradient
  std::uint64_t layout_hash = 0;  ///< layout::hash()
  std::uint64_t count = 0;        ///< entries
  std::uint64_t passthrough = 0;  ///< elements that pass through
};

namespace wire {

/// Writes the header, with the checksum, of a message whose payload is already written.
inline void seal(message_header const& header, std::span<std::byte> message) noexcept {
  store_all(message, message_header::magic, message_version, header.codec, header.n, header.layout_hash, header.count,
            header.passthrough, std::uint64_t{0});
  store_one(message.subspan(40), checksum(message));
}

/// Refuses a message. @throws corrupt_message, naming the field and both values.
[[noreturn]] inline void refuse(char const* field, std::uint64_t is, char const* relation, std::uint64_t limit) {
  throw corrupt_message("gradsieve: message " + std::string(field) + " is " + std::to_string(is) + ", expected " +
                        relation + std::to_string(limit));
}

/// Calls refuse() unless `good`.
GRADSIEVE_INLINE void expect(bool good, char const* field, std::uint64_t is, char const* relation,
                             std::uint64_t limit) {
  if (!good) [[unlikely]]
    refuse(field, is, relation, limit);
}

/// Checks that the announced entries fit. @throws corrupt_message
inline void check_count(std::uint64_t count, std::uint64_t capacity) {
  expect(count <= capacity, "entry count", count, "at most ", capacity);
}

/// Reads a header and checks it against what the receiver expects; check_count() and check_seal() are left to the
/// caller. @throws corrupt_message, naming the field and both values.
[[nodiscard]] inline message_header open(message_info const info, std::uint16_t codec,
                                         std::span<std::byte const> message) {
  expect(message.size() >= message_header::bytes, "size", message.size(), "at least ", message_header::bytes);
  auto const magic = load_one<std::uint32_t>(message);
  expect(magic == message_header::magic, "magic number", magic, "", message_header::magic);
  auto const version = load_one<std::uint16_t>(message.subspan(4));
  expect(version == message_version, "version", version, "", message_version);
  message_header header;
  load_all(message.subspan(6), header.codec, header.n, header.layout_hash, header.count, header.passthrough);
  expect(header.codec == codec, "codec", header.codec, "", codec);
  expect(header.n == info.n, "gradient size", header.n, "", info.n);
  expect(header.layout_hash == info.layout_hash, "layout hash", header.layout_hash, "", info.layout_hash);
  expect(header.passthrough == info.passthrough, "passthrough count", header.passthrough, "", info.passthrough);
  return header;
}

/// Number of entries that a message's header announces, unchecked; 0 if the bytes are shorter than a header.
[[nodiscard]] inline std::uint64_t announced_entries(std::span<std::byte const> message) noexcept {
  return message.size() < message_header::bytes ? 0 : load_one<std::uint64_t>(message.subspan(24));
}

/// True if saved binary32 are finite.
[[nodiscard]] inline bool all_finite(std::span<std::byte const> values) noexcept {
  bool finite = true;
  for (std::size_t at = 0; at < values.size(); at += 4) finite &= is_finite(load_one<float>(values.subspan(at)));
  return finite;
}

/// Checks the checksum. @throws corrupt_message if the bytes changed since seal().
inline void check_seal(std::span<std::byte const> message) {
  auto const stored = load_one<std::uint64_t>(message.subspan(40));
  // checksum() of the message with the stored sum (word 5, counted from 0) replaced by zero, without a copy
  std::array<std::byte, message_header::bytes> clear{};
  std::memcpy(clear.data(), message.data(), 40);
  std::uint64_t const here = checksum(message) - checksum(message.first(message_header::bytes)) + checksum(clear);
  if (here != stored) throw corrupt_message("gradsieve: message checksum does not match: the bytes are damaged");
}

/// True if test(i) holds for any i in [first, count); in blocks without a branch. `test` as the body of run_best().
template <class Test>
[[nodiscard]] bool any_of_blocks(std::size_t first, std::size_t count, Test const& test) noexcept {
  return host_kernels::run_best([=]() GRADSIEVE_LAMBDA_INLINE {
    constexpr std::size_t block = 1024;
    for (std::size_t at = first; at < count; at += block) {
      std::uint32_t found = 0;
      std::size_t const end = smaller(count, at + block);
      for (std::size_t i = at; i < end; ++i) found |= test(i) ? 1u : 0u;
      if (found != 0) return true;
    }
    return false;
  });
}

/// True if the indices increase strictly. Cost: one read.
[[nodiscard]] inline bool all_rise(std::span<index_type const> indices) noexcept {
  auto const falls = [=](std::size_t i) GRADSIEVE_LAMBDA_INLINE { return indices[i - 1] >= indices[i]; };
  return !any_of_blocks(1, indices.size(), falls);
}

/// Checks that the indices increase and stay below n. Cost: one pass. @throws corrupt_message
inline void check_indices(std::uint64_t n, std::span<index_type const> indices) {
  if (!all_rise(indices)) {
    std::size_t i = 1;
    while (indices[i - 1] < indices[i]) ++i;
    throw corrupt_message("gradsieve: message indices do not rise strictly: " + std::to_string(indices[i - 1]) +
                          " stands before " + std::to_string(indices[i]));
  }
  if (!indices.empty() && indices.back() >= n)
    throw corrupt_message("gradsieve: message index " + std::to_string(indices.back()) + " is not below " +
                          std::to_string(n));
}

/// True if all values are finite. Cost: one read.
[[nodiscard]] inline bool all_finite(std::span<float const> values) noexcept {
  return !any_of_blocks(0, values.size(), [=](std::size_t i) GRADSIEVE_LAMBDA_INLINE { return !is_finite(values[i]); });
}

/// Checks that all values are finite. @throws corrupt_message
inline void check_finite(std::span<float const> values) {
  if (!all_finite(values)) throw corrupt_message("gradsieve: message holds a value that is not finite");
}

}  // namespace wire

namespace detail {

/// Calls f(layer, first, last) for each layer with entries [first, last). Without info.layers the gradient is one
/// layer. Cost: O(layers + log of the entries for each). @pre the indices increase
template <class F>
void for_each_layer(message_info const& info, std::span<index_type const> indices, F const& f) {
  std::size_t const layers = info.layers == nullptr ? 0 : info.layers->count();
  std::size_t l = 0;
  for (std::size_t first = 0; first < indices.size();) {
    while (l < layers && info.layers->offset(l + 1) <= indices[first]) ++l;
    std::size_t last = indices.size();
    if (l < layers)
      last = static_cast<std::size_t>(std::lower_bound(indices.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                                                       indices.end(), info.layers->offset(l + 1)) -
                                      indices.begin());
    f(l, first, last);
    first = last;
  }
}

}  // namespace detail
}  // namespace gradsieve
