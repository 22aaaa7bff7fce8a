// Values in 16 bits: fp16 and bf16.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <type_traits>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve {

/// Values rounded to the nearest of `Format`, ties to even, little-endian; 16 bits a value. Values that would round to
/// infinity become the largest finite one. The residual keeps the rounding error. See `fp16` and `bf16`.
template <gradient_value Format>
struct half_values {
  static constexpr bool is_bf16 = std::same_as<Format, bfloat16>;  ///< else fp16
  static constexpr char const* name = is_bf16 ? "bf16" : "fp16";
  static constexpr std::uint16_t id = is_bf16 ? 3 : 2;

  /// The largest value that it can hold; see limited_codec.
  [[nodiscard]] static constexpr float largest() noexcept { return largest_value<Format>; }

  /// x as the receiver gets it.
  [[nodiscard]] GRADSIEVE_HD static constexpr Format rounded(float x) noexcept {
    return from_float_saturated<Format>(x);
  }

  [[nodiscard]] constexpr std::uint64_t value_bytes() const noexcept { return 2; }
  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept { return 2 * count; }
  /// Values that so many bytes can hold; see counting_value_codec.
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return bytes / 2; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return 2 * indices.size();
  }

  void quantise(message_info const&, std::span<index_type const>, std::span<float> values) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, auto const size) {
      float* const x = values.data() + at;
      for (std::size_t i = 0; i < size; ++i) x[i] = to_float(rounded(x[i]));
    });
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, auto const size) {
      std::array<std::uint16_t, block> bits;
      float const* const x = values.data() + at;
      for (std::size_t i = 0; i < size; ++i) bits[i] = rounded(x[i]).bits;
      wire::store(to.subspan(2 * at), std::span<std::uint16_t const>{bits.data(), size});
    });
  }
  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, auto const size) {
      std::array<std::uint16_t, block> bits;
      wire::load(std::span{bits.data(), std::size_t{size}}, from.subspan(2 * at));
      float* const x = values.data() + at;
      for (std::size_t i = 0; i < size; ++i) x[i] = to_float(Format{bits[i]});
    });
  }

  friend bool operator==(half_values const&, half_values const&) = default;

 private:
  static constexpr std::size_t block = 64;

  /// Calls f(first, size) for blocks of a size that the compiler knows, which it vectorises, and for the rest.
  template <class F>
  static void in_blocks(std::size_t count, F const& f) noexcept {
    std::size_t at = 0;
    for (; at + block <= count; at += block) f(at, std::integral_constant<std::size_t, block>{});
    if (at < count) f(at, count - at);
  }
};

/// IEEE 754 binary16: values between 6e-8 and 65504, with 11 significant bits from 6.1e-5 on. When not: for gradients
/// near either end, as without loss scaling; smaller values become 0 and wait in the residual.
using fp16 = half_values<float16>;

/// The upper half of binary32: its range with 8 significant bits. When not: where fp16's range is enough, which has 11.
using bf16 = half_values<bfloat16>;

static_assert(value_codec<fp16> && value_codec<bf16>);

}  // namespace gradsieve
