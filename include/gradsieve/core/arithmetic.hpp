// Arithmetic whose bits do not depend on flags (-ffast-math, -ffp-contract=fast, --use_fast_math) or the processor.
#pragma once

#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// std::bit_cast, but callable on a device without a flag to its compiler.
template <class To, class From>
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr To bit_cast(From const& from) noexcept {
  return __builtin_bit_cast(To, from);
}

namespace detail {

#if !GRADSIEVE_HAS_ASSOC_BARRIER
/// A zero that the compiler does not know: bits XORed with it are unknown to the compiler, and loops still vectorise.
[[nodiscard]] inline std::uint32_t make_unknown_zero() noexcept {
  std::uint32_t zero = 0;
#if defined(__GNUC__)
  __asm__("" : "+r"(zero));
#endif
  return zero;
}
inline std::uint32_t const unknown_zero = make_unknown_zero();
#endif

/// The bits of x, about which the compiler assumes nothing. With -ffast-math or -ffinite-math-only clang assumes that
/// no argument, result or sum is NaN or infinite, and removes checks of bits that contradict it; every such test begins
/// here. x is a reference, as clang assumes nothing about a float in memory.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr std::uint32_t opaque_bits(float const& x) noexcept {
  auto const bits = gradsieve::bit_cast<std::uint32_t>(x);
#if GRADSIEVE_FINITE_MATH
  if (!__builtin_is_constant_evaluated()) return bits ^ unknown_zero;
#endif
  return bits;
}

/// The float with these bits, about which the compiler assumes nothing.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float opaque_float(std::uint32_t bits) noexcept {
#if GRADSIEVE_FINITE_MATH
  if (!__builtin_is_constant_evaluated()) bits ^= unknown_zero;
#endif
  return gradsieve::bit_cast<float>(bits);
}

}  // namespace detail

/// The bits of x, read back from memory: for input; loops over elements use opaque_bits().
[[nodiscard]] GRADSIEVE_HD inline std::uint64_t stored_bits(double const& x) noexcept {
  std::uint64_t const volatile bits = gradsieve::bit_cast<std::uint64_t>(x);
  return bits;
}

// ---- binary32 ----------------------------------------------------------------------------------------------

/// a + b, rounded to the nearest whatever the flags of the build: all ranks, builds and spaces get the same bits.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float add(float a, float b) noexcept {
  GRADSIEVE_EXACT
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
  }
#endif
  return a + b;
}

/// a - b, rounded as by add().
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float subtract(float a, float b) noexcept {
  GRADSIEVE_EXACT
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {  // not add(a, -b): with --use_fast_math a negation flushes subnormals
    float difference;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
    return difference;
  }
#endif
  return gradsieve::add(a, -b);
}

/// a * b, rounded as by add(). With GCC vectorised products may still be fused, except in GRADSIEVE_UNFUSED functions.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float multiply(float a, float b) noexcept {
  GRADSIEVE_EXACT
  if (__builtin_is_constant_evaluated()) return a * b;
#if defined(__CUDA_ARCH__)
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
#elif GRADSIEVE_HAS_ASSOC_BARRIER
  return __builtin_assoc_barrier(a * b);
#else
  return gradsieve::bit_cast<float>(gradsieve::bit_cast<std::uint32_t>(a * b) ^ detail::unknown_zero);
#endif
}

/// a * b + c, with two roundings.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float multiply_add(float a, float b, float c) noexcept {
  return gradsieve::add(gradsieve::multiply(a, b), c);
}

/// a / b, rounded as by add(); with GCC only in GRADSIEVE_PRECISE functions.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float divide(float a, float b) noexcept {
  GRADSIEVE_EXACT
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    float quotient;
    asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
    return quotient;
  }
#endif
  return a / b;
}

// ---- from binary32 to binary64 and back --------------------------------------------------------------------

/// x as a double: exact, subnormals too, which --use_fast_math flushes in a plain conversion.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr double widened(float x) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    double wide;
    asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(x));
    return wide;
  }
#endif
  return static_cast<double>(x);
}

/// x rounded to the nearest float, subnormals too.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr float narrowed(double x) noexcept {
#if defined(__CUDA_ARCH__)
  if (!__builtin_is_constant_evaluated()) {
    float rounded;
    asm("cvt.rn.f32.f64 %0, %1;" : "=f"(rounded) : "d"(x));
    return rounded;
  }
#endif
  return static_cast<float>(x);
}

// ---- binary64 ----------------------------------------------------------------------------------------------

/// a / b, rounded to the nearest; with GCC only in GRADSIEVE_PRECISE functions.
[[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD constexpr double divide(double a, double b) noexcept {
  GRADSIEVE_EXACT
  return a / b;
}

/// Operations that round to the nearest, one by one, in any function of any build. Decisions that all ranks share use
/// these and whole numbers. Each goes through memory, so they are for numbers of layers, not of elements.
namespace exact {

/// x, read back from memory: nothing is fused, reordered or approximated across it.
[[nodiscard]] GRADSIEVE_HD inline double opaque(double x) noexcept {
  double const volatile kept = x;
  return kept;
}
/// a + b
[[nodiscard]] GRADSIEVE_HD inline double add(double a, double b) noexcept {
  GRADSIEVE_EXACT
  return opaque(opaque(a) + opaque(b));
}
/// a - b
[[nodiscard]] GRADSIEVE_HD inline double subtract(double a, double b) noexcept {
  GRADSIEVE_EXACT
  return opaque(opaque(a) - opaque(b));
}
/// a * b
[[nodiscard]] GRADSIEVE_HD inline double multiply(double a, double b) noexcept {
  GRADSIEVE_EXACT
  return opaque(opaque(a) * opaque(b));
}
/// a / b
[[nodiscard]] GRADSIEVE_HD inline double divide(double a, double b) noexcept {
  GRADSIEVE_EXACT
  return opaque(opaque(a) / opaque(b));
}

}  // namespace exact

namespace detail {

/// sum += x, in the order of the calls whatever the flags. Numbers, or vectors of them.
template <class Number>
GRADSIEVE_INLINE void add_in_order(Number& sum, Number const& x) noexcept {
#if GRADSIEVE_HAS_ASSOC_BARRIER
  sum = __builtin_assoc_barrier(sum + x);
#else
#if defined(__clang__)
#pragma clang fp reassociate(off)
#endif
  sum += x;
#endif
}

}  // namespace detail

}  // namespace gradsieve
