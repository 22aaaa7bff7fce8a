// The entries of a layer as symbols of a byte or two: the format of `binned`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::wire {

/// Writes bytes one after the other; `put` needs enough space for them.
struct byte_sink {
  std::span<std::byte> to;
  std::size_t at = 0;

  void put(std::uint64_t value, unsigned bytes) noexcept {
    for (; bytes > 0; --bytes, value >>= 8) to[at++] = static_cast<std::byte>(value & 0xFFu);
  }
};

/// As byte_sink, but only counts.
struct byte_count {
  std::size_t at = 0;
  void put(std::uint64_t, unsigned bytes) noexcept { at += bytes; }
};

/// Reads the bytes of a message that may end too early.
struct byte_source {
  std::span<std::byte const> from;
  std::size_t at = 0;

  /// Reads a whole number of 1 to 8 bytes. @throws corrupt_message beyond the end
  [[nodiscard]] std::uint64_t take(unsigned bytes) {
    expect(from.size() - at >= bytes, "size", from.size(), "at least ", at + bytes);
    if (from.size() - at >= 8) {
      auto const word = load_one<std::uint64_t>(from.subspan(at, 8));
      at += bytes;
      return word & ~std::uint64_t{0} >> (64 - 8 * bytes);
    }
    std::uint64_t value = 0;
    for (unsigned b = 0; b < bytes; ++b) value |= std::to_integer<std::uint64_t>(from[at++]) << (8 * b);
    return value;
  }
};

/// Writes a number with seven bits per byte, lowest first, the highest bit set if more bytes follow.
template <class Sink>
void put_varint(Sink& to, std::uint64_t value) noexcept {
  for (; value >= 128; value >>= 7) to.put((value & 127) | 128, 1);
  to.put(value, 1);
}

/// @throws corrupt_message for 2^35 and more, and for more bytes than the number needs
[[nodiscard]] inline std::uint64_t take_varint(byte_source& from) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    expect(shift < 35, "bytes of a number", shift / 7 + 1, "at most ", 5);
    auto const next = from.take(1);
    value |= (next & 127) << shift;
    if (next >= 128) continue;
    expect(next > 0 || shift == 0, "last byte of a number", next, "at least ", 1);
    return value;
  }
}

/// The bins of one layer, and its symbols: a code of two bits above an offset.
struct bin_symbols {
  std::uint64_t size;    ///< elements of the layer
  std::uint32_t length;  ///< of a bin, 1 to 16383

  static constexpr std::uint32_t negative = 1;
  static constexpr std::uint32_t last = 2;
  static constexpr std::uint64_t short_run = 2;   ///< the fewest empty bins of code 2
  static constexpr std::uint64_t long_run = 258;  ///< the fewest empty bins of code 3

  [[nodiscard]] constexpr unsigned bytes() const noexcept { return length < 64 ? 1 : 2; }
  [[nodiscard]] constexpr unsigned offset_bits() const noexcept { return 8 * bytes() - 2; }
  [[nodiscard]] constexpr std::uint32_t no_entry() const noexcept { return (1u << offset_bits()) - 1; }
  [[nodiscard]] constexpr std::uint64_t bins() const noexcept { return (size + length - 1) / length; }
  [[nodiscard]] constexpr std::uint32_t symbol(std::uint32_t offset, std::uint32_t code) const noexcept {
    return offset | code << offset_bits();
  }
};

/// Writes a run of `run` empty bins. @pre run > 0
template <class Sink>
void put_empty(bin_symbols const& bins, std::uint64_t run, Sink& to) noexcept {
  std::uint32_t const code = run < bin_symbols::short_run ? 1 : run < bin_symbols::long_run ? 2 : 3;
  to.put(bins.symbol(bins.no_entry(), code), bins.bytes());
  if (code == 2) to.put(run - bin_symbols::short_run, 1);
  if (code == 3) to.put(run - bin_symbols::long_run, 4);
}

/// Writes the symbols of a layer whose first element is `base`. @pre the indices increase within the layer
template <class Sink>
void put_bins(bin_symbols const& bins, std::uint64_t base, std::span<index_type const> indices,
              std::span<float const> values, Sink& to) noexcept {
  std::uint64_t written = 0;  // bins that have been written
  for (std::size_t i = 0; i < indices.size(); ++written) {
    std::uint64_t const bin = (indices[i] - base) / bins.length;
    if (bin > written) put_empty(bins, bin - written, to);
    written = bin;
    std::uint64_t const first = base + bin * bins.length;
    for (bool more = true; more; ++i) {
      more = i + 1 < indices.size() && indices[i + 1] < first + bins.length;
      std::uint32_t const sign = gradsieve::bit_cast<std::uint32_t>(values[i]) >> 31;
      to.put(bins.symbol(static_cast<std::uint32_t>(indices[i] - first),
                         sign * bin_symbols::negative + (more ? 0 : bin_symbols::last)),
             bins.bytes());
    }
  }
  if (written < bins.bins()) to.put(bins.symbol(bins.no_entry(), 0), bins.bytes());
}

/// Reads what put_bins() wrote into the front of `indices` and `values`; returns the number of entries, at least one.
/// @throws corrupt_message for anything else
[[nodiscard]] inline std::size_t take_bins(bin_symbols const& bins, std::uint64_t base, float scale, byte_source& from,
                                           std::span<index_type> indices, std::span<float> values) {
  std::size_t count = 0;
  std::uint64_t bin = 0;
  std::uint64_t next = 0;  // the smallest offset that the next entry may have; 0: a bin begins
  bool after_run = false;
  while (bin < bins.bins()) {
    auto const symbol = static_cast<std::uint32_t>(from.take(bins.bytes()));
    auto const offset = symbol & bins.no_entry();
    auto const code = symbol >> bins.offset_bits();
    if (offset == bins.no_entry()) {
      expect(next == 0, "offset in a bin", offset, "below ", bins.length);
      expect(!after_run, "number of runs of empty bins, side by side,", 2, "", 1);
      if (code == 0) {
        expect(count > 0, "entry count of a layer", 0, "at least ", 1);
        return count;
      }
      std::uint64_t const run = code == 1   ? 1
                                : code == 2 ? bin_symbols::short_run + from.take(1)
                                            : bin_symbols::long_run + from.take(4);
      expect(run < bins.bins() - bin, "run of empty bins", run, "below ", bins.bins() - bin);
      bin += run;
      after_run = true;
      continue;
    }
    after_run = false;
    std::uint64_t const first = bin * bins.length;
    expect(offset >= next, "offset in a bin", offset, "at least ", next);
    expect(offset < smaller<std::uint64_t>(bins.length, bins.size - first), "offset in a bin", offset, "below ",
           smaller<std::uint64_t>(bins.length, bins.size - first));
    expect(count < indices.size(), "entry count from here on", count + 1, "at most ", indices.size());
    indices[count] = static_cast<index_type>(base + first + offset);
    values[count] = (code & bin_symbols::negative) != 0 ? -scale : scale;
    ++count;
    bool const ends = (code & bin_symbols::last) != 0;
    next = ends ? 0 : offset + 1;
    bin += ends ? 1 : 0;
  }
  return count;
}

}  // namespace gradsieve::wire
