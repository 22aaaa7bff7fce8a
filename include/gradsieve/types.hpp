// Numbers: the storage formats of gradients, the integer key that orders them by magnitude, and the little arithmetic
// that a device has no standard library for.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <gradsieve/config.hpp>

namespace gradsieve {

/// std::bit_cast, but callable on a device without a flag to its compiler.
template <class To, class From>
[[nodiscard]] GRADSIEVE_HD constexpr To bit_cast(From const& from) noexcept {
  return __builtin_bit_cast(To, from);
}

/// std::min, std::max, std::clamp and std::bit_width, callable on a device likewise; by value.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T smaller(T a, T b) noexcept {
  return b < a ? b : a;
}

template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T larger(T a, T b) noexcept {
  return a < b ? b : a;
}

/// @pre low <= high
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T clamped(T x, T low, T high) noexcept {
  return x < low ? low : high < x ? high : x;
}

/// Cost: O(width).
[[nodiscard]] GRADSIEVE_HD constexpr unsigned bit_width(std::uint32_t x) noexcept {
  unsigned width = 0;
  for (; x != 0; x >>= 1) ++width;
  return width;
}

/// Position of an element in a gradient. A compressor holds fewer than 2^32 of them.
using index_type = std::uint32_t;

/// The bits of |x| as an unsigned integer: orders floats exactly as their magnitudes, subnormals included;
/// both zeros give 0, infinity `infinite_key`, every NaN more than that. Unlike a float comparison it is not
/// changed by flush-to-zero or fast-math, so every pass of a step decides alike.
using key_type = std::uint32_t;

inline constexpr key_type infinite_key = 0x7F80'0000u;

/// Key of |x|.
[[nodiscard]] GRADSIEVE_HD constexpr key_type magnitude_key(float x) noexcept {
  return gradsieve::bit_cast<std::uint32_t>(x) & 0x7FFF'FFFFu;
}

/// The magnitude that has this key.
[[nodiscard]] GRADSIEVE_HD constexpr float magnitude_of(key_type key) noexcept {
  return gradsieve::bit_cast<float>(key);
}

/// False for NaN and for both infinities; not optimised away by -ffinite-math-only.
[[nodiscard]] GRADSIEVE_HD constexpr bool is_finite(float x) noexcept { return magnitude_key(x) < infinite_key; }

/// The bits of x, read back from memory. With -ffast-math clang assumes that no argument and no result is NaN or
/// infinite, and folds checks of their bits that it can see through. For checks of input, not for loops over elements.
[[nodiscard]] GRADSIEVE_HD inline std::uint64_t stored_bits(double x) noexcept {
  std::uint64_t const volatile bits = gradsieve::bit_cast<std::uint64_t>(x);
  return bits;
}

