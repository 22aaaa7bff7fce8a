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

namespace detail {

/// Runs of consecutive indices, for `automatic`: of each the number of elements between it and the run before, above 0
/// but for the first, and its length, u32 each. All n elements are 8 bytes. Each selection has exactly one encoding.
struct index_runs {
  static constexpr char const* name = "runs";
  static constexpr std::uint16_t id = 7;

  [[nodiscard]] static std::uint64_t bytes(std::span<index_type const> indices) noexcept {
    std::uint64_t runs = indices.empty() ? 0 : 1;
    for (std::size_t i = 1; i < indices.size(); ++i) runs += indices[i] - indices[i - 1] == 1 ? 0u : 1u;
    return 8 * runs;
  }

  [[nodiscard]] std::uint64_t encode(message_info const&, std::span<index_type const> indices,
                                     std::span<std::byte> to) const noexcept {
    std::uint64_t at = 0;
    index_type end = 0;  // of the run before
    for (std::size_t i = 0, first = 0; i < indices.size(); at += 8, first = i) {
      for (++i; i < indices.size() && indices[i] - indices[i - 1] == 1;) ++i;
      wire::store_all(to.subspan(at), indices[first] - end, static_cast<index_type>(i - first));
      end = indices[i - 1] + 1;
    }
    return at;
  }

  [[nodiscard]] std::uint64_t decode(message_info const&, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    std::uint64_t at = 0;
    index_type next = 0;  // modulo 2^32: `packed` detects indices that do not increase
    for (std::size_t filled = 0; filled < out.size(); at += 8) {
      wire::expect(from.size() >= at + 8, "bytes for indices", from.size(), "at least ", at + 8);
      index_type gap = 0, length = 0;
      wire::load_all(from.subspan(at), gap, length);
      wire::expect(gap > 0 || at == 0, "gap between runs", gap, "at least ", 1);
      wire::expect(length - 1 < out.size() - filled, "length of a run", length, "1 to ", out.size() - filled);
      next += gap;
      for (auto const end = filled + length; filled < end; ++filled) out[filled] = next++;
    }
    return at;
  }
};

}  // namespace detail

/// The smallest of `raw32`, `delta`, `elias_fano`, `bitmap` and, where more than half of the elements from the first
/// index to the last are selected, runs of 8 bytes each: one byte with the chosen one's id, then its bytes. The step's
/// report names it. Not `fixed_width`, which can be the smallest only for clusters that are far apart.
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
    bool const dense = !indices.empty() && 2 * indices.size() > indices.back() - indices.front();
    auto const which = dense && detail::index_runs::bytes(indices) < least ? detail::index_runs::id
                       : least == by_delta                                 ? delta::id
                       : least == by_bitmap                                ? bitmap::id
                       : least == by_elias_fano                            ? elias_fano::id
                                                                           : raw32::id;
    to[0] = static_cast<std::byte>(which);
    return 1 + with_codec(which, [&](auto const& how) { return how.encode(info, indices, to.subspan(1)); });
  }

  [[nodiscard]] std::uint64_t decode(message_info const& info, std::span<std::byte const> from,
                                     std::span<index_type> out) const {
    wire::expect(!from.empty(), "bytes for indices", 0, "at least ", 1);
    auto const which = std::to_integer<unsigned>(from[0]);
    return 1 + with_codec(which, [&](auto const& how) { return how.decode(info, from.subspan(1), out); });
  }

  /// The name of the codec that wrote these bytes; see choosing_index_codec. @pre encode() wrote them
  [[nodiscard]] char const* name_of(std::span<std::byte const> part) const noexcept {
    return with_codec(std::to_integer<unsigned>(part[0]), [](auto const& how) { return how.name; });
  }

  friend bool operator==(automatic const&, automatic const&) = default;

 private:
  /// Calls f(codec) with the one of this id. @throws corrupt_message if there is none
  template <class F>
  static auto with_codec(unsigned which, F const& f) -> decltype(f(bitmap{})) {
    if (which == raw32::id) return f(raw32{});
    if (which == delta::id) return f(delta{});
    if (which == elias_fano::id) return f(elias_fano{});
    if (which == detail::index_runs::id) return f(detail::index_runs{});
    wire::expect(which == bitmap::id, "index codec", which, "one of 1, 2, 3, 6, ", detail::index_runs::id);
    return f(bitmap{});
  }
};
static_assert(index_codec<automatic>);

}  // namespace gradsieve
