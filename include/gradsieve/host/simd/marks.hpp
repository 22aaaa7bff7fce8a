// Which elements of a tile are kept, as one bit each: found bin by bin, appended all together.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/simd.hpp>

namespace gradsieve::host_kernels {

/// Bits of 64 elements each.
using mark_word = std::uint64_t;
static_assert(block == 64);

/// Words for the marks of `count` elements: what mark_scores and append_marked read and write.
[[nodiscard]] constexpr std::size_t mark_words(std::size_t count) noexcept { return (count + 512) / 512 * 8 + 1; }

/// Sets the bits `at` and following to those of `found`. @pre these were 0
GRADSIEVE_INLINE void put_marks(mark_word* marks, std::size_t at, mark_word found) noexcept {
  marks[at / block] |= found << (at % block);
  marks[at / block + 1] |= found >> 1 >> (block - 1 - at % block);
}

/// The lowest `count` bits, all from 64 on.
[[nodiscard]] GRADSIEVE_INLINE mark_word first_marks(std::size_t count) noexcept {
  return count < block ? (mark_word{1} << count) - 1 : ~mark_word{0};
}

/// Marks those of `count` elements whose score's key is at least `least`; the first of them has bit `at`. Of the scores
/// `readable` >= count may be read.
template <simd Level>
struct mark_scores {
  static void run(float const* scores, std::size_t count, std::size_t, key_type least, std::size_t at,
                  mark_word* marks) noexcept {
    for (std::size_t begin = 0; begin < count; begin += block) {
      std::size_t const size = std::min(block, count - begin);
      if (max_key(scores + begin, size) < least) continue;
      mark_word found = 0;
      for (std::size_t i = 0; i < size; ++i)
        found |= mark_word{magnitude_key(scores[begin + i]) >= least ? 1u : 0u} << i;
      put_marks(marks, at + begin, found);
    }
  }
};

#if GRADSIEVE_X86
template <>
struct mark_scores<simd::avx2> {
  GRADSIEVE_AVX2 static void run(float const* scores, std::size_t count, std::size_t readable, key_type least,
                                 std::size_t at, mark_word* marks) noexcept {
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const below = _mm256_set1_epi32(signed_below(least));
    std::size_t i = 0;
    for (; i < count && i + block <= readable; i += block) {
      mark_word found = 0;
      for (std::size_t v = 0; v < block / 8; ++v) {
        auto const score = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(scores + i + 8 * v));
        auto const over = _mm256_cmpgt_epi32(_mm256_and_si256(score, magnitude), below);
        auto const mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(over)));
        found |= mark_word{mask} << (8 * v);
      }
      put_marks(marks, at + i, found & first_marks(count - i));
    }
    if (i < count) mark_scores<simd::portable>::run(scores + i, count - i, 0, least, at + i, marks);
  }
};

template <>
struct mark_scores<simd::avx512> {
  GRADSIEVE_AVX512 static void run(float const* scores, std::size_t count, std::size_t readable, key_type least,
                                   std::size_t at, mark_word* marks) noexcept {
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const lower = _mm512_set1_epi32(static_cast<int>(least));
    std::size_t i = 0;
    for (; i < count && i + block <= readable; i += block) {
      mark_word found = 0;
      for (std::size_t v = 0; v < block / 16; ++v) {
        auto const key = _mm512_and_si512(_mm512_loadu_si512(scores + i + 16 * v), magnitude);
        found |= mark_word{_mm512_cmpge_epu32_mask(key, lower)} << (16 * v);
      }
      put_marks(marks, at + i, found & first_marks(count - i));
    }
    if (i < count) mark_scores<simd::portable>::run(scores + i, count - i, 0, least, at + i, marks);
  }
};
#endif

/// Appends the marked elements of a tile, but for zeros, and takes the marks back.
template <simd Level>
struct append_marked {
  static void run(float const* values, std::size_t count, index_type first, mark_word* marks,
                  candidate_list& list) noexcept {
    for (std::size_t begin = 0; begin < count; begin += block, ++marks) {
      for (mark_word found = *marks; found != 0; found &= found - 1) {
        std::size_t const i = begin + static_cast<std::size_t>(std::countr_zero(found));
        list.indices[list.count] = first + static_cast<index_type>(i);
        list.values[list.count] = values[i];
        list.count += magnitude_key(values[i]) != 0 ? 1u : 0u;
      }
      *marks = 0;
    }
  }
};

#if GRADSIEVE_X86
template <>
struct append_marked<simd::avx512> {
  /// No branch depends on how many elements of a vector are marked: it is the one thing that cannot be predicted.
  GRADSIEVE_AVX512 static void run(float const* values, std::size_t count, index_type first, mark_word* marks,
                                   candidate_list& list) noexcept {
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    auto* indices = list.indices + list.count;
    auto* kept = list.values + list.count;
    for (std::size_t begin = 0; begin < count; begin += 512, marks += 8) {
      auto const all = _mm512_loadu_si512(marks);
      for (auto found = _mm512_test_epi16_mask(all, all); found != 0; found &= found - 1) {
        auto const v = static_cast<std::size_t>(std::countr_zero(found));
        auto const marked = static_cast<__mmask16>(marks[v / 4] >> (v % 4 * 16));
        auto const value = _mm512_maskz_loadu_ps(marked, values + begin + 16 * v);
        auto const mask = _mm512_test_epi32_mask(_mm512_castps_si512(value), magnitude);
        auto const here = _mm512_set1_epi32(static_cast<int>(first + static_cast<index_type>(begin + 16 * v)));
        _mm512_storeu_si512(indices, _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(here, lanes)));
        _mm512_storeu_ps(kept, _mm512_maskz_compress_ps(mask, value));
        auto const more = std::popcount(static_cast<std::uint32_t>(mask));
        indices += more;
        kept += more;
      }
      _mm512_storeu_si512(marks, _mm512_setzero_si512());
    }
    list.count = static_cast<std::uint64_t>(indices - list.indices);
  }
};
#endif

}  // namespace gradsieve::host_kernels
