// Offsets of a fixed width within chunks of elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The offset of each entry within its chunk of 2^b elements, in b bits, and a count for each chunk. Bits per index:
/// b + (b + 1) / (density * 2^b): 12.3 at density 0.01, 15.2 at 0.001, 44 at 0.0001.
/// When not: where bytes matter, as `elias_fano` has fewer for random positions. Use longer chunks below density 0.0005.
/// Payload: one byte with b; for each chunk of n the number of its entries, in b + 1 bits, padded with zero bits to a
/// byte; the offsets of all entries, in b bits, padded with zero bits to a byte.
struct fixed_width {
  static constexpr char const* name = "fixed_width";
  static constexpr auto fields() { return std::tuple{field<&fixed_width::chunk>{"chunk"}}; }
  static constexpr std::uint16_t id = 4;
  std::uint32_t chunk = 4096;  ///< elements, a power of two from 2 to 65536

  void check() const {
    if (chunk < 2 || chunk > 65536 || (chunk & (chunk - 1)) != 0)
      throw invalid_argument("gradsieve: fixed_width's chunk is " + std::to_string(chunk) +
                             ", expected a power of two from 2 to 65536");
  }

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return 1 + wire::packed_bytes(chunks(n, shift()), shift() + 1) + wire::packed_bytes(count, shift());
  }

  /// Writes the bytes; see index_codec. @pre the indices increase below info.n
  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    unsigned const width = shift();
    to[0] = static_cast<std::byte>(width);
    auto const counts = to.subspan(1, wire::packed_bytes(chunks(info.n, width), width + 1));
    auto const offsets = to.subspan(1 + counts.size());
    constexpr std::size_t step = 16;
    std::size_t last = 0;  // entries that are counted
    pack_groups(chunks(info.n, width), width + 1, counts, [&](std::uint64_t first, std::span<std::uint32_t> here) {
      // Where each chunk's entries end: by stores, as no processor foresees how many a chunk has.
      std::ranges::fill(here, 0u);
      std::size_t const begin = last;
      auto const chunk_of = [&](std::size_t i) { return (indices[i] >> width) - first; };
      auto const note = [&](std::size_t i) { here[chunk_of(i)] = static_cast<std::uint32_t>(i + 1 - begin); };
      for (; last + step <= indices.size() && chunk_of(last + step - 1) < here.size(); last += step)
        if (chunk_of(last) == chunk_of(last + step - 1))
          note(last + step - 1);
        else
          for (std::size_t i = 0; i < step; ++i) note(last + i);
      for (; last < indices.size() && chunk_of(last) < here.size(); ++last) note(last);
      std::uint32_t before = 0;
      for (auto& each : here) {
        std::uint32_t const end = larger(each, before);
        each = end - before;
        before = end;
      }
    });
    pack_groups(indices.size(), width, offsets, [&](std::uint64_t first, std::span<std::uint32_t> here) {
      for (std::size_t i = 0; i < here.size(); ++i) here[i] = indices[first + i] & wire::low_bits(width);
    });
    return 1 + counts.size() + wire::packed_bytes(indices.size(), width);
  }

  /// Reads the bytes, of any chunk size; see index_codec.
  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    wire::expect(!from.empty(), "bytes for indices", 0, "at least ", 1);
    auto const width = std::to_integer<unsigned>(from[0]);
    wire::expect(width >= 1 && width <= 16, "offset width", width, "1 to ", 16);
    std::uint64_t const all = chunks(info.n, width);
    std::uint64_t const counts_size = wire::packed_bytes(all, width + 1);
    std::uint64_t const size = 1 + counts_size + wire::packed_bytes(out.size(), width);
    wire::expect(from.size() >= size, "bytes for indices", from.size(), "at least ", size);
    auto const counts = from.subspan(1, counts_size);
    auto const offsets = from.subspan(1 + counts_size);
    wire::unpack(offsets, width, out);
    std::uint64_t done = 0;
    std::array<std::uint32_t, group> some;
    for (std::uint64_t c = 0; c < all; c += group) {
      std::size_t const fields = smaller<std::uint64_t>(group, all - c);
      std::span const here{some.data(), fields};
      wire::unpack(counts.subspan(wire::packed_bytes(c, width + 1)), width + 1, here);
      for (std::size_t i = 0; i < here.size(); ++i) {
        wire::expect(here[i] <= out.size() - done, "count of a chunk", here[i], "at most ", out.size() - done);
        auto const first = static_cast<index_type>((c + i) << width);
        for (std::uint32_t e = 0; e < here[i]; ++e) out[done++] += first;
      }
    }
    wire::expect(done == out.size(), "sum of chunk counts", done, "", out.size());
    wire::expect(wire::padding_is_zero(counts, all, width + 1), "padding of chunk counts", 1, "", 0);
    wire::expect(wire::padding_is_zero(offsets, out.size(), width), "padding of offsets", 1, "", 0);
    return size;
  }

  friend bool operator==(fixed_width const&, fixed_width const&) = default;

 private:
  static constexpr std::size_t group = 128;  // fields that are packed at once: they end at a byte

  [[nodiscard]] constexpr unsigned shift() const noexcept { return bit_width(chunk) - 1; }
  [[nodiscard]] static constexpr std::uint64_t chunks(std::uint64_t n, unsigned width) noexcept {
    return (n + (std::uint64_t{1} << width) - 1) >> width;
  }

  /// Packs `count` fields, which fill(first, some) writes.
  template <class Fill>
  static void pack_groups(std::uint64_t count, unsigned width, std::span<std::byte> to, Fill const& fill) noexcept {
    std::array<std::uint32_t, group> some;
    for (std::uint64_t at = 0; at < count; at += group) {
      std::span const here{some.data(), smaller<std::uint64_t>(group, count - at)};
      fill(at, here);
      wire::pack(here, width, to.subspan(wire::packed_bytes(at, width)));
    }
  }
};
static_assert(index_codec<fixed_width>);

}  // namespace gradsieve
