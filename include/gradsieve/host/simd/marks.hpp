// Blocks of elements: which of them reach a key, as one bit each, and packing those. Only this, `half_block`,
// `store_finite`, `widening`, `line_of_means` and stream.hpp are written for each instruction set.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>

#if GRADSIEVE_X86
#include <immintrin.h>
#elif GRADSIEVE_NEON
#include <arm_neon.h>
#endif

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Elements of a block; bits of a mark_word.
inline constexpr std::size_t block = 64;
using mark_word = std::uint64_t;

/// The lowest `count` bits; all if count >= 64.
[[nodiscard]] GRADSIEVE_INLINE constexpr mark_word first_marks(std::size_t count) noexcept {
  return count < block ? (mark_word{1} << count) - 1 : ~mark_word{0};
}

/// Number of set bits; lowest_mark(): position of the lowest one. @pre lowest_mark: one is set
[[nodiscard]] GRADSIEVE_INLINE std::size_t count_marks(mark_word marks) noexcept {
#if defined(__GNUC__)
  return static_cast<std::size_t>(__builtin_popcountll(marks));
#else
  return static_cast<std::size_t>(std::popcount(marks));
#endif
}
[[nodiscard]] GRADSIEVE_INLINE std::size_t lowest_mark(mark_word marks) noexcept {
#if defined(__GNUC__)
  return static_cast<std::size_t>(__builtin_ctzll(marks));
#else
  return static_cast<std::size_t>(std::countr_zero(marks));
#endif
}

[[nodiscard]] GRADSIEVE_INLINE key_type max_key(float const* values, std::size_t count) noexcept {
  std::int32_t largest = 0;  // keys fit 31 bits, and signed maxima vectorise everywhere
  for (std::size_t i = 0; i < count; ++i)
    largest = larger(largest, static_cast<std::int32_t>(magnitude_key(values[i])));
  return static_cast<key_type>(largest);
}

/// max_key() of the first `count` elements of a block, all of which may be read: a constant loop count needs no
/// remainder loop, which in short bins would be half the work.
[[nodiscard]] GRADSIEVE_INLINE key_type max_key_in_block(float const* values, std::size_t count) noexcept {
  auto const end = static_cast<std::int32_t>(count);
  std::int32_t largest = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(block); ++i)
    largest = larger(largest, i < end ? static_cast<std::int32_t>(magnitude_key(values[i])) : 0);
  return static_cast<key_type>(largest);
}

/// Marks of up to a block's elements whose key is at least `least`.
[[nodiscard]] GRADSIEVE_INLINE mark_word marks_of(float const* values, std::size_t count, key_type least) noexcept {
  mark_word found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= mark_word{magnitude_key(values[i]) >= least ? 1u : 0u} << i;
  return found;
}

/// Operations of an instruction set on the 64 elements of a block.
///   at_least(values, least)   marks those whose key is at least `least`
///   pack(marks, from, to)     writes the bits of the marked elements of `from`, contiguous
///   places(marks, first, to)  writes first + the position of each mark
/// The last two may overwrite up to a block behind `to`.
template <simd Level>
struct block_of {
  GRADSIEVE_INLINE static mark_word at_least(float const* values, key_type least) noexcept {
    return max_key(values, block) < least ? 0 : marks_of(values, block, least);
  }
  template <class From, class To>
  GRADSIEVE_INLINE static void pack(mark_word marks, From const* from, To* to) noexcept {
    for (; marks != 0; marks &= marks - 1) *to++ = gradsieve::bit_cast<To>(from[lowest_mark(marks)]);
  }
  GRADSIEVE_INLINE static void places(mark_word marks, index_type first, index_type* to) noexcept {
    for (; marks != 0; marks &= marks - 1) *to++ = first + static_cast<index_type>(lowest_mark(marks));
  }
};

#if GRADSIEVE_X86
/// The lanes of each 8-bit mask's set bits, then anything.
struct lane_table {
  std::uint32_t lanes[256][8]{};

  constexpr lane_table() noexcept {
    for (std::uint32_t mask = 0; mask < 256; ++mask) {
      std::size_t at = 0;
      for (std::uint32_t lane = 0; lane < 8; ++lane)
        if ((mask >> lane & 1u) != 0) lanes[mask][at++] = lane;
    }
  }
};
inline constexpr lane_table marked_lanes;

template <>
struct block_of<simd::avx2> {
  GRADSIEVE_AVX2 static mark_word at_least(float const* values, key_type least) noexcept {
    // Vector comparisons are signed: a key, which is below 2^31, is at least `least` if it is greater than this.
    auto const below = _mm256_set1_epi32(static_cast<std::int32_t>(smaller(least, key_type{1} << 31) - 1));
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    std::array<std::uint32_t, 2> halves;
    for (std::size_t half = 0; half < 2; ++half) {
      auto const* const from = reinterpret_cast<__m256i const*>(values + block / 2 * half);
      __m256i over[4];
      for (int v = 0; v < 4; ++v)
        over[v] = _mm256_cmpgt_epi32(_mm256_and_si256(_mm256_loadu_si256(from + v), magnitude), below);
      auto const mixed = _mm256_packs_epi16(_mm256_packs_epi32(over[0], over[1]), _mm256_packs_epi32(over[2], over[3]));
      halves[half] = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(mixed, order)));
    }
    return halves[0] | mark_word{halves[1]} << 32;
  }
  template <class From, class To>
  GRADSIEVE_AVX2 static void pack(mark_word marks, From const* from, To* to) noexcept {
    for (std::size_t v = 0; v < block / 8; ++v, marks >>= 8) {
      auto const order = lanes_of(marks & 0xFF);
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + 8 * v));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(held, order));
      to += count_marks(marks & 0xFF);
    }
  }
  GRADSIEVE_AVX2 static void places(mark_word marks, index_type first, index_type* to) noexcept {
    for (std::size_t v = 0; v < block / 8; ++v, marks >>= 8) {
      auto const here = _mm256_set1_epi32(static_cast<int>(first + 8 * static_cast<index_type>(v)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi32(here, lanes_of(marks & 0xFF)));
      to += count_marks(marks & 0xFF);
    }
  }

 private:
  GRADSIEVE_AVX2 GRADSIEVE_INLINE static __m256i lanes_of(mark_word byte) noexcept {
    return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(marked_lanes.lanes[byte]));
  }
};

