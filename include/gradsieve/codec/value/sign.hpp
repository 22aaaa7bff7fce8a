// A sign for each value and one magnitude for each block of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A sign for each value and one magnitude per block: +s or -s, where s is the mean magnitude of the value's block. 1 +
/// 32 / block bits per value. Rounding again changes nothing. The residual keeps the error. `ternary` has one magnitude
/// per layer.
/// When not: without a residual, as the rounding is biased; with `index_union` and `leader`, which sum values one by
/// one and refuse it at compile time.
/// Payload: s for each block of `block` entries, binary32, in order; a bit for each entry, 1 if it is negative, the
/// first in the lowest bit, padded with zero bits to a byte.
/// Cost: two passes over the values to quantise or encode.
/// Source: EF-signSGD (Karimireddy et al. 2019), on selected entries and with blocks instead of layers.
struct sign {
  static constexpr char const* name = "sign";
  static constexpr auto fields() { return std::tuple{field<&sign::block>{"block", between(1, 1u << 20)}}; }
  static constexpr std::uint16_t id = 8;
  std::uint32_t block = 256;  ///< entries that share a magnitude, in [1, 2^20]

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return 4 * wire::block_count(count, block) + wire::packed_bytes(count, 1);
  }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return 8 * bytes; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return max_bytes(indices.size());
  }

  void quantise(message_info const&, std::span<index_type const>, std::span<float> values) const noexcept {
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const here = wire::block_of(values, b, block);
      float const scale = detail::mean_magnitude(here);
      for (float& x : here) x = with_sign_of(x, scale);
    }
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    std::size_t const count = wire::block_count(values.size(), block);
    for (std::size_t b = 0; b < count; ++b)
      wire::store_one(to.subspan(4 * b), detail::mean_magnitude(wire::block_of(values, b, block)));
    wire::pack_signs(values, to.subspan(4 * count));
  }

  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const {
    auto const signs = from.subspan(4 * wire::block_count(values.size(), block));
    wire::expect(wire::padding_is_zero(signs, values.size(), 1), "padding of signs", 1, "", 0);
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const scale = wire::load_scale(from.subspan(4 * b), "scale of a block, as bits,");
      std::size_t const last = smaller<std::size_t>(values.size(), (b + 1) * block);
      for (std::size_t i = b * block; i < last; ++i) values[i] = wire::signed_value(scale, wire::is_negative(signs, i));
    }
  }

  // The block format, which a device writes and reads: see device_block_values.
  /// @cond internal

  static constexpr unsigned scale_bytes = 4;
  [[nodiscard]] GRADSIEVE_HD static constexpr unsigned width() noexcept { return 1; }

  /// The magnitude of a block, from the sum of in_units() of its values.
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t mean_scale_of(std::uint64_t units, std::uint64_t count,
                                                                          unsigned top) noexcept {
    return magnitude_key(wire::mean_of_units(units, count, top));
  }
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t code_of(float x, index_type, std::uint32_t) noexcept {
    return gradsieve::bit_cast<std::uint32_t>(x) >> 31;
  }
  [[nodiscard]] GRADSIEVE_HD static constexpr float value_of(std::uint32_t code, std::uint32_t scale) noexcept {
    return gradsieve::bit_cast<float>(scale | code << 31);
  }
  [[nodiscard]] GRADSIEVE_HD static constexpr bool is_code(std::uint32_t, index_type, std::uint32_t scale) noexcept {
    return scale < infinite_key;
  }
  [[nodiscard]] GRADSIEVE_HD static constexpr bool fills(std::uint32_t, std::uint32_t) noexcept { return true; }
  /// @endcond

  friend bool operator==(sign const&, sign const&) = default;
};
static_assert(value_codec<sign>);

}  // namespace gradsieve
