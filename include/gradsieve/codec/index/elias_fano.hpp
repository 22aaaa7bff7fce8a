// The high bits of the indices in unary, their low bits unchanged.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The low bits of the indices unchanged, their high bits in unary. Bits per index, for any positions: 8.6 at density
/// 0.01, 12.0 at 0.001, 15.2 at 0.0001; half a bit above the information bound for random positions.
/// When not: for entries in clusters, where `delta` is smaller; above a density of 0.25, where a bitmap is.
/// Payload: the lowest l bits of every index, packed; then a row of bits in which entry i sets bit i + (index >> l);
/// each padded with zero bits to a byte. l <= 31 follows from n and the count: the smallest of those that take the
/// fewest bytes, so that each selection has exactly one encoding.
/// Cost: O(count + n / 2^l), at most O(3 count); one pass to encode.
/// Source: Elias 1974 and Fano 1971.
struct elias_fano {
  static constexpr char const* name = "elias_fano";
  static constexpr std::uint16_t id = 6;

  /// @cond internal
  struct sizes {
    unsigned width = 0;      // of a low part
    std::uint64_t low = 0;   // bytes of the low parts
    std::uint64_t high = 0;  // bytes of the row

    sizes() = default;
    GRADSIEVE_HD constexpr sizes(std::uint64_t n, std::uint64_t count, unsigned of_low) noexcept
        : width{of_low}, low{wire::packed_bytes(count, width)}, high{(count + ((n - 1) >> width) + 7) / 8} {}

    [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t bytes() const noexcept { return low + high; }
  };

  [[nodiscard]] GRADSIEVE_HD static constexpr sizes split(std::uint64_t n, std::uint64_t count) noexcept {
    if (n == 0 || count == 0) return {};
    // All bits are convex in the width, and least about log2(n / count). With their padding they are less than 2 bytes
    // more, which the widths before the first here exceed from 16 entries on.
    auto const ratio = static_cast<std::uint32_t>(smaller<std::uint64_t>(n / count, ~std::uint32_t{0}));
    sizes best{n, count, count < 16 ? 0 : larger(bit_width(ratio), 2u) - 2};
    for (unsigned width = best.width + 1; width <= widest; ++width) {
      sizes const here{n, count, width};
      if (here.bytes() > best.bytes() + 1) break;
      if (here.bytes() < best.bytes()) best = here;
    }
    return best;
  }
  /// @endcond

  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return split(n, count).bytes();
  }

  [[nodiscard]] constexpr std::uint64_t bytes(message_info const& info,
                                              std::span<index_type const> indices) const noexcept {
    return split(info.n, indices.size()).bytes();
  }

  /// Writes the bytes; see index_codec. @pre every index is below info.n
  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    auto const parts = split(info.n, indices.size());
    std::array<std::uint32_t, block> fields;
    auto const mask = wire::low_bits(parts.width);
    std::uint64_t at = 0;
    for (std::size_t first = 0; parts.width > 0 && first < indices.size(); first += block) {
      auto const here = indices.subspan(first, smaller(block, indices.size() - first));
      for (std::size_t i = 0; i < here.size(); ++i) fields[i] = here[i] & mask;
      at += wire::pack(std::span<std::uint32_t const>{fields.data(), here.size()}, parts.width, to.subspan(at));
    }
    auto const row = to.subspan(parts.low, parts.high);
    std::ranges::fill(row, std::byte{0});
    host_kernels::run<set_bits>(host_kernels::best_simd(), indices, parts.width, row.data());
    return parts.bytes();
  }

  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    auto const parts = split(info.n, out.size());
    wire::expect(from.size() >= parts.bytes(), "bytes for indices", from.size(), "at least ", parts.bytes());
    auto const row = from.subspan(parts.low, parts.high);
    auto const count = wire::count_bits(row);
    wire::expect(count == out.size(), "number of bits set", count, "", out.size());
    wire::unpack(from, parts.width, out);
    wire::expect(wire::padding_is_zero(from, out.size(), parts.width), "padding of indices", 1, "", 0);
    // A bit beyond the last that an index below n can set gives an index of n or more, which `packed` detects.
    std::uint64_t i = 0;
    wire::for_each_bit(row, [&](std::uint64_t bit) {
      auto const high = bit - i;
      out[i] = high >> (32 - parts.width) == 0 ? out[i] | static_cast<index_type>(high << parts.width) : ~index_type{0};
      ++i;
    });
    return parts.bytes();
  }

  friend bool operator==(elias_fano const&, elias_fano const&) = default;

 private:
  static constexpr std::size_t block = 128;
  static constexpr unsigned widest = 31;

  /// A kernel, as only some processors shift by a variable in one instruction. Parts of the row in turn: entries that
  /// follow each other mostly write to the same byte, where each would wait for the one before.
  struct set_bits {
    template <simd>
    GRADSIEVE_INLINE static void run(std::span<index_type const> indices, unsigned width, std::byte* row) noexcept {
      constexpr std::size_t parts = 8;
      auto const set = [&](std::size_t i) GRADSIEVE_LAMBDA_INLINE {
        auto const bit = i + (indices[i] >> width);
        row[bit / 8] |= static_cast<std::byte>(1u << (bit % 8));
      };
      auto const each = indices.size() / parts;
      for (std::size_t i = 0; i < each; ++i)
        for (std::size_t part = 0; part < parts; ++part) set(part * each + i);
      for (std::size_t i = parts * each; i < indices.size(); ++i) set(i);
    }
  };
};
static_assert(index_codec<elias_fano>);

}  // namespace gradsieve
