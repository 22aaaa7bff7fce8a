// A block's new state: looked at before it takes the place of the old one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/intrinsics.hpp>
#include <gradsieve/host/simd/marks.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Copies `size` elements, a part of a block, and marks those whose key is at least `least`, if all are finite; else
/// copies none and returns false. In one look at each, so that a compiler which has just computed them keeps them in
/// registers: as many as there is room for.
template <simd Level>
struct store_finite {
  static constexpr std::size_t size = block;
  GRADSIEVE_INLINE static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    if (max_key(from, block) >= infinite_key) return false;
    marks = block_of<Level>::at_least(from, least);
    std::copy_n(from, block, to);
    return true;
  }
};

#if GRADSIEVE_X86
template <>
struct store_finite<simd::avx2> {
  static constexpr std::size_t size = 32;
  GRADSIEVE_AVX2 static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    auto const below = _mm256_set1_epi32(static_cast<std::int32_t>(smaller(least, key_type{1} << 31) - 1));
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto most = _mm256_setzero_si256();
    __m256i held[size / 8];
    __m256i over[size / 8];
    for (std::size_t v = 0; v < size / 8; ++v) {
      held[v] = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + 8 * v));
      auto const key = _mm256_and_si256(held[v], magnitude);
      most = _mm256_max_epi32(most, key);
      over[v] = _mm256_cmpgt_epi32(key, below);
    }
    auto const order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    auto const mixed = _mm256_packs_epi16(_mm256_packs_epi32(over[0], over[1]), _mm256_packs_epi32(over[2], over[3]));
    marks = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(mixed, order)));
    auto const beyond = _mm256_cmpgt_epi32(most, _mm256_set1_epi32(static_cast<std::int32_t>(infinite_key - 1)));
    if (_mm256_movemask_epi8(beyond) != 0) [[unlikely]]
      return false;
    for (std::size_t v = 0; v < size / 8; ++v) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8 * v), held[v]);
    return true;
  }
};

template <>
struct store_finite<simd::avx512> {
  static constexpr std::size_t size = block;
  GRADSIEVE_AVX512 static bool run(float const* from, float* to, key_type least, mark_word& marks) noexcept {
    auto const low = _mm512_set1_epi32(static_cast<int>(least));
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto most = _mm512_setzero_si512();
    __m512i held[block / 16];
    __mmask16 over[block / 16];
    for (std::size_t v = 0; v < block / 16; ++v) {
      held[v] = _mm512_loadu_si512(from + 16 * v);
      auto const key = _mm512_and_si512(held[v], magnitude);
      most = _mm512_maskz_max_epi32(0xFFFF, most, key);
      over[v] = _mm512_cmpge_epu32_mask(key, low);
    }
    marks = _mm512_kunpackd(_mm512_kunpackw(over[3], over[2]), _mm512_kunpackw(over[1], over[0]));
    if (_mm512_cmpge_epi32_mask(most, _mm512_set1_epi32(static_cast<int>(infinite_key))) != 0) [[unlikely]]
      return false;
    for (std::size_t v = 0; v < block / 16; ++v) _mm512_storeu_si512(to + 16 * v, held[v]);
    return true;
  }
};
#endif

}  // namespace gradsieve::host_kernels
