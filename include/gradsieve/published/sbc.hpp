// A sign for each value, one magnitude for all positive and one for all negative ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One magnitude for each sign: p for a positive value, -m for a negative one, the mean magnitudes of all values of
/// that sign. 1 bit per value and 8 bytes. Rounding again does not change values. The residual keeps the error.
/// When not: without a residual, as the rounding is biased; if layers differ in scale, as all share the two magnitudes
/// (`ternary` has one per layer); with `index_union` and `leader`, which sum values one by one and refuse it at compile
/// time; on a device, where it is refused.
/// Payload: p and m, binary32, 0 if there are none; a bit for each entry, 1 if it is negative, the first in the lowest,
/// padded with zero bits to a byte.
/// Cost: two passes over the values to quantise or encode.
/// Source: sparse binary compression (Sattler et al. 2019), which sends only the entries of the sign with the larger
/// mean and needs no bit per value; here the selector chooses the entries, see `one_sign`.
struct sbc {
  static constexpr char const* name = "sbc";
  static constexpr std::uint16_t id = 9;

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return 8 + wire::packed_bytes(count, 1);
  }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return 8 * bytes; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return max_bytes(indices.size());
  }

  void quantise(message_info const&, std::span<index_type const>, std::span<float> values) const noexcept {
    auto const means = means_of(values);
    for (float& x : values) x = with_sign_of(x, wire::is_negative(x) ? means[1] : means[0]);
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    auto const means = means_of(values);
    wire::store(to, std::span<float const>{means});
    wire::pack_signs(values, to.subspan(8));
  }

  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const {
    std::array const means{wire::load_scale(from, "mean, as bits,"),
                           wire::load_scale(from.subspan(4), "mean, as bits,")};
    auto const signs = from.subspan(8);
    wire::expect(wire::padding_is_zero(signs, values.size(), 1), "padding of signs", 1, "", 0);
    std::array<bool, 2> found{};
    for (std::size_t i = 0; i < values.size(); ++i) {
      bool const negative = wire::is_negative(signs, i);
      found[negative ? 1 : 0] = true;
      values[i] = wire::signed_value(negative ? means[1] : means[0], negative);
    }
    for (std::size_t side = 0; side < 2; ++side)
      wire::expect(found[side] || means[side] == 0, "mean of no values, as bits,", means[side], "", 0);
  }

  friend bool operator==(sbc const&, sbc const&) = default;

 private:
  /// 1 for a negative value. (g++ 12 at -O3 reads means[-1] if a loop indexes with a bool.)
  [[nodiscard]] static std::size_t side_of(float x) noexcept { return gradsieve::bit_cast<std::uint32_t>(x) >> 31; }

  /// Mean magnitudes of the values that are not negative, and of the others. See mean_magnitude().
  [[nodiscard]] static std::array<float, 2> means_of(std::span<float const> values) noexcept {
    std::array<key_type, 2> largest{};
    for (float const x : values) {
      auto& mine = largest[side_of(x)];
      mine = larger(mine, magnitude_key(x));
    }
    std::array<unsigned, 2> const top{larger(largest[0] >> 23, 1u), larger(largest[1] >> 23, 1u)};
    std::array<std::uint64_t, 2> sum{};
    std::array<std::uint64_t, 2> count{};
    for (float const x : values) {
      auto const side = side_of(x);
      sum[side] += wire::in_units(magnitude_key(x), top[side]);
      ++count[side];
    }
    std::array<float, 2> means{};
    for (std::size_t side = 0; side < 2; ++side)
      if (largest[side] != 0) means[side] = wire::mean_of_units(sum[side], count[side], top[side]);
    return means;
  }
};
static_assert(value_codec<sbc>);

}  // namespace gradsieve
