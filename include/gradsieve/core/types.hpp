// Numbers: the storage formats of gradients, and the integer key that orders them by magnitude.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/arithmetic.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// std::min by value, callable on a device.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T smaller(T a, T b) noexcept {
  return b < a ? b : a;
}

/// std::max by value, callable on a device.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr T larger(T a, T b) noexcept {
  return a < b ? b : a;
}

/// std::clamp by value, callable on a device. @pre low <= high
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T clamped(T x, T low, T high) noexcept {
  return x < low ? low : high < x ? high : x;
}

/// std::bit_width, callable on a device. Cost: O(width) on a host.
[[nodiscard]] GRADSIEVE_HD constexpr unsigned bit_width(std::uint32_t x) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) return 32 - static_cast<unsigned>(__clz(static_cast<int>(x)));
#endif
  unsigned width = 0;
  for (; x != 0; x >>= 1) ++width;
  return width;
}

/// Position of an element in a gradient. A compressor holds fewer than 2^32 of them.
using index_type = std::uint32_t;

/// The bits of |x| as an unsigned integer, in the same order as the magnitudes, subnormals included; both zeros give 0,
/// infinity `infinite_key`, every NaN more. Unlike a float comparison it does not depend on flush-to-zero or fast-math,
/// so every pass of a step decides alike.
using key_type = std::uint32_t;

/// The key of infinity; larger keys belong to NaNs.
inline constexpr key_type infinite_key = 0x7F80'0000u;

/// The next key; there is none above the last one.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr key_type key_above(key_type key) noexcept {
  return key + (key != ~key_type{0} ? 1u : 0u);
}

/// Key of |x|.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr key_type magnitude_key(float const& x) noexcept {
  return detail::opaque_bits(x) & 0x7FFF'FFFFu;
}

/// The magnitude that has this key.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float magnitude_of(key_type key) noexcept {
  return gradsieve::bit_cast<float>(key);
}

namespace detail {

/// A magnitude as significand * 2^(exponent - 150).
struct magnitude_parts {
  std::uint32_t significand;  ///< below 2^24
  unsigned exponent;          ///< from 1
};
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr magnitude_parts parts_of(key_type key) noexcept {
  unsigned const field = key >> 23;
  return {(key & 0x007F'FFFFu) | (field == 0 ? 0u : 0x0080'0000u), field == 0 ? 1u : field};
}

/// magnitude_key(x) < limit, for a limit of at most infinity. On a device one comparison of floats, whatever the flags.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr bool is_below(float const& x, key_type limit) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    int below = 0;
    asm("{.reg .pred p; .reg .f32 a; abs.f32 a, %1; setp.lt.f32 p, a, %2; selp.s32 %0, 1, 0, p;}"
        : "=r"(below)
        : "f"(x), "f"(__uint_as_float(limit)));
    return below != 0;
  }
#endif
  return magnitude_key(x) < limit;
}

}  // namespace detail

/// False for NaN and both infinities.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr bool is_finite(float const& x) noexcept {
  return detail::is_below(x, infinite_key);
}

