// The index codec that is smallest for the selection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/index/bitmap.hpp>
#include <gradsieve/codec/index/delta.hpp>
#include <gradsieve/codec/index/elias_fano.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The smallest of `raw32`, `delta`, `elias_fano` and `bitmap`: one byte with the chosen codec's id, then its bytes.
/// The step's report names it. Not `fixed_width`, which can be the smallest only for clusters that are far apart.
/// When not: on a device, where messages have a fixed size and it is refused.
/// Cost: that of the chosen codec, and O(count) for the size of `delta`.
struct automatic {
  static constexpr char const* name = "automatic";
  static constexpr std::uint16_t id = 5;

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t n, std::uint64_t count) const noexcept {
    return 1 + smaller(smaller(raw32{}.max_bytes(n, count), bitmap{}.max_bytes(n, count)),
                       smaller(delta{}.max_bytes(n, count), elias_fano{}.max_bytes(n, count)));
  }

  [[nodiscard]] std::uint64_t encode(message_info const& info, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    auto const by_delta = delta{}.bytes(info, indices);
    auto const by_bitmap = bitmap{}.bytes(info, indices);
    auto const by_elias_fano = elias_fano{}.bytes(info, indices);
    auto const by_raw32 = raw32{}.bytes(info, indices);
    auto const least = smaller(smaller(by_delta, by_bitmap), smaller(by_elias_fano, by_raw32));
    if (least == by_delta) return write(delta{}, info, indices, to);
    if (least == by_bitmap) return write(bitmap{}, info, indices, to);
    if (least == by_elias_fano) return write(elias_fano{}, info, indices, to);
    return write(raw32{}, info, indices, to);
  }

  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    wire::expect(!from.empty(), "bytes for indices", 0, "at least ", 1);
    auto const rest = from.subspan(1);
    auto const which = std::to_integer<unsigned>(from[0]);
    if (which == raw32::id) return 1 + raw32{}.decode(info, rest, out);
    if (which == delta::id) return 1 + delta{}.decode(info, rest, out);
    if (which == elias_fano::id) return 1 + elias_fano{}.decode(info, rest, out);
    wire::expect(which == bitmap::id, "index codec", which, "one of 1, 2, 3, ", elias_fano::id);
    return 1 + bitmap{}.decode(info, rest, out);
  }

  /// The name of the codec that wrote these bytes; see choosing_index_codec. @pre encode() wrote them
  [[nodiscard]] char const* name_of(std::span<std::byte const> part) const noexcept {
    auto const which = std::to_integer<unsigned>(part[0]);
    return which == raw32::id        ? raw32::name
           : which == delta::id      ? delta::name
           : which == elias_fano::id ? elias_fano::name
                                     : bitmap::name;
  }

  friend bool operator==(automatic const&, automatic const&) = default;

 private:
  template <class Codec>
  static std::uint64_t write(Codec const& how, message_info const& info, std::span<index_type const> indices,
                             std::span<std::byte> to) noexcept {
    to[0] = static_cast<std::byte>(Codec::id);
    return 1 + how.encode(info, indices, to.subspan(1));
  }
};
static_assert(index_codec<automatic>);

}  // namespace gradsieve
