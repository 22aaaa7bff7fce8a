// The default codec: 32-bit indices and 32-bit values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Indices as u32 and values as binary32. Lossless; 8 bytes per entry. The default codec.
/// When not: on slow links, where smaller indices and values pay off; see packed.
/// Cost: one copy and one checksum of the message each way; read where it lies if it is aligned to 4 bytes.
/// Payload: `count` indices, `count` values, `passthrough` values.
struct coo {
  static constexpr char const* name = "coo";
  static constexpr std::uint16_t id = 1;
  static constexpr raw32 indices{};  ///< the index codec, if indices are sent separately
  static constexpr fp32 values{};    ///< the value codec, if values are sent separately

  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t max_bytes(std::uint64_t, std::uint64_t count,
                                                               std::uint64_t passthrough) const noexcept {
    return message_header::bytes + 8 * count + 4 * passthrough;
  }

  [[nodiscard]] std::uint64_t most_entries(std::span<std::byte const> front, std::uint64_t size) const noexcept {
    return smaller(wire::announced_entries(front), size / 8);
  }

  /// Writes a message; returns its size. @pre to.size() >= max_bytes(info.n, in.indices.size(), in.passthrough.size())
  [[nodiscard]] std::uint64_t encode(message_info const info, selection_view const in,
                                     std::span<std::byte> to) const noexcept {
    std::uint64_t const count = in.indices.size();
    auto const message = to.first(max_bytes(info.n, count, in.passthrough.size()));
    wire::store(message.subspan(message_header::bytes), in.indices);
    wire::store(message.subspan(message_header::bytes + 4 * count), in.values);
    wire::store(message.subspan(message_header::bytes + 8 * count), in.passthrough);
    wire::seal({id, info.n, info.layout_hash, count, in.passthrough.size()}, message);
    return message.size();
  }

  /// Reads a message; returns the part of `out` that it has filled. @pre out.passthrough.size() >= info.passthrough
  /// @throws corrupt_message if the bytes are not what encode() writes for this layout: size, checksum, indices that
  /// increase below n, finite values. The contents of `out` are then unspecified.
  [[nodiscard]] selection_view decode(message_info const info, std::span<std::byte const> from,
                                      selection_span out) const {
    auto const header = opened(info, from, out.indices.size());
    std::span const places = out.indices.first(header.count);
    std::span const found = out.values.first(header.count);
    std::span const passthrough = out.passthrough.first(header.passthrough);
    wire::load(places, from.subspan(message_header::bytes));
    wire::load(found, from.subspan(message_header::bytes + 4 * header.count));
    wire::load(passthrough, from.subspan(message_header::bytes + 8 * header.count));
    return checked({places, found, passthrough}, info.n);
  }

  /// As decode() of at most `most` entries, but the lists lie in the message. Returns nothing if the message is not
  /// aligned to 4 bytes, or the machine is not little-endian. @throws as decode().
  [[nodiscard]] std::optional<selection_view> view(message_info const info, std::span<std::byte const> from,
                                                   std::uint64_t most) const {
    if (std::endian::native != std::endian::little || reinterpret_cast<std::uintptr_t>(from.data()) % 4 != 0)
      return std::nullopt;
    auto const header = opened(info, from, most);
    auto const* const at = from.data() + message_header::bytes;
    std::span const places{reinterpret_cast<index_type const*>(at), header.count};
    std::span const floats{reinterpret_cast<float const*>(at + 4 * header.count), header.count + header.passthrough};
    return checked({places, floats.first(header.count), floats.subspan(header.count)}, info.n);
  }

  friend bool operator==(coo const&, coo const&) = default;

 private:
  [[nodiscard]] message_header opened(message_info const info, std::span<std::byte const> from,
                                      std::uint64_t most) const {
    auto const header = wire::open(info, id, from);
    wire::check_count(header.count, info.n);
    auto const expected = max_bytes(info.n, header.count, header.passthrough);
    if (from.size() != expected)
      throw corrupt_message("gradsieve: message size is " + std::to_string(from.size()) + ", expected " +
                            std::to_string(expected));
    wire::check_count(header.count, most);
    wire::check_seal(from);
    return header;
  }

  [[nodiscard]] static selection_view checked(selection_view const in, std::uint64_t n) {
    wire::check_indices(n, in.indices);
    wire::check_finite(in.values);
    wire::check_finite(in.passthrough);
    return in;
  }
};
static_assert(codec<coo>);
/// decode() checks indices and values itself.
template <>
inline constexpr bool checks_decoded<coo> = true;

}  // namespace gradsieve
