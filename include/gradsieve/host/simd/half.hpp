// float16 to float and back by the processor's own instructions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// A block of float16 as floats, and back. Both return false, with an unspecified result, if the instructions may
/// convert a value differently from to_float() and from_float_saturated(): infinities, NaN, and what would round to
/// infinity. Other values get the same bits, whatever the thread's subnormal mode. Rounding to nearest: on NEON by the
/// mode (float_environment), on x86 by the instruction.
template <simd Level>
struct half_block {
  GRADSIEVE_INLINE static bool widen(float16 const*, float*) noexcept { return false; }
  GRADSIEVE_INLINE static bool narrow(float const*, float16*) noexcept { return false; }
};

/// The largest finite float16.
inline constexpr std::int16_t most_half = 0x7BFF;

#if GRADSIEVE_X86
template <>
struct half_block<simd::avx2> {
  GRADSIEVE_AVX2 static bool widen(float16 const* from, float* to) noexcept {
    auto most = _mm_setzero_si128();
    for (std::size_t i = 0; i < block; i += 8) {
      auto const held = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i));
      most = _mm_max_epi16(most, _mm_and_si128(held, _mm_set1_epi16(0x7FFF)));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(held));
    }
    return _mm_movemask_epi8(_mm_cmpgt_epi16(most, _mm_set1_epi16(most_half))) == 0;
  }
  GRADSIEVE_AVX2 static bool narrow(float const* from, float16* to) noexcept {
    auto most = _mm256_setzero_si256();
    for (std::size_t i = 0; i < block; i += 8) {
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i));
      most = _mm256_max_epi32(most, _mm256_and_si256(held, _mm256_set1_epi32(0x7FFF'FFFF)));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm256_cvtps_ph(_mm256_castsi256_ps(held), _MM_FROUND_TO_NEAREST_INT));
    }
    return _mm256_movemask_epi8(
               _mm256_cmpgt_epi32(most, _mm256_set1_epi32(static_cast<int>(overflow_key<float16> - 1)))) == 0;
  }
};

template <>
struct half_block<simd::avx512> {
  GRADSIEVE_AVX512 static bool widen(float16 const* from, float* to) noexcept {
    auto most = _mm256_setzero_si256();
    for (std::size_t i = 0; i < block; i += 16) {
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i));
      most = _mm256_max_epi16(most, _mm256_and_si256(held, _mm256_set1_epi16(0x7FFF)));
      _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(0xFFFF, held));
    }
    return _mm256_movemask_epi8(_mm256_cmpgt_epi16(most, _mm256_set1_epi16(most_half))) == 0;
  }
  GRADSIEVE_AVX512 static bool narrow(float const* from, float16* to) noexcept {
    auto most = _mm512_setzero_si512();
    for (std::size_t i = 0; i < block; i += 16) {
      auto const held = _mm512_loadu_si512(from + i);
      most = _mm512_maskz_max_epi32(0xFFFF, most, _mm512_and_si512(held, _mm512_set1_epi32(0x7FFF'FFFF)));
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(to + i),
          _mm512_maskz_cvtps_ph(0xFFFF, _mm512_castsi512_ps(held), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return _mm512_cmpge_epi32_mask(most, _mm512_set1_epi32(static_cast<int>(overflow_key<float16>))) == 0;
  }
};
#elif GRADSIEVE_NEON
template <>
struct half_block<simd::neon> {
  static bool widen(float16 const* from, float* to) noexcept {
    auto most = vdupq_n_u16(0);
    for (std::size_t i = 0; i < block; i += 8) {
      auto const held = vld1q_u16(reinterpret_cast<std::uint16_t const*>(from + i));
      most = vmaxq_u16(most, vandq_u16(held, vdupq_n_u16(0x7FFF)));
      auto const halves = vreinterpretq_f16_u16(held);
      vst1q_f32(to + i, vcvt_f32_f16(vget_low_f16(halves)));
      vst1q_f32(to + i + 4, vcvt_high_f32_f16(halves));
    }
    return vmaxvq_u16(most) <= static_cast<std::uint16_t>(most_half);
  }
  static bool narrow(float const* from, float16* to) noexcept {
    auto most = vdupq_n_u32(0);
    for (std::size_t i = 0; i < block; i += 4) {
      auto const held = vld1q_f32(from + i);
      most = vmaxq_u32(most, vandq_u32(vreinterpretq_u32_f32(held), vdupq_n_u32(0x7FFF'FFFF)));
      vst1_u16(reinterpret_cast<std::uint16_t*>(to + i), vreinterpret_u16_f16(vcvt_f16_f32(held)));
    }
    return vmaxvq_u32(most) < overflow_key<float16>;
  }
};
#endif

/// A block of gradients for an elementwise loop: float16 as floats in `widened`, other formats in place.
template <simd Level, class T>
[[nodiscard]] GRADSIEVE_INLINE auto readable(T const* from, float* widened) noexcept {
  if constexpr (std::same_as<T, float16> && Level != simd::portable) {
    if (!half_block<Level>::widen(from, widened)) [[unlikely]]
      for (std::size_t i = 0; i < block; ++i) widened[i] = to_float(from[i]);
    return static_cast<float const*>(widened);
  } else {
    static_cast<void>(widened);
    return from;
  }
}

/// from_float() of a float whose key is below overflow_key<T>.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE T rounded(float const& x) noexcept {
  if constexpr (std::same_as<T, bfloat16>) {
    auto const bits = gradsieve::bit_cast<std::uint32_t>(x);
    return {static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
  } else {
    return from_float<T>(x);
  }
}

/// from_float_saturated() of at most a block. Returns how many were clamped.
template <simd Level, class T>
GRADSIEVE_INLINE std::uint32_t narrow(float const* from, T* to, std::size_t count) noexcept {
  if constexpr (std::same_as<T, float16> && Level != simd::portable)
    if (count == block && half_block<Level>::narrow(from, to)) [[likely]]
      return 0;
  if (max_key(from, count) < overflow_key<T>) [[likely]] {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = rounded<T>(from[i]);
    return 0;
  }
  std::uint32_t saturated = 0;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = from_float_saturated<T>(from[i]);
    saturated += exceeds<T>(from[i]) ? 1u : 0u;
  }
  return saturated;
}

}  // namespace gradsieve::host_kernels
