// Keeping the few elements of a tile that reach a key: the inner loop that decides how near a step comes to the
// speed of memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/simd.hpp>

namespace gradsieve::host_kernels {

/// A growing, index-ordered list of one worker's candidates. Behind `capacity` there is room for one group more. On
/// cache lines of its own, as every block writes its count: beside another worker's a step of 2^20 elements takes 1.7
/// times as long.
struct alignas(128) candidate_list {
  index_type* indices = nullptr;
  float* values = nullptr;
  std::uint64_t count = 0;
  std::uint64_t capacity = 0;

  /// Whether it takes no more.
  [[nodiscard]] GRADSIEVE_INLINE bool full() const noexcept { return count > capacity; }
};

/// Elements that are tested together before any of them is looked at.
inline constexpr std::size_t block = 64;

/// Elements that a list has room for behind its capacity: what may be appended before it is looked at again.
inline constexpr std::size_t group = 4 * block;

[[nodiscard]] GRADSIEVE_INLINE key_type max_key(float const* values, std::size_t count) noexcept {
  std::int32_t largest = 0;  // keys fit 31 bits, and signed maxima vectorise everywhere
  for (std::size_t i = 0; i < count; ++i)
    largest = larger(largest, static_cast<std::int32_t>(magnitude_key(values[i])));
  return static_cast<key_type>(largest);
}

/// For vectors that compare signed numbers only: the key of an element, which is below 2^31, is at least
/// `candidate_threshold` if and only if it is greater than this, whatever `candidate_threshold` is.
[[nodiscard]] GRADSIEVE_INLINE constexpr std::int32_t signed_below(key_type candidate_threshold) noexcept {
  return static_cast<std::int32_t>(smaller(candidate_threshold, key_type{1} << 31) - 1);
}

/// Writes the elements of a block whose key is at least `candidate_threshold`, and what follows them in their vector.
/// `first` is the index of values[0]. Returns how many there are.
template <simd Level>
struct append_block {
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, index_type first, key_type candidate_threshold,
                                            index_type* indices, float* kept) noexcept {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < block; ++i) {
      indices[at] = first + static_cast<index_type>(i);
      kept[at] = values[i];
      at += magnitude_key(values[i]) >= candidate_threshold ? 1u : 0u;
    }
    return at;
  }
};

/// How many bits are set.
[[nodiscard]] GRADSIEVE_INLINE std::uint64_t bits_in(std::uint32_t mask) noexcept {
#if defined(__GNUC__)
  return static_cast<std::uint64_t>(__builtin_popcount(mask));
#else
  return static_cast<std::uint64_t>(std::popcount(mask));
#endif
}

#if GRADSIEVE_X86
/// For every 8-bit mask the lanes of its set bits, then anything.
struct compress_table {
  std::uint32_t lanes[256][8]{};

  constexpr compress_table() noexcept {
    for (std::uint32_t mask = 0; mask < 256; ++mask) {
      std::size_t at = 0;
      for (std::uint32_t lane = 0; lane < 8; ++lane)
        if ((mask >> lane & 1u) != 0) lanes[mask][at++] = lane;
    }
  }
};
inline constexpr compress_table compress_lanes;

/// Brings the lanes of a mask's bits to the front.
[[nodiscard]] GRADSIEVE_AVX2 GRADSIEVE_INLINE __m256i compressed(__m256i lanes, std::uint32_t mask) noexcept {
  auto const order = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(compress_lanes.lanes[mask]));
  return _mm256_permutevar8x32_epi32(lanes, order);
}

/// The lanes whose key is above `below`, one bit each.
[[nodiscard]] GRADSIEVE_AVX2 GRADSIEVE_INLINE std::uint32_t lanes_above(__m256i keys, __m256i below) noexcept {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(keys, below))));
}

template <>
struct append_block<simd::avx2> {
  GRADSIEVE_AVX2 static std::uint64_t run(float const* values, index_type first, key_type candidate_threshold,
                                          index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const below = _mm256_set1_epi32(signed_below(candidate_threshold));
    auto const eight = _mm256_set1_epi32(8);
    auto lane = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 8; ++v) {
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(values + 8 * v));
      auto const mask = lanes_above(_mm256_and_si256(held, magnitude), below);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices + at), compressed(lane, mask));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept + at), compressed(held, mask));
      at += bits_in(mask);
      lane = _mm256_add_epi32(lane, eight);
    }
    return at;
  }
};

template <>
struct append_block<simd::avx512> {
  GRADSIEVE_AVX512 static std::uint64_t run(float const* values, index_type first, key_type candidate_threshold,
                                            index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const least = _mm512_set1_epi32(static_cast<int>(candidate_threshold));
    auto const sixteen = _mm512_set1_epi32(16);
    auto lane = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                                 _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 16; ++v) {  // to a register first: the memory form is slow on some
      auto const held = _mm512_loadu_ps(values + 16 * v);
      auto const mask = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(held), magnitude), least);
      _mm512_storeu_si512(indices + at, _mm512_maskz_compress_epi32(mask, lane));
      _mm512_storeu_ps(kept + at, _mm512_maskz_compress_ps(mask, held));
      at += bits_in(mask);
      lane = _mm512_add_epi32(lane, sixteen);
    }
    return at;
  }
};
#elif GRADSIEVE_NEON
/// For every 4-bit mask the bytes of the lanes of its set bits, then anything.
struct compress_table {
  std::uint8_t bytes[16][16]{};