/// False for NaN and both infinities. For checks of input, not for loops over elements.
[[nodiscard]] GRADSIEVE_HD inline bool is_finite(double const& x) noexcept {
  return (stored_bits(x) & 0x7FFF'FFFF'FFFF'FFFFu) < 0x7FF0'0000'0000'0000u;
}

/// |x|, on host and device.
[[nodiscard]] GRADSIEVE_HD constexpr float abs(float x) noexcept {
  return gradsieve::bit_cast<float>(magnitude_key(x));
}

/// |magnitude| with the sign of x.
[[nodiscard]] GRADSIEVE_HD constexpr float with_sign_of(float x, float magnitude) noexcept {
  return gradsieve::bit_cast<float>(magnitude_key(magnitude) | (gradsieve::bit_cast<std::uint32_t>(x) & 0x8000'0000u));
}

/// IEEE 754 binary16 as storage: 1 sign, 5 exponent and 10 fraction bits. Arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;  ///< the stored value
  friend bool operator==(float16, float16) = default;
};

/// The upper half of a binary32 as storage: 1 sign, 8 exponent and 7 fraction bits.
struct bfloat16 {
  std::uint16_t bits = 0;  ///< the stored value
  friend bool operator==(bfloat16, bfloat16) = default;
};

[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float to_float(float x) noexcept { return x; }  ///< x itself

/// The value as a float. Exact, subnormals and NaN payloads included.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float to_float(bfloat16 x) noexcept {
  return detail::opaque_float(static_cast<std::uint32_t>(x.bits) << 16);
}

/// The value as a float. Exact, even if the processor flushes subnormals. On a device NaN payloads may differ.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float to_float(float16 x) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    float converted;
    asm("cvt.f32.f16 %0, %1;" : "=f"(converted) : "h"(x.bits));
    return converted;
  }
#endif
  // No subnormal operand or result, so that flush-to-zero has no effect; no branch, so that loops vectorise.
  constexpr std::uint32_t rebias = 0x3800'0000u;           // from exponent bias 15 to 127
  constexpr std::uint32_t smallest_normal = 0x3880'0000u;  // 2^-14, as binary32
  std::uint32_t const magnitude = (x.bits & 0x7FFFu) << 13;
  std::uint32_t const sign = (x.bits & 0x8000u) << 16;
  // A subnormal is the fraction of 2^-14 * (1 + fraction), minus 2^-14.
  std::uint32_t const subnormal = gradsieve::bit_cast<std::uint32_t>(
      gradsieve::bit_cast<float>(smallest_normal | magnitude) - gradsieve::bit_cast<float>(smallest_normal));
  std::uint32_t const finite = magnitude >= 0x0080'0000u ? magnitude + rebias : subnormal;
  std::uint32_t const special = magnitude | infinite_key;
  return detail::opaque_float(sign | (magnitude >= 0x0F80'0000u ? special : finite));
}

/// A float rounded to the nearest value of a storage format, ties to even; NaN stays NaN.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T from_float(float const& x) noexcept;

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float from_float<float>(float const& x) noexcept {
  return x;
}

// No branches, so that loops over them vectorise.
template <>
[[nodiscard]] GRADSIEVE_HD constexpr bfloat16 from_float<bfloat16>(float const& x) noexcept {
  auto const bits = detail::opaque_bits(x);
  std::uint32_t const rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  return {static_cast<std::uint16_t>(magnitude_key(x) > infinite_key ? (bits >> 16) | 0x40u : rounded)};
}

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float16 from_float<float16>(float const& x) noexcept {
  constexpr key_type smallest_normal = 0x3880'0000u;  // 2^-14
  constexpr key_type beyond = 0x4780'0000u;           // 65536 and larger become infinity
  std::uint32_t const sign = (gradsieve::bit_cast<std::uint32_t>(x) >> 16) & 0x8000u;
  key_type const key = magnitude_key(x);
  // Below 2^-14 one float addition rounds at the last bit of a subnormal.
  float const least = gradsieve::bit_cast<float>(key < smallest_normal ? key : smallest_normal);
  std::uint32_t const subnormal = gradsieve::bit_cast<std::uint32_t>(add(least, 0.5f)) - 0x3F00'0000u;
  std::uint32_t const normal = (key + 0x0FFFu + ((key >> 13) & 1u) - 0x3800'0000u) >> 13;
  std::uint32_t const finite = key < smallest_normal ? subnormal : normal;
  std::uint32_t const special = key > infinite_key ? 0x7E00u : 0x7C00u;
  return {static_cast<std::uint16_t>(sign | (key >= beyond ? special : finite))};
}

/// The largest finite value of a format.
template <class T>
inline constexpr float largest_value = gradsieve::bit_cast<float>(infinite_key - 1);
template <>
inline constexpr float largest_value<float16> = 65504;
template <>
inline constexpr float largest_value<bfloat16> = gradsieve::bit_cast<float>(0x7F7F'0000u);

/// Key of the first float that rounds to infinity.
template <class T>
inline constexpr key_type overflow_key = infinite_key;
template <>
inline constexpr key_type overflow_key<float16> = magnitude_key(largest_value<float16>) + 0x1000u;
template <>
inline constexpr key_type overflow_key<bfloat16> = magnitude_key(largest_value<bfloat16>) + 0x8000u;

/// True if a finite value would round to infinity.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr bool exceeds(float const& x) noexcept {
  if constexpr (std::same_as<T, float>) return false;
  return magnitude_key(x) >= overflow_key<T> && magnitude_key(x) < infinite_key;
}

/// As from_float(), but a finite value that is too large becomes the largest finite one.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T from_float_saturated(float const& x) noexcept {
  return from_float<T>(exceeds<T>(x) ? with_sign_of(x, largest_value<T>) : x);
}

/// A float rounded to a residual's format: away from zero if the dropped bits exceed 2^16 - 1 - `noise`, otherwise
/// towards zero. Noise that is uniform below 2^16 rounds without bias; 2^15 rounds to the nearest. Finite values stay
/// finite, and representable values do not change.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T to_stored(float const& x, std::uint32_t noise = 0x8000u) noexcept;

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float to_stored<float>(float const& x, std::uint32_t) noexcept {
  return x;
}

template <>
[[nodiscard]] GRADSIEVE_HD constexpr bfloat16 to_stored<bfloat16>(float const& x, std::uint32_t noise) noexcept {
  auto const bits = detail::opaque_bits(x);
  bool const fits = detail::is_below(x, 0x7F7F'0000u);  // the largest, infinity and NaN keep their upper half
  return {static_cast<std::uint16_t>((fits ? bits + noise : bits) >> 16)};
}

/// A format in which gradients may arrive. Values on the wire and sums are binary32.
template <class T>
concept gradient_value = std::same_as<T, float> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// The state of a residual store for one element: N floats.
template <std::size_t N>
struct element_state {
  float value[N];  ///< state 0 is the accumulator

  [[nodiscard]] GRADSIEVE_HD static constexpr std::size_t size() noexcept { return N; }  ///< N
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float& operator[](std::size_t s) noexcept { return value[s]; }
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float const& operator[](std::size_t s) const noexcept {
    return value[s];
  }
};

}  // namespace gradsieve
