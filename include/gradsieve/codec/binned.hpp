// AdaComp's messages: one or two bytes for each entry, with its position in its bin and its sign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/byte_breakdown.hpp>
#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/types.hpp>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::wire {

/// Writes bytes one after the other. @pre enough space
struct byte_sink {
  std::span<std::byte> to;
  std::size_t at = 0;

  void put(std::uint64_t value, unsigned bytes) noexcept {
    for (; bytes > 0; --bytes, value >>= 8) to[at++] = static_cast<std::byte>(value & 0xFFu);
  }
};

struct byte_count {
  std::size_t at = 0;
  void put(std::uint64_t, unsigned bytes) noexcept { at += bytes; }
};

/// Reads a message that may be too short.
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

/// Writes a number with seven bits per byte, lowest first; the highest bit is set if more bytes follow.
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

/// @pre run > 0
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
  std::uint64_t written = 0;  // bins written so far
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

/// Reads what put_bins() wrote into `indices` and `values`; returns the number of entries, at least one. @throws
/// corrupt_message for anything else
[[nodiscard]] inline std::size_t take_bins(bin_symbols const& bins, std::uint64_t base, float scale, byte_source& from,
                                           std::span<index_type> indices, std::span<float> values) {
  std::size_t count = 0;
  std::uint64_t bin = 0;
  std::uint64_t next = 0;  // smallest offset allowed for the next entry; 0: a bin begins
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
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI {

/// Layers in bins, each entry as one symbol: 8 bits if the layer's bins are shorter than 64 elements, otherwise 16.
/// Values are +s or -s with one magnitude s per layer, as in `ternary`. Needs a selector with bins.
///
/// Payload: the elements that pass through, binary32; then for each layer with entries, in order:
/// - the number of nonempty layers without entries since the last layer with entries: 7 bits per byte, lowest first,
///   the highest bit set if more bytes follow;
/// - s, binary32, not negative;
/// - symbols, little-endian: a code of two bits above an offset of 6 or 14 bits. The symbol of an entry has its offset
///   in its bin; the code's bit 0 is set if it is negative, bit 1 if it is the last of its bin. The highest offset, 63
///   or 16383, which no bin reaches, marks other symbols: code 0 ends the layer; code 1 is one empty bin; code 2,
///   followed by a byte b, is 2 + b empty bins; code 3, followed by a u32 b, is 258 + b empty bins.
///
/// A layer ends with its last bin, or with code 0. Only the shortest form is valid, so that each selection has exactly
/// one encoding. A layer without entries costs nothing.
///
/// Bins are counted from a layer's first element. A compressor passes their lengths in info.bins; without a compressor
/// set info.bins and info.layers, see bin_lengths::of().
/// When not: for selections that leave most bins empty, such as a top-k of 0.1 %, for which `packed` is smaller; on a
/// device, where messages have a fixed size and it is refused.
/// Cost: O(entries + layers), entry by entry.
/// Source: Chen et al. 2018; how a bin ends is not published there.
struct binned {
  static constexpr char const* name = "binned";
  static constexpr std::uint16_t id = 3;
  static constexpr std::uint32_t longest_bin = 16383;  ///< elements

  /// An upper bound: each entry is a symbol after a run of up to 257 empty bins, in a layer of its own.
  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count,
                                                  std::uint64_t passthrough) const noexcept {
    return message_header::bytes + 4 * passthrough + count * (2 + 3 + 4 + 1 + 2) + smaller(count, n / 128) * (3 + 4);
  }

  [[nodiscard]] std::uint64_t most_entries(std::span<std::byte const> front, std::uint64_t size) const noexcept {
    return smaller(wire::announced_entries(front), size);
  }

  void quantise(message_info const& info, std::span<index_type const> indices, std::span<float> values) const noexcept {
    detail::to_layer_scale(info, indices, values);
  }

  /// Writes a message; returns its size. @pre to.size() >= max_bytes(info.n, in.indices.size(), in.passthrough.size())
  [[nodiscard]] std::uint64_t encode(message_info const& info, selection_view const in, std::span<std::byte> to) const {
    auto const& layers = layers_of(info);
    wire::store(to.subspan(message_header::bytes), in.passthrough);
    wire::byte_sink out{to, message_header::bytes + in.passthrough.size_bytes()};
    for_each_part(layers, info, in, [&](bin_layer const& part) { write(part, in, out); });
    auto const message = to.first(out.at);
    wire::seal({id, info.n, info.layout_hash, in.indices.size(), in.passthrough.size()}, message);
    return message.size();
  }

  /// Reads a message; returns the part of `out` that it has filled. @pre out.passthrough.size() >= info.passthrough
  /// @throws corrupt_message if the bytes are not what encode() writes for this layout and these bins. The contents of
  /// `out` are then unspecified.
  [[nodiscard]] selection_view decode(message_info const& info, std::span<std::byte const> from,
                                      selection_span out) const {
    auto const& layers = layers_of(info);
    auto const header = wire::open(info, id, from);
    wire::check_count(header.count, out.indices.size());
    std::uint64_t const start = message_header::bytes + 4 * header.passthrough;
    wire::expect(from.size() >= start, "size", from.size(), "at least ", start);
    wire::check_seal(from);
    std::span const indices = out.indices.first(header.count);
    std::span const values = out.values.first(header.count);
    std::span const passthrough = out.passthrough.first(header.passthrough);
    wire::load(passthrough, from.subspan(message_header::bytes));
    wire::check_finite(passthrough);
    wire::byte_source in{from, start};
    std::size_t done = 0;
    for (std::size_t l = 0; done < indices.size(); ++l) {
      l = skip_layers(layers, l, in);
      auto const scale = static_cast<std::uint32_t>(in.take(4));
      wire::expect(scale < infinite_key, "scale of a layer, as bits,", scale, "below ", infinite_key);
      done += wire::take_bins({layers[l].size, info.bins[l]}, layers.offset(l), gradsieve::bit_cast<float>(scale), in,
                              indices.subspan(done), values.subspan(done));
    }
    wire::expect(in.at == from.size(), "size", from.size(), "", in.at);
    return {indices, values, passthrough};
  }

  /// Bytes of each kind of layer, and of the ranges in `passthrough`. Cost: as encode().
  [[nodiscard]] byte_breakdown breakdown(message_info const& info, selection_view const in,
                                         std::span<range const> passthrough, std::span<std::byte const>) const {
    auto const& layers = layers_of(info);
    auto result = detail::breakdown_of_layers(info, passthrough);
    for_each_part(layers, info, in, [&](bin_layer const& part) {
      wire::byte_count size;
      write(part, in, size);
      auto& kind = result.of(part.bins.length);
      kind.entries += part.last - part.first;
      kind.bytes += static_cast<double>(size.at);
    });
    return result;
  }

  friend bool operator==(binned const&, binned const&) = default;

 private:
  /// A layer with the entries [first, last).
  struct bin_layer {
    wire::bin_symbols bins;
    std::uint64_t base = 0;     // its first element
    std::uint64_t skipped = 0;  // layers without entries since the previous one
    std::size_t first = 0;
    std::size_t last = 0;
  };

  /// @throws invalid_argument if info lacks the layers or bins.
  [[nodiscard]] static layout const& layers_of(message_info const& info) {
    if (info.layers == nullptr || info.layers->size() != info.n)
      throw invalid_argument("gradsieve: binned needs message_info's layers, of " + std::to_string(info.n) +
                             " elements");
    if (info.bins.size() != info.layers->count())
      throw invalid_argument("gradsieve: binned needs message_info's bins, of " + std::to_string(info.layers->count()) +
                             " layers");
    for (auto const length : info.bins)
      if (length < 1 || length > longest_bin)
        throw invalid_argument("gradsieve: a bin's length is " + std::to_string(length) + ", expected 1 to " +
                               std::to_string(longest_bin));
    return *info.layers;
  }

  template <class F>
  static void for_each_part(layout const& layers, message_info const& info, selection_view const in, F const& f) {
    std::size_t next = 0;
    detail::for_each_layer(info, in.indices, [&](std::size_t l, std::size_t first, std::size_t last) {
      std::uint64_t skipped = 0;
      for (; next < l; ++next) skipped += layers[next].size > 0 ? 1u : 0u;
      ++next;
      f(bin_layer{{layers[l].size, info.bins[l]}, layers.offset(l), skipped, first, last});
    });
  }

  template <class Sink>
  static void write(bin_layer const& part, selection_view const in, Sink& to) noexcept {
    auto const values = in.values.subspan(part.first, part.last - part.first);
    wire::put_varint(to, part.skipped);
    to.put(gradsieve::bit_cast<std::uint32_t>(detail::mean_magnitude(values)), 4);
    wire::put_bins(part.bins, part.base, in.indices.subspan(part.first, values.size()), values, to);
  }

  /// The layer of the next part of the message, at `l` or after it.
  [[nodiscard]] static std::size_t skip_layers(layout const& layers, std::size_t l, wire::byte_source& in) {
    std::uint64_t const skipped = wire::take_varint(in);
    std::uint64_t left = skipped;
    for (; l < layers.count(); ++l)
      if (layers[l].size > 0 && left-- == 0) return l;
    throw corrupt_message("gradsieve: message skips " + std::to_string(skipped) +
                          " layers, more than are left of the layout");
  }
};
static_assert(codec<binned>);
/// decode() checks indices and values itself.
template <>
inline constexpr bool checks_decoded<binned> = true;

}  // namespace gradsieve