  constexpr compress_table() noexcept {
    for (std::uint32_t mask = 0; mask < 16; ++mask) {
      std::size_t at = 0;
      for (std::uint32_t lane = 0; lane < 4; ++lane)
        for (std::uint32_t byte = 0; byte < 4 && (mask >> lane & 1u) != 0; ++byte)
          bytes[mask][at++] = static_cast<std::uint8_t>(4 * lane + byte);
    }
  }
};
inline constexpr compress_table compress_lanes;

/// Brings the lanes of a mask's bits to the front.
[[nodiscard]] GRADSIEVE_INLINE uint32x4_t compressed(uint32x4_t lanes, std::uint32_t mask) noexcept {
  return vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(lanes), vld1q_u8(compress_lanes.bytes[mask])));
}

/// The lanes that a comparison holds for, one bit each.
[[nodiscard]] GRADSIEVE_INLINE std::uint32_t mask_of(uint32x4_t holds) noexcept {
  constexpr std::array<std::uint32_t, 4> bits{1, 2, 4, 8};
  return vaddvq_u32(vandq_u32(holds, vld1q_u32(bits.data())));
}

/// The bits of four values, and their keys.
[[nodiscard]] GRADSIEVE_INLINE uint32x4_t load_lanes(float const* values) noexcept {
  return vreinterpretq_u32_f32(vld1q_f32(values));
}
[[nodiscard]] GRADSIEVE_INLINE uint32x4_t keys_of(uint32x4_t lanes) noexcept {
  return vandq_u32(lanes, vdupq_n_u32(0x7FFF'FFFF));
}

template <>
struct append_block<simd::neon> {
  static std::uint64_t run(float const* values, index_type first, key_type candidate_threshold, index_type* indices,
                           float* kept) noexcept {
    constexpr std::array<std::uint32_t, 4> steps{0, 1, 2, 3};
    auto const least = vdupq_n_u32(candidate_threshold);
    auto lane = vaddq_u32(vdupq_n_u32(first), vld1q_u32(steps.data()));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 4; ++v) {
      auto const held = load_lanes(values + 4 * v);
      auto const mask = mask_of(vcgeq_u32(keys_of(held), least));
      vst1q_u32(indices + at, compressed(lane, mask));
      vst1q_f32(kept + at, vreinterpretq_f32_u32(compressed(held, mask)));
      at += bits_in(mask);
      lane = vaddq_u32(lane, vdupq_n_u32(4));
    }
    return at;
  }
};
#endif

/// Appends elements of a block, of which the largest has `largest` as its key, where it reaches `candidate_threshold`.
template <simd Level>
GRADSIEVE_INLINE void append_from_block(float const* values, std::uint64_t first, key_type largest,
                                        key_type candidate_threshold, candidate_list& list) noexcept {
  if (largest < candidate_threshold || list.full()) return;
  list.count += append_block<Level>::run(values, static_cast<index_type>(first), candidate_threshold,
                                         list.indices + list.count, list.values + list.count);
}

/// The same for elements that have their indices beside them.
template <simd Level>
struct pack_block {
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, index_type const* from, key_type candidate_threshold,
                                            index_type* indices, float* kept) noexcept {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < block; ++i) {
      indices[at] = from[i];
      kept[at] = values[i];
      at += magnitude_key(values[i]) >= candidate_threshold ? 1u : 0u;
    }
    return at;
  }
};

#if GRADSIEVE_X86
template <>
struct pack_block<simd::avx2> {
  GRADSIEVE_AVX2 static std::uint64_t run(float const* values, index_type const* from, key_type candidate_threshold,
                                          index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const below = _mm256_set1_epi32(signed_below(candidate_threshold));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 8; ++v) {
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(values + 8 * v));
      auto const index = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + 8 * v));
      auto const mask = lanes_above(_mm256_and_si256(held, magnitude), below);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices + at), compressed(index, mask));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(kept + at), compressed(held, mask));
      at += bits_in(mask);
    }
    return at;
  }
};

template <>
struct pack_block<simd::avx512> {
  GRADSIEVE_AVX512 static std::uint64_t run(float const* values, index_type const* from, key_type candidate_threshold,
                                            index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const least = _mm512_set1_epi32(static_cast<int>(candidate_threshold));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 16; ++v) {
      auto const value = _mm512_loadu_ps(values + 16 * v);
      auto const mask = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(value), magnitude), least);
      _mm512_storeu_si512(indices + at, _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(from + 16 * v)));
      _mm512_storeu_ps(kept + at, _mm512_maskz_compress_ps(mask, value));
      at += bits_in(mask);
    }
    return at;
  }
};
#elif GRADSIEVE_NEON
template <>
struct pack_block<simd::neon> {
  static std::uint64_t run(float const* values, index_type const* from, key_type candidate_threshold,
                           index_type* indices, float* kept) noexcept {
    auto const least = vdupq_n_u32(candidate_threshold);
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 4; ++v) {
      auto const held = load_lanes(values + 4 * v);
      auto const mask = mask_of(vcgeq_u32(keys_of(held), least));
      vst1q_u32(indices + at, compressed(vld1q_u32(from + 4 * v), mask));
      vst1q_f32(kept + at, vreinterpretq_f32_u32(compressed(held, mask)));
      at += bits_in(mask);
    }
    return at;
  }
};
#endif

