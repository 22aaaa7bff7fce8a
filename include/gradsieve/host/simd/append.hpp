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
/// cache lines of its own, as every group writes its count: beside another worker's a step of 2^20 elements takes 1.7
/// times as long.
struct alignas(128) candidate_list {
  index_type* indices = nullptr;
  float* values = nullptr;
  std::uint64_t count = 0;
  std::uint64_t capacity = 0;

  /// Whether it takes no more.
  [[nodiscard]] bool full() const noexcept { return count > capacity; }
};

/// Elements that are tested together before any of them is looked at.
inline constexpr std::size_t block = 64;

/// Elements that one call appends at most: as many as a list has room for behind its capacity.
inline constexpr std::size_t group = 4 * block;

[[nodiscard]] GRADSIEVE_INLINE key_type max_key(float const* values, std::size_t count) noexcept {
  std::int32_t largest = 0;  // keys fit 31 bits, and signed maxima vectorise everywhere
  for (std::size_t i = 0; i < count; ++i)
    largest = std::max(largest, static_cast<std::int32_t>(magnitude_key(values[i])));
  return static_cast<key_type>(largest);
}

/// For vectors that compare signed numbers only: the key of an element, which is below 2^31, is at least
/// `candidate_threshold` if and only if it is greater than this, whatever `candidate_threshold` is.
[[nodiscard]] constexpr std::int32_t signed_below(key_type candidate_threshold) noexcept {
  return static_cast<std::int32_t>(std::min(candidate_threshold, key_type{1} << 31) - 1);
}

/// Appends the elements of a group (at most `group` of them) whose key is at least `candidate_threshold`.
template <simd Level>
struct append_group {
  static std::uint64_t run(float const* values, std::size_t count, index_type first, key_type candidate_threshold,
                           index_type* indices, float* kept) noexcept {
    std::uint64_t at = 0;
    for (std::size_t begin = 0; begin < count; begin += block) {
      std::size_t const end = std::min(begin + block, count);
      if (max_key(values + begin, end - begin) < candidate_threshold) continue;
      for (std::size_t i = begin; i < end; ++i) {
        indices[at] = first + static_cast<index_type>(i);
        kept[at] = values[i];
        at += magnitude_key(values[i]) >= candidate_threshold ? 1u : 0u;
      }
    }
    return at;
  }
};

#if GRADSIEVE_X86
/// For every 8-bit mask the lanes of its set bits, then anything.
inline constexpr auto compress_lanes = [] {
  std::array<std::array<std::uint32_t, 8>, 256> table{};
  for (std::uint32_t mask = 0; mask < 256; ++mask) {
    std::size_t at = 0;
    for (std::uint32_t lane = 0; lane < 8; ++lane)
      if ((mask >> lane & 1u) != 0) table[mask][at++] = lane;
  }
  return table;
}();

template <>
struct append_group<simd::avx2> {
  GRADSIEVE_AVX2 static std::uint64_t run(float const* values, std::size_t count, index_type first,
                                          key_type candidate_threshold, index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm256_set1_epi32(0x7FFF'FFFF);
    auto const below = _mm256_set1_epi32(signed_below(candidate_threshold));
    auto const eight = _mm256_set1_epi32(8);
    std::uint64_t at = 0;
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
      __m256 held[block / 8];  // arrays of vectors: std::array would drop their alignment attribute
      auto largest = _mm256_setzero_si256();
      for (std::size_t v = 0; v < block / 8; ++v) {
        held[v] = _mm256_loadu_ps(values + i + 8 * v);
        largest = _mm256_max_epi32(largest, _mm256_and_si256(_mm256_castps_si256(held[v]), magnitude));
      }
      if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(largest, below)) == 0) continue;
      auto lane = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first + static_cast<index_type>(i))),
                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
      for (std::size_t v = 0; v < block / 8; ++v) {
        auto const over = _mm256_cmpgt_epi32(_mm256_and_si256(_mm256_castps_si256(held[v]), magnitude), below);
        auto const mask = static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(over)));
        auto const order = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(compress_lanes[mask].data()));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(indices + at), _mm256_permutevar8x32_epi32(lane, order));
        _mm256_storeu_ps(kept + at, _mm256_permutevar8x32_ps(held[v], order));
        at += static_cast<std::uint64_t>(std::popcount(mask));
        lane = _mm256_add_epi32(lane, eight);
      }
    }
    return at + append_group<simd::portable>::run(values + i, count - i, first + static_cast<index_type>(i),
                                                  candidate_threshold, indices + at, kept + at);
  }
};

