// Values in 2, 4 or 8 bits, with one power of two for each block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/simd.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Integers of a few bits with a shared power of two: values are q * 2^(e - 149), with an integer |q| < 2^(Bits - 1)
/// for each value, rounded to the nearest, ties to even; one exponent e in [0, 255] for each block, the smallest that
/// holds the block's largest magnitude. Bits per value: Bits + 8 / block. The largest error is between 1 / (2 m) and 1
/// / m of the block's largest magnitude, m = 2^(Bits - 1) - 1; the residual keeps it. Integer arithmetic: compiler
/// flags do not matter, and rounding again changes nothing. See `int8`, `int4`, `int2`.
/// When not: with `index_union` and `leader`, which sum values one by one and refuse it at compile time; `int2`,
/// whose values are -s, 0 and s, without a residual.
/// Payload: a byte e for each block of `block` entries, in order; then all q + 2^(Bits - 1) - 1 in Bits bits each,
/// the first in the lowest, padded with zero bits to a byte.
/// Cost: two passes over the values to encode, two to decode.
/// Source: block formats with a shared exponent (OCP Microscaling 2023), with integer elements.
template <unsigned Bits>
struct block_scaled {
  static_assert(Bits == 2 || Bits == 4 || Bits == 8, "block_scaled has 2, 4 or 8 bits a value");
  static constexpr char const* name = Bits == 2 ? "int2" : Bits == 4 ? "int4" : "int8";
  static constexpr auto fields() { return std::tuple{field<&block_scaled::block>{"block", between(1, 65536)}}; }
  static constexpr std::uint16_t id = Bits == 2 ? 7 : Bits == 4 ? 6 : 5;
  std::uint32_t block = 64;  ///< entries that share an exponent, in [1, 65536]