template <>
struct block_of<simd::avx512> {
  GRADSIEVE_AVX512 static mark_word at_least(float const* values, key_type least) noexcept {
    auto const low = _mm512_set1_epi32(static_cast<int>(least));
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    __mmask16 over[4];
    for (int v = 0; v < 4; ++v)
      over[v] = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_loadu_si512(values + 16 * v), magnitude), low);
    return _mm512_kunpackd(_mm512_kunpackw(over[3], over[2]), _mm512_kunpackw(over[1], over[0]));
  }
  template <class From, class To>
  GRADSIEVE_AVX512 static void pack(mark_word marks, From const* from, To* to) noexcept {
    for (std::size_t v = 0; v < block / 16; ++v, marks >>= 16) {
      // Through a register: compressing to memory is slow on some processors.
      auto const held = _mm512_loadu_si512(from + 16 * v);
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(marks), held));
      to += count_marks(marks & 0xFFFF);
    }
  }
  GRADSIEVE_AVX512 static void places(mark_word marks, index_type first, index_type* to) noexcept {
    auto lanes = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                                  _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    for (std::size_t v = 0; v < block / 16; ++v, marks >>= 16) {
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(static_cast<__mmask16>(marks), lanes));
      lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(16));
      to += count_marks(marks & 0xFFFF);
    }
  }
};
#elif GRADSIEVE_NEON
/// The bytes of each 4-bit mask's set lanes, then anything.
struct lane_table {
  std::uint8_t bytes[16][16]{};

  constexpr lane_table() noexcept {
    for (std::uint32_t mask = 0; mask < 16; ++mask) {
      std::size_t at = 0;
      for (std::uint32_t lane = 0; lane < 4; ++lane)
        for (std::uint32_t byte = 0; byte < 4 && (mask >> lane & 1u) != 0; ++byte)
          bytes[mask][at++] = static_cast<std::uint8_t>(4 * lane + byte);
    }
  }
};
inline constexpr lane_table marked_lanes;

template <>
struct block_of<simd::neon> {
  static mark_word at_least(float const* values, key_type least) noexcept {
    constexpr std::array<std::uint8_t, 16> bits{1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    auto const weights = vld1q_u8(bits.data());
    auto const low = vdupq_n_u32(least);
    uint8x16_t found[4];
    for (std::size_t part = 0; part < 4; ++part) {
      uint16x8_t over[4];  // all bits of a lane are equal
      for (std::size_t v = 0; v < 4; ++v) {
        auto const held = vreinterpretq_u32_f32(vld1q_f32(values + 16 * part + 4 * v));
        over[v] = vreinterpretq_u16_u32(vcgeq_u32(vandq_u32(held, vdupq_n_u32(0x7FFF'FFFF)), low));
      }
      auto const first = vreinterpretq_u8_u16(vuzp1q_u16(over[0], over[1]));
      auto const second = vreinterpretq_u8_u16(vuzp1q_u16(over[2], over[3]));
      found[part] = vandq_u8(vuzp1q_u8(first, second), weights);
    }
    auto const pairs = vpaddq_u8(vpaddq_u8(found[0], found[1]), vpaddq_u8(found[2], found[3]));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(pairs, pairs)), 0);
  }
  template <class From, class To>
  static void pack(mark_word marks, From const* from, To* to) noexcept {
    for (std::size_t v = 0; v < block / 4; ++v, marks >>= 4) {
      auto const held = vld1q_u8(reinterpret_cast<std::uint8_t const*>(from + 4 * v));
      vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vqtbl1q_u8(held, bytes_of(marks & 0xF)));
      to += count_marks(marks & 0xF);
    }
  }
  static void places(mark_word marks, index_type first, index_type* to) noexcept {
    constexpr std::array<std::uint32_t, 4> steps{0, 1, 2, 3};
    auto lanes = vaddq_u32(vdupq_n_u32(first), vld1q_u32(steps.data()));
    for (std::size_t v = 0; v < block / 4; ++v, marks >>= 4) {
      auto const here = vqtbl1q_u8(vreinterpretq_u8_u32(lanes), bytes_of(marks & 0xF));
      vst1q_u32(to, vreinterpretq_u32_u8(here));
      lanes = vaddq_u32(lanes, vdupq_n_u32(4));
      to += count_marks(marks & 0xF);
    }
  }

 private:
  static uint8x16_t bytes_of(mark_word nibble) noexcept { return vld1q_u8(marked_lanes.bytes[nibble]); }
};
#endif

}  // namespace gradsieve::host_kernels