/// The same as of a float, for checks of input.
[[nodiscard]] GRADSIEVE_HD inline bool is_finite(double x) noexcept {
  return (stored_bits(x) & 0x7FFF'FFFF'FFFF'FFFFu) < 0x7FF0'0000'0000'0000u;
}

/// |x|, as bits; usable on host and device alike.
[[nodiscard]] GRADSIEVE_HD constexpr float abs(float x) noexcept {
  return gradsieve::bit_cast<float>(magnitude_key(x));
}

/// |magnitude| with the sign of x.
[[nodiscard]] GRADSIEVE_HD constexpr float with_sign_of(float x, float magnitude) noexcept {
  return gradsieve::bit_cast<float>(magnitude_key(magnitude) | (gradsieve::bit_cast<std::uint32_t>(x) & 0x8000'0000u));
}

/// IEEE 754 binary16 as storage: 1 sign, 5 exponent and 10 fraction bits. Arithmetic is done in float.
struct float16 {
  std::uint16_t bits = 0;
  friend bool operator==(float16, float16) = default;
};

/// The upper half of a binary32 as storage: 1 sign, 8 exponent and 7 fraction bits.
struct bfloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(bfloat16, bfloat16) = default;
};

[[nodiscard]] GRADSIEVE_HD constexpr float to_float(float x) noexcept { return x; }

/// Exact, subnormals and NaN payloads included.
[[nodiscard]] GRADSIEVE_HD constexpr float to_float(bfloat16 x) noexcept {
  return gradsieve::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

/// Exact, subnormals included. No branch, so that loops over it vectorise: the exponent is moved from bias 15
/// to bias 127 by one multiplication, which also normalises subnormals.
[[nodiscard]] GRADSIEVE_HD constexpr float to_float(float16 x) noexcept {
  std::uint32_t const magnitude = static_cast<std::uint32_t>(x.bits & 0x7FFFu) << 13;
  std::uint32_t const sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  std::uint32_t const finite = gradsieve::bit_cast<std::uint32_t>(gradsieve::bit_cast<float>(magnitude) * 0x1p112f);
  std::uint32_t const special = magnitude | infinite_key;
  return gradsieve::bit_cast<float>(sign | (magnitude >= 0x0F80'0000u ? special : finite));
}

/// A float rounded to the nearest value of a storage format, ties to even; NaN stays NaN.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T from_float(float x) noexcept;

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float from_float<float>(float x) noexcept {
  return x;
}

template <>
[[nodiscard]] GRADSIEVE_HD constexpr bfloat16 from_float<bfloat16>(float x) noexcept {
  auto const bits = gradsieve::bit_cast<std::uint32_t>(x);
  if (magnitude_key(x) > infinite_key) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float16 from_float<float16>(float x) noexcept {
  auto const sign = static_cast<std::uint16_t>((gradsieve::bit_cast<std::uint32_t>(x) >> 16) & 0x8000u);
  key_type const key = magnitude_key(x);
  if (key > infinite_key) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  if (key >= 0x4780'0000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // 65536 and more: infinity
  std::uint32_t rounded = 0;
  if (key < 0x3880'0000u) {  // below 2^-14: let one float addition round at the subnormal's last bit
    rounded = gradsieve::bit_cast<std::uint32_t>(gradsieve::bit_cast<float>(key) + 0.5f) - 0x3F00'0000u;
  } else {
    rounded = (key + 0x0FFFu + ((key >> 13) & 1u) - 0x3800'0000u) >> 13;
  }
  return {static_cast<std::uint16_t>(sign | rounded)};
}

/// A float in the format of a residual: the two values around it, the one away from zero where the bits that go exceed
/// 2^16 - 1 - `noise`. Equally distributed noise below 2^16 makes the mean exact; 2^15 rounds to the nearest. What is
/// finite stays finite, and what the format can hold stays as it is.
template <class T>
[[nodiscard]] GRADSIEVE_HD constexpr T to_stored(float x, std::uint32_t noise = 0x8000u) noexcept;

template <>
[[nodiscard]] GRADSIEVE_HD constexpr float to_stored<float>(float x, std::uint32_t) noexcept {
  return x;
}

template <>
[[nodiscard]] GRADSIEVE_HD constexpr bfloat16 to_stored<bfloat16>(float x, std::uint32_t noise) noexcept {
  auto const bits = gradsieve::bit_cast<std::uint32_t>(x);
  std::uint32_t const carried = bits + noise;
  bool const overflows = (carried & 0x7FFF'FFFFu) >= infinite_key;  // infinity and NaN keep their upper half
  return {static_cast<std::uint16_t>((overflows ? bits : carried) >> 16)};
}

/// A format in which gradients may arrive. Values on the wire and sums are binary32.
template <class T>
concept gradient_value = std::same_as<T, float> || std::same_as<T, float16> || std::same_as<T, bfloat16>;

/// What a residual store keeps of one element: N floats.
template <std::size_t N>
struct element_state {
  float value[N];

  [[nodiscard]] GRADSIEVE_HD static constexpr std::size_t size() noexcept { return N; }
  [[nodiscard]] GRADSIEVE_HD constexpr float& operator[](std::size_t s) noexcept { return value[s]; }
  [[nodiscard]] GRADSIEVE_HD constexpr float const& operator[](std::size_t s) const noexcept { return value[s]; }
};

/// a * b, rounded before anything is done with it.
[[nodiscard]] GRADSIEVE_HD constexpr float multiply(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#elif defined(__clang__)
#pragma clang fp contract(off)
  return a * b;
#elif defined(__GNUC__) && !defined(__CUDACC__)
  return __builtin_assoc_barrier(a * b);
#else
  return a * b;
#endif
}

/// a * b + c with two roundings on every machine: compilers may otherwise fuse it, and then host and device,
/// or two builds of one program, disagree in the last bit.
[[nodiscard]] GRADSIEVE_HD constexpr float multiply_add(float a, float b, float c) noexcept {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(a, b), c);
#elif defined(__clang__)
#pragma clang fp contract(off)
  return a * b + c;
#else
  return multiply(a, b) + c;
#endif
}

}  // namespace gradsieve