/// Writes the keys of a block (at most `block` of them) that lie in [low, high], and adds up those above.
template <simd Level>
struct split_block {
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, std::size_t count, key_type low, key_type high,
                                            key_type* inside, std::uint64_t& above) noexcept {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      key_type const key = magnitude_key(values[i]);
      inside[at] = key;
      at += key - low <= high - low ? 1u : 0u;
      above += key > high ? 1u : 0u;
    }
    return at;
  }
};

#if GRADSIEVE_X86
template <>
struct split_block<simd::avx2> {
  GRADSIEVE_AVX2 static std::uint64_t run(float const* values, std::size_t count, key_type low, key_type high,
                                          key_type* inside, std::uint64_t& above) noexcept {
    if (count < block) return split_block<simd::portable>::run(values, count, low, high, inside, above);
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const below = _mm256_set1_epi32(signed_below(low));
    auto const most = _mm256_set1_epi32(signed_below(key_above(high)));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 8; ++v) {
      auto const held = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(values + 8 * v));
      auto const key = _mm256_and_si256(held, magnitude);
      auto const over = lanes_above(key, most);
      auto const in = lanes_above(key, below) & ~over;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(inside + at), compressed(key, in));
      at += bits_in(in);
      above += bits_in(over);
    }
    return at;
  }
};

template <>
struct split_block<simd::avx512> {
  GRADSIEVE_AVX512 static std::uint64_t run(float const* values, std::size_t count, key_type low, key_type high,
                                            key_type* inside, std::uint64_t& above) noexcept {
    if (count < block) return split_block<simd::portable>::run(values, count, low, high, inside, above);
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const least = _mm512_set1_epi32(static_cast<int>(low));
    auto const most = _mm512_set1_epi32(static_cast<int>(high));
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 16; ++v) {
      auto const key = _mm512_and_si512(_mm512_loadu_si512(values + 16 * v), magnitude);
      auto const over = _mm512_cmpgt_epu32_mask(key, most);
      auto const in = static_cast<__mmask16>(_mm512_cmpge_epu32_mask(key, least) & ~over);
      _mm512_storeu_si512(inside + at, _mm512_maskz_compress_epi32(in, key));
      at += bits_in(in);
      above += bits_in(over);
    }
    return at;
  }
};
#elif GRADSIEVE_NEON
template <>
struct split_block<simd::neon> {
  static std::uint64_t run(float const* values, std::size_t count, key_type low, key_type high, key_type* inside,
                           std::uint64_t& above) noexcept {
    if (count < block) return split_block<simd::portable>::run(values, count, low, high, inside, above);
    std::uint64_t at = 0;
    for (std::size_t v = 0; v < block / 4; ++v) {
      auto const key = keys_of(load_lanes(values + 4 * v));
      auto const over = mask_of(vcgtq_u32(key, vdupq_n_u32(high)));
      auto const in = mask_of(vcgeq_u32(key, vdupq_n_u32(low))) & ~over;
      vst1q_u32(inside + at, compressed(key, in));
      at += bits_in(in);
      above += bits_in(over);
    }
    return at;
  }
};
#endif

/// Appends the elements whose key is at least `candidate_threshold`; `first` is the index of values[0].
template <simd Level>
GRADSIEVE_INLINE void append(float const* values, std::size_t count, std::uint64_t first, key_type candidate_threshold,
                             candidate_list& list) noexcept {
  std::size_t i = 0;
  for (; i + block <= count; i += block)
    append_from_block<Level>(values + i, first + i, max_key(values + i, block), candidate_threshold, list);
  for (; i < count && !list.full(); ++i) {
    if (magnitude_key(values[i]) < candidate_threshold) continue;
    list.indices[list.count] = static_cast<index_type>(first + i);
    list.values[list.count++] = values[i];
  }
}

/// Counts the keys above `high` and writes those in [low, high] to `out`, at most `room` of them.
struct split_keys {
  struct result {
    std::uint64_t above = 0;
    std::uint64_t inside = 0;
    bool complete = true;
  };

  template <simd Level>
  GRADSIEVE_INLINE static result run(float const* values, std::size_t count, key_type low, key_type high, key_type* out,
                                     std::uint64_t room) noexcept {
    result found;
    for (std::size_t i = 0; i < count; i += block) {
      if (found.inside + block > room) return {found.above, found.inside, false};
      found.inside +=
          split_block<Level>::run(values + i, smaller(block, count - i), low, high, out + found.inside, found.above);
    }
    return found;
  }
};

}  // namespace gradsieve::host_kernels