  /// The largest value that it can represent; see limited_codec.
  [[nodiscard]] static constexpr float largest() noexcept { return value_of(2 * most, 255); }

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return wire::block_count(count, block) + wire::packed_bytes(count, Bits);
  }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return 8 / Bits * bytes; }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return max_bytes(indices.size());
  }

  void quantise(message_info const&, std::span<index_type const>, std::span<float> values) const noexcept {
    std::array<std::uint32_t, group> some;
    std::uint32_t exponent = 0;
    for_each_part(values.size(), [&](std::size_t at, std::size_t size) {
      if (at % block == 0) exponent = exponent_of(values.subspan(at, smaller<std::size_t>(block, values.size() - at)));
      run<to_codes>(std::as_const(values).data() + at, some.data(), size, exponent);
      run<to_values>(some.data(), values.data() + at, size, exponent);
    });
  }

  void encode(message_info const&, std::span<index_type const>, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    auto const codes = to.subspan(wire::block_count(values.size(), block));
    std::array<std::uint32_t, group> some;
    std::uint32_t exponent = 0;
    for_each_part(values.size(), [&](std::size_t at, std::size_t size) {
      if (at % block == 0) {
        exponent = exponent_of(values.subspan(at, smaller<std::size_t>(block, values.size() - at)));
        to[at / block] = static_cast<std::byte>(exponent);
      }
      run<to_codes>(values.data() + at, some.data() + at % group, size, exponent);
      std::size_t const end = at + size;
      std::size_t const first = at / group * group;
      if (end == first + group || end == values.size())
        wire::pack({some.data(), end - first}, Bits, codes.subspan(first * Bits / 8));
    });
  }

  void decode(message_info const&, std::span<index_type const>, std::span<std::byte const> from,
              std::span<float> values) const {
    auto const codes = from.subspan(wire::block_count(values.size(), block));
    std::array<std::uint32_t, group> some;
    for_each_part(values.size(), [&](std::size_t at, std::size_t size) {
      if (at % group == 0)
        wire::unpack(codes.subspan(at * Bits / 8), Bits, {some.data(), smaller(group, values.size() - at)});
      auto const exponent = std::to_integer<std::uint32_t>(from[at / block]);
      auto const largest = run<to_values>(some.data() + at % group, values.data() + at, size, exponent);
      wire::expect(largest <= 2 * most, "value in a block", largest, "at most ", 2 * most);
    });
    wire::expect(wire::padding_is_zero(codes, values.size(), Bits), "padding of values", 1, "", 0);
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {  // a block has exactly one encoding
      auto const is = std::to_integer<std::uint32_t>(from[b]);
      auto const least = exponent_of(wire::block_of(values, b, block));
      wire::expect(least == is, "exponent of a block", is, "", least);
    }
  }

  // The block format, which a device writes and reads: see device_block_values.
  /// @cond internal

  static constexpr unsigned scale_bytes = 1;
  [[nodiscard]] GRADSIEVE_HD static constexpr unsigned width() noexcept { return Bits; }

  /// The exponent of a block.
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t scale_of(key_type largest_key) noexcept {
    auto const [mantissa, scale] = detail::parts_of(largest_key);
    unsigned const size = bit_width(mantissa);
    unsigned shift = size < Bits ? 0 : size - (Bits - 1);
    if (mantissa > most << shift) ++shift;
    return smaller(shift + scale - 1, 255u);
  }

  /// q + most, where q is x / 2^(exponent - 149), rounded to the nearest; at most `most` in magnitude.
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t code_of(float x, index_type,
                                                                    std::uint32_t exponent) noexcept {
    auto const [mantissa, scale] = detail::parts_of(magnitude_key(x));
    std::uint32_t rounded = most;  // x is beyond the largest value
    if (exponent + 1 >= scale) {
      unsigned const shift = smaller(exponent + 1 - scale, 26u);
      std::uint32_t const half = shift == 0 ? 0 : (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1u);
      rounded = smaller((mantissa + half) >> shift, most);
    }
    return (gradsieve::bit_cast<std::uint32_t>(x) >> 31) != 0 ? most - rounded : most + rounded;
  }

  /// q * 2^(exponent - 149), exact. @pre is_code(code, 0, exponent)
  [[nodiscard]] GRADSIEVE_HD static constexpr float value_of(std::uint32_t code, std::uint32_t exponent) noexcept {
    auto const q = static_cast<std::int32_t>(code) - static_cast<std::int32_t>(most);
    auto const magnitude = static_cast<std::uint32_t>(q < 0 ? -q : q);
    auto const units = gradsieve::bit_cast<std::uint32_t>(static_cast<float>(q));
    std::uint32_t const normal = units + ((exponent - 149u) << 23);          // a power-of-two product: no rounding
    std::uint32_t const least = exponent < 23 ? 1u << (23 - exponent) : 1u;  // the smallest that gives a normal number
    std::uint32_t const below = 0u - (magnitude < least ? 1u : 0u);          // a mask, as GCC compiles ?: to branches
    std::uint32_t const subnormal = magnitude << smaller(exponent, 22u) | (units & 0x8000'0000u);
    return gradsieve::bit_cast<float>((subnormal & below) | (normal & ~below));
  }

  [[nodiscard]] GRADSIEVE_HD static constexpr bool is_code(std::uint32_t code, index_type, std::uint32_t) noexcept {
    return code <= 2 * most;
  }
  /// True if this code can be the largest of a block with this exponent: a smaller exponent would not hold it.
  [[nodiscard]] GRADSIEVE_HD static constexpr bool fills(std::uint32_t code, std::uint32_t exponent) noexcept {
    return exponent == 0 || 2 * magnitude_of_code(code) > most;
  }
  /// @endcond

  friend bool operator==(block_scaled const&, block_scaled const&) = default;

 private:
  static constexpr std::uint32_t most = (1u << (Bits - 1)) - 1;  // of q
  static constexpr std::size_t group = 128;                      // codes packed at once, which end at a byte

  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t magnitude_of_code(std::uint32_t code) noexcept {
    return code < most ? most - code : code - most;
  }

  [[nodiscard]] static std::uint32_t exponent_of(std::span<float const> values) noexcept {
    return scale_of(wire::largest_key(values));
  }

  /// Calls f(first, size) for parts of the values that lie in one block and one group each, in order.
  template <class F>
  void for_each_part(std::size_t count, F const& f) const {
    for (std::size_t at = 0, size = 0; at < count; at += size) {
      size = smaller(smaller<std::size_t>(block - at % block, group - at % group), count - at);
      f(at, size);
    }
  }

  struct to_codes {
    template <simd>
    GRADSIEVE_INLINE static void run(float const* from, std::uint32_t* to, std::size_t count,
                                     std::uint32_t exponent) noexcept {
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) to[i] = code_of(from[i], 0, exponent);
    }
  };
  /// Returns the largest code.
  struct to_values {
    template <simd>
    GRADSIEVE_INLINE static std::uint32_t run(std::uint32_t const* from, float* to, std::size_t count,
                                              std::uint32_t exponent) noexcept {
      std::uint32_t largest = 0;
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) {
        largest = larger(largest, from[i]);
        to[i] = value_of(from[i], exponent);
      }
      return largest;
    }
  };
  template <class Kernel, class From, class To>
  static auto run(From const* from, To* to, std::size_t count, std::uint32_t exponent) noexcept {
    return host_kernels::run<Kernel>(host_kernels::best_simd(), from, to, count, exponent);
  }
};

/// 8.125 bits per value in blocks of 64.
using int8 = block_scaled<8>;
/// 4.125 bits per value in blocks of 64.
using int4 = block_scaled<4>;
/// 2.125 bits per value in blocks of 64: -s, 0 or s.
using int2 = block_scaled<2>;

static_assert(value_codec<int8> && value_codec<int4> && value_codec<int2>);

}  // namespace gradsieve
