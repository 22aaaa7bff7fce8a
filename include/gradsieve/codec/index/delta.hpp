// Gaps between indices, in blocks with one bit width each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Each index as the number of elements between it and the previous index, in blocks of 128 with one width. Bits per
/// index for random positions: 9.6 at density 0.01, 13.0 at 0.001, 16.3 at 0.0001; fewer for clustered positions.
/// When not: on a device, where it is refused; above a density of 0.2, where a bitmap is smaller.
/// Payload: the width w of each block, one byte each; then each block's fields of w <= 32 bits, 16 w bytes, in the last
/// block as many as its fields need, padded with zero bits to a byte. w is the smallest width that fits, so that each
/// selection has exactly one encoding.
/// Cost: O(count), two passes to encode.
/// Source: frame-of-reference packing of gaps as in search engines (Lemire and Boytsov 2015).
struct delta {
  static constexpr char const* name = "delta";
  static constexpr std::uint16_t id = 2;
  static constexpr std::size_t block = 128;  ///< fields that have one width

  /// An upper bound for this many entries, and for fewer; see index_codec. Gaps sum to less than n, and a block of
  /// width w has a gap of at least 2^(w - 1), which bounds the widths.
  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    std::uint64_t left = n;
    std::uint64_t bits = 0;  // of all widths
    std::uint64_t price = 1;
    for (unsigned w = 0; w < 32 && left >= price; ++w, price = std::uint64_t{1} << (w - 1)) {
      std::uint64_t const more = smaller(wire::block_count(count, block), left / price);
      bits += more;
      left -= more * price;
    }
    return wire::block_count(count, block) + smaller(4 * count, 16 * bits);
  }

  /// Bytes that encode() writes. Cost: O(count).
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    std::uint64_t total = wire::block_count(indices.size(), block);
    for_each_block(indices, [&](std::size_t, std::span<std::uint32_t const> gaps, unsigned width) {
      total += wire::packed_bytes(gaps.size(), width);
    });
    return total;
  }

  [[nodiscard]] std::uint64_t encode(message_info const&, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    std::uint64_t at = wire::block_count(indices.size(), block);
    for_each_block(indices, [&](std::size_t b, std::span<std::uint32_t const> gaps, unsigned width) {
      to[b] = static_cast<std::byte>(width);
      at += wire::pack(gaps, width, to.subspan(at));
    });
    return at;
  }

  [[nodiscard]] std::uint64_t decode(message_info const&, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    std::size_t const count = wire::block_count(out.size(), block);
    wire::expect(from.size() >= count, "bytes for indices", from.size(), "at least ", count);
    std::uint64_t size = count;
    for (std::size_t b = 0; b < count; ++b) {
      auto const width = std::to_integer<unsigned>(from[b]);
      wire::expect(width <= 32, "index width", width, "at most ", 32);
      size += wire::packed_bytes(smaller(block, out.size() - b * block), width);
    }
    wire::expect(from.size() >= size, "bytes for indices", from.size(), "at least ", size);
    std::size_t at = count;
    // Sums are modulo 2^32: a gap that wraps around gives an index that does not increase, which `packed` detects.
    index_type last = ~index_type{0};
    for (std::size_t b = 0; b < count; ++b) {
      auto const width = std::to_integer<unsigned>(from[b]);
      auto const fields = wire::block_of(out, b, block);
      wire::unpack(from.subspan(at), width, fields);
      std::uint32_t const used = any_of(fields);
      index_type gaps = last;  // one addition per field, as it is the only loop-carried dependency
      for (std::size_t i = 0; i < fields.size(); ++i) {
        gaps += fields[i];
        fields[i] = gaps + static_cast<index_type>(i) + 1;
      }
      last = fields.back();
      if (width > 0 && used <= wire::low_bits(width) / 2) wire::refuse("index width", width, "", bit_width(used));
      wire::expect(wire::padding_is_zero(from.subspan(at), fields.size(), width), "padding of indices", 1, "", 0);
      at += wire::packed_bytes(fields.size(), width);
    }
    return at;
  }

  friend bool operator==(delta const&, delta const&) = default;

 private:
  /// Calls f(block, gaps, width).
  template <class F>
  static void for_each_block(std::span<index_type const> indices, F const& f) noexcept {
    std::array<std::uint32_t, block> gaps;
    for (std::size_t b = 0; b * block < indices.size(); ++b) {
      auto const* const here = indices.data() + b * block;
      std::size_t const size = smaller(block, indices.size() - b * block);
      if (b > 0 && size == block)
        for (std::size_t i = 0; i < block; ++i) gaps[i] = here[i] - (here + i)[-1] - 1;
      else
        for (std::size_t i = 0; i < size; ++i) gaps[i] = b + i == 0 ? here[0] : here[i] - (here + i)[-1] - 1;
      std::span<std::uint32_t const> const fields{gaps.data(), size};
      f(b, fields, bit_width(any_of(fields)));
    }
  }

  [[nodiscard]] static std::uint32_t any_of(std::span<std::uint32_t const> fields) noexcept {
    std::uint32_t used = 0;
    if (fields.size() == block)
      for (std::size_t i = 0; i < block; ++i) used |= fields[i];  // a constant length vectorises
    else
      for (auto const field : fields) used |= field;
    return used;
  }
};
static_assert(index_codec<delta>);

}  // namespace gradsieve
