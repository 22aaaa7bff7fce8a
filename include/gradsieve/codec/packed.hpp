// A codec of two parts: an index codec for the positions, a value codec for the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/checked.hpp>
#include <gradsieve/codec/index/automatic.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/report.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Any index codec with any value codec: `packed{.indices = delta{}, .values = ternary{}}`. Index codecs: raw32, delta,
/// elias_fano, bitmap, fixed_width, and automatic, which chooses one. Value codecs: fp32, fp16, bf16, int8, int4, int2,
/// ternary, sign, qsgd. On a device: raw32, elias_fano and fixed_width, with all of these value codecs.
/// Payload: ids of both parts, u16 each; the elements that pass through, binary32; the part of the index codec; the
/// part of the value codec, to the message's end.
/// When not: if the link is faster than memory, as `coo` costs less.
/// Cost: that of the parts, and one checksum of the message.
template <class Indices = automatic, class Values = fp32>
struct packed {
  static_assert(
      !requires { Indices::id; } || requires { detail::id<Indices::id>; },
      "packed's indices: id must be a static constexpr std::uint16_t");
  static_assert(
      !requires { Values::id; } || requires { detail::id<Values::id>; },
      "packed's values: id must be a static constexpr std::uint16_t");
  static_assert(index_codec<Indices>,
                "packed's indices need id, max_bytes(n, count), encode(info, indices, to) and decode(info, from, "
                "indices); they must be comparable and trivially copyable");
  static_assert(
      value_codec<Values>,
      "packed's values need id, max_bytes(count), bytes(info, indices), encode(info, indices, values, to) and "
      "decode(info, indices, from, values); they must be comparable and trivially copyable");
  static_assert(detail::quantise_fits<Values>,
                "packed's values: quantise must be quantise(info, indices, std::span<float>) const noexcept");
  static_assert(detail::largest_fits<Values>, "packed's values: largest must be float largest() const");
  static_assert(detail::most_count_fits<Values>,
                "packed's values: most_count must be std::uint64_t most_count(bytes) const");
  static_assert(detail::value_bytes_fits<Values>,
                "packed's values: value_bytes must be std::uint64_t value_bytes() const noexcept");
  static_assert(detail::name_of_fits<Indices>,
                "packed's indices: name_of must be char const* name_of(std::span<std::byte const>) const");

  static constexpr char const* name = "packed";
  static constexpr auto fields() {
    return std::tuple{field<&packed::indices>{"indices"}, field<&packed::values>{"values"}};
  }
  static constexpr std::uint16_t id = 2;
  Indices indices{};  ///< codec of the positions
  Values values{};    ///< codec of the values

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count,
                                                  std::uint64_t passthrough) const noexcept {
    return start + 4 * passthrough + indices.max_bytes(n, count) + values.max_bytes(count);
  }

  [[nodiscard]] constexpr float largest() const noexcept {
    if constexpr (limited_codec<Values>)
      return values.largest();
    else
      return largest_value<float>;
  }

  /// Bounds the number of entries of a message, whatever its bytes are, by the header and by the values' most_count(),
  /// if they have it; see bounded_codec.
  [[nodiscard]] std::uint64_t most_entries(std::span<std::byte const> front, std::uint64_t size) const noexcept {
    auto const announced = wire::announced_entries(front);
    if constexpr (counting_value_codec<Values>)
      return smaller(announced, values.most_count(size));
    else
      return announced;
  }

  void quantise(message_info const& info, std::span<index_type const> places, std::span<float> in_out) const noexcept
    requires quantises<Values>
  {
    values.quantise(info, places, in_out);
  }

  /// Writes a message; returns its size. @pre to.size() >= max_bytes(info.n, in.indices.size(), in.passthrough.size())
  /// @throws invalid_argument if a part returns more bytes than its max_bytes()
  [[nodiscard]] std::uint64_t encode(message_info const& info, selection_view const in, std::span<std::byte> to) const {
    wire::store_one(to.subspan(message_header::bytes), id_of(indices));
    wire::store_one(to.subspan(message_header::bytes + 2), id_of(values));
    wire::store(to.subspan(start), in.passthrough);
    std::uint64_t at = start + in.passthrough.size_bytes();
    at += detail::encode_indices_checked(indices, info, in.indices, to.subspan(at));
    std::uint64_t const most = smaller<std::uint64_t>(values.max_bytes(in.indices.size()), to.size() - at);
    auto const size = values.bytes(info, in.indices);
    detail::check_returned<Values>("value codec", "bytes()", size, "its max_bytes() is", most);
    values.encode(info, in.indices, in.values, to.subspan(at, size));
    at += size;
    auto const message = to.first(at);
    wire::seal({id, info.n, info.layout_hash, in.indices.size(), in.passthrough.size()}, message);
    return message.size();
  }

  /// Reads a message; returns the part of `out` that it has filled. @pre out.passthrough.size() >= info.passthrough
  /// @throws corrupt_message if the bytes are not what encode() writes for this layout: size, checksum, the parts' ids
  /// and contents, indices that increase below n, finite values. The contents of `out` are then unspecified.
  [[nodiscard]] selection_view decode(message_info const& info, std::span<std::byte const> from,
                                      selection_span out) const {
    auto const header = wire::open(info, id, from);
    wire::check_count(header.count, out.indices.size());
    std::uint64_t const parts = start + 4 * header.passthrough;
    wire::expect(from.size() >= parts, "size", from.size(), "at least ", parts);
    wire::check_seal(from);
    auto const part_id = [&](std::size_t at) { return wire::load_one<std::uint16_t>(from.subspan(at)); };
    wire::expect(part_id(start - 4) == id_of(indices), "index codec", part_id(start - 4), "", id_of(indices));
    wire::expect(part_id(start - 2) == id_of(values), "value codec", part_id(start - 2), "", id_of(values));
    std::span const places = out.indices.first(header.count);
    std::span const found = out.values.first(header.count);
    std::span const passthrough = out.passthrough.first(header.passthrough);
    wire::load(passthrough, from.subspan(start));
    auto const at = parts + indices.decode(info, from.subspan(parts), places);
    detail::check_returned<Indices>("index codec", "decode()", at - parts, "the message holds", from.size() - parts);
    wire::check_indices(info.n, places);
    auto const size = values.bytes(info, places);
    wire::expect(from.size() - at == size, "size", from.size(), "", at + size);
    values.decode(info, places, from.subspan(at), found);
    wire::check_finite(found);
    wire::check_finite(passthrough);
    return {places, found, passthrough};
  }

  /// The chosen index codec; see accounting_codec.
  [[nodiscard]] byte_breakdown breakdown(message_info const&, selection_view const in, std::span<range const>,
                                         std::span<std::byte const> message) const noexcept
    requires choosing_index_codec<Indices>
  {
    byte_breakdown result;
    result.index_codec = indices.name_of(message.subspan(start + in.passthrough.size_bytes()));
    return result;
  }

  friend bool operator==(packed const&, packed const&) = default;

 private:
  static constexpr std::size_t start = message_header::bytes + 4;  // after the ids

  /// A part's id, or its `chosen_id()` if it stands for others.
  template <class Part>
  [[nodiscard]] static std::uint16_t id_of(Part const& part) noexcept {
    if constexpr (requires { part.chosen_id(); })
      return part.chosen_id();
    else
      return Part::id;
  }
};
static_assert(codec<packed<>>);
/// decode() checks indices and values itself.
template <class Indices, class Values>
inline constexpr bool checks_decoded<packed<Indices, Values>> = true;

}  // namespace gradsieve
