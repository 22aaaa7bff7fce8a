// Values in 16 bits: fp16 and bf16.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/simd.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Values rounded to the nearest of `Format`, ties to even, little-endian; 16 bits per value. Values that would round
/// to infinity become the largest finite value. The residual keeps the rounding error. See `fp16` and `bf16`.
template <gradient_value Format>
struct half_values {
  static constexpr bool is_bf16 = std::same_as<Format, bfloat16>;  ///< false: fp16
  static constexpr char const* name = is_bf16 ? "bf16" : "fp16";
  static constexpr std::uint16_t id = is_bf16 ? 3 : 2;

  /// The largest value that it can represent; see limited_codec.
  [[nodiscard]] static constexpr float largest() noexcept { return largest_value<Format>; }

  /// The value that a receiver decodes for x.
  [[nodiscard]] GRADSIEVE_HD static constexpr Format rounded(float x) noexcept {
    return from_float_saturated<Format>(x);
  }

  [[nodiscard]] constexpr std::uint64_t value_bytes() const noexcept { return 2; }
  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept { return 2 * count; }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return bytes / 2; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return 2 * indices.size();
  }

  void quantise(message_info const&, std::span<index_type const>, std::span<float> values) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, std::span<std::uint16_t> bits) {
      convert<to_bits>(values.data() + at, bits.data(), bits.size());
      convert<from_bits>(bits.data(), values.data() + at, bits.size());
    });
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, std::span<std::uint16_t> bits) {
      convert<to_bits>(values.data() + at, bits.data(), bits.size());
      wire::store(to.subspan(2 * at), std::span<std::uint16_t const>{bits});
    });
  }
  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const noexcept {
    in_blocks(values.size(), [&](std::size_t at, std::span<std::uint16_t> bits) {
      wire::load(bits, from.subspan(2 * at));
      convert<from_bits>(bits.data(), values.data() + at, bits.size());
    });
  }

  friend bool operator==(half_values const&, half_values const&) = default;

 private:
  static constexpr std::size_t block = 1024;

  struct to_bits {
    template <simd>
    GRADSIEVE_INLINE static void run(float const* from, std::uint16_t* to, std::size_t count) noexcept {
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = rounded(from[i]).bits;
    }
  };
  struct from_bits {
    template <simd>
    GRADSIEVE_INLINE static void run(std::uint16_t const* from, float* to, std::size_t count) noexcept {
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = to_float(Format{from[i]});
    }
  };

  template <class Kernel, class From, class To>
  static void convert(From const* from, To* to, std::size_t count) noexcept {
    host_kernels::run<Kernel>(host_kernels::best_simd(), from, to, count);
  }

  /// Calls f(first, scratch) for blocks; the scratch has the block's size.
  template <class F>
  static void in_blocks(std::size_t count, F const& f) noexcept {
    std::array<std::uint16_t, block> bits;
    for (std::size_t at = 0; at < count; at += block) f(at, std::span{bits}.first(smaller(block, count - at)));
  }
};

/// IEEE 754 binary16: values between 6e-8 and 65504, with 11 significant bits from 6.1e-5 on. When not: for gradients
/// near either end, as without loss scaling; smaller values become 0 and stay in the residual.
using fp16 = half_values<float16>;

/// The upper half of binary32: its range with 8 significant bits. When not: if fp16's range, with 11 bits, suffices.
using bf16 = half_values<bfloat16>;

static_assert(value_codec<fp16> && value_codec<bf16>);

}  // namespace gradsieve