/// Signed keys in the compiler's own vectors: GCC 12 warns of its own header's maximum.
using keys16 [[gnu::vector_size(64)]] = std::int32_t;

template <>
struct append_group<simd::avx512> {
  GRADSIEVE_AVX512 static std::uint64_t run(float const* values, std::size_t count, index_type first,
                                            key_type candidate_threshold, index_type* indices, float* kept) noexcept {
    auto const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
    auto const least = _mm512_set1_epi32(static_cast<int>(candidate_threshold));
    auto const sixteen = _mm512_set1_epi32(16);
    std::uint64_t at = 0;
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
      __m512 held[block / 16];
      keys16 largest{};
      for (std::size_t v = 0; v < block / 16; ++v) {
        held[v] = _mm512_loadu_ps(values + i + 16 * v);
        auto const key = reinterpret_cast<keys16>(_mm512_and_si512(_mm512_castps_si512(held[v]), magnitude));
        largest = key > largest ? key : largest;
      }
      if (_mm512_cmpge_epu32_mask(reinterpret_cast<__m512i>(largest), least) == 0) continue;
      auto lane = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first + static_cast<index_type>(i))),
                                   _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
      for (std::size_t v = 0; v < block / 16; ++v) {  // to a register first: the memory form is slow on some
        auto const mask = _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(held[v]), magnitude), least);
        _mm512_storeu_si512(indices + at, _mm512_maskz_compress_epi32(mask, lane));
        _mm512_storeu_ps(kept + at, _mm512_maskz_compress_ps(mask, held[v]));
        at += static_cast<std::uint64_t>(std::popcount(static_cast<std::uint32_t>(mask)));
        lane = _mm512_add_epi32(lane, sixteen);
      }
    }
    return at + append_group<simd::portable>::run(values + i, count - i, first + static_cast<index_type>(i),
                                                  candidate_threshold, indices + at, kept + at);
  }
};
#endif

/// The same for elements that have their indices beside them.
template <simd Level>
struct pack_block {
  static std::uint64_t run(float const* values, index_type const* from, key_type candidate_threshold,
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
      at += static_cast<std::uint64_t>(std::popcount(static_cast<std::uint32_t>(mask)));
    }
    return at;
  }
};
#endif

/// Writes the keys of a block (at most `block` of them) that lie in [low, high], and adds up those above.
template <simd Level>
struct split_block {
  static std::uint64_t run(float const* values, std::size_t count, key_type low, key_type high, key_type* inside,
                           std::uint64_t& above) noexcept {
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
      at += static_cast<std::uint64_t>(std::popcount(static_cast<std::uint32_t>(in)));
      above += static_cast<std::uint64_t>(std::popcount(static_cast<std::uint32_t>(over)));
    }
    return at;
  }
};
#endif

/// Appends the elements whose key is at least `candidate_threshold`; `first` is the index of values[0].
template <simd Level>
GRADSIEVE_INLINE void append(float const* values, std::size_t count, std::uint64_t first, key_type candidate_threshold,
                             candidate_list& list) noexcept {
  for (std::size_t begin = 0; begin < count && !list.full(); begin += group)
    list.count +=
        append_group<Level>::run(values + begin, std::min(group, count - begin), static_cast<index_type>(first + begin),
                                 candidate_threshold, list.indices + list.count, list.values + list.count);
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
          split_block<Level>::run(values + i, std::min(block, count - i), low, high, out + found.inside, found.above);
    }
    return found;
  }
};

}  // namespace gradsieve::host_kernels
