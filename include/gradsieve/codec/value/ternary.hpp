// A sign for each value and one magnitude for each layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A sign for each value and one magnitude per layer: +s or -s, where s is the mean magnitude of the layer's entries. 1
/// bit per value and 4 bytes per layer. Lossless for layers whose entries all have one magnitude, as `adacomp` sends
/// them. The residual keeps the rounding error. Without info.layers the gradient counts as one layer.
/// When not: without a residual, as the rounding is biased.
/// Payload: s for each layer with entries, binary32, in order; a bit for each entry, 1 if it is negative, the first in
/// the lowest bit, padded with zero bits to a byte.
/// Cost: three passes over the values to encode.
struct ternary {
  static constexpr char const* name = "ternary";
  static constexpr std::uint16_t id = 4;

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return 4 * count + wire::packed_bytes(count, 1);
  }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return 8 * bytes; }
  [[nodiscard]] std::uint64_t bytes(message_info const& info, std::span<index_type const> indices) const noexcept {
    std::uint64_t scales = 0;
    detail::for_each_layer(info, indices, [&](std::size_t, std::size_t, std::size_t) { ++scales; });
    return 4 * scales + wire::packed_bytes(indices.size(), 1);
  }

  void quantise(message_info const& info, std::span<index_type const> indices, std::span<float> values) const noexcept {
    detail::to_layer_scale(info, indices, values);
  }

  void encode(message_info const& info, std::span<index_type const> indices, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    std::size_t at = 0;
    detail::for_each_layer(info, indices, [&](std::size_t, std::size_t first, std::size_t last) {
      wire::store_one(to.subspan(at), detail::mean_magnitude(values.subspan(first, last - first)));
      at += 4;
    });
    wire::pack_signs(values, to.subspan(at));
  }

  void decode(message_info const& info, std::span<index_type const> indices, std::span<std::byte const> from,
              std::span<float> values) const {
    auto const signs = from.last(wire::packed_bytes(values.size(), 1));
    wire::expect(wire::padding_is_zero(signs, values.size(), 1), "padding of signs", 1, "", 0);
    std::size_t at = 0;
    detail::for_each_layer(info, indices, [&](std::size_t, std::size_t first, std::size_t last) {
      auto const scale = wire::load_scale(from.subspan(at), "scale of a layer, as bits,");
      at += 4;
      for (std::size_t i = first; i < last; ++i) values[i] = wire::signed_value(scale, wire::is_negative(signs, i));
    });
  }

  friend bool operator==(ternary const&, ternary const&) = default;
};
static_assert(value_codec<ternary>);

}  // namespace gradsieve
