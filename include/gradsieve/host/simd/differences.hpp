// Which elements of two arrays differ in their bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Marks of the first `count` elements of a block that differ; of Width bytes each.
template <std::size_t Width>
[[nodiscard]] GRADSIEVE_INLINE mark_word differing(std::byte const* a, std::byte const* b, std::size_t count) noexcept {
  mark_word marks = 0;
  for (std::size_t i = 0; i < count; ++i)
    marks |= mark_word{std::memcmp(a + i * Width, b + i * Width, Width) != 0 ? 1u : 0u} << i;
  return marks;
}

/// of(a, b): marks of a block's elements that differ.
template <simd Level, std::size_t Width>
struct block_difference {
  GRADSIEVE_INLINE static mark_word of(std::byte const* a, std::byte const* b) noexcept {
    std::uint64_t any = 0;
    for (std::size_t at = 0; at < block * Width; at += 8) {
      std::uint64_t in_a, in_b;
      __builtin_memcpy(&in_a, a + at, 8);
      __builtin_memcpy(&in_b, b + at, 8);
      any |= in_a ^ in_b;
    }
    return any == 0 ? 0 : differing<Width>(a, b, block);
  }
};

#if GRADSIEVE_X86
template <std::size_t Width>
struct block_difference<simd::avx2, Width> {
  GRADSIEVE_AVX2 static mark_word of(std::byte const* a, std::byte const* b) noexcept {
    std::array<std::uint32_t, 2> halves;
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i same[Width];  // all bits of a lane are equal
      for (std::size_t v = 0; v < Width; ++v) {
        auto const at = (half * Width + v) * 32;
        auto const in_a = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(a + at));
        auto const in_b = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(b + at));
        same[v] = Width == 1   ? _mm256_cmpeq_epi8(in_a, in_b)
                  : Width == 2 ? _mm256_cmpeq_epi16(in_a, in_b)
                               : _mm256_cmpeq_epi32(in_a, in_b);
      }
      halves[half] = ~static_cast<std::uint32_t>(_mm256_movemask_epi8(as_bytes(same)));
    }
    return halves[0] | mark_word{halves[1]} << 32;
  }

 private:
  /// One byte of each lane, in order.
  GRADSIEVE_AVX2 GRADSIEVE_INLINE static __m256i as_bytes(__m256i const* vectors) noexcept {
    if constexpr (Width == 1) {
      return vectors[0];
    } else if constexpr (Width == 2) {
      return _mm256_permute4x64_epi64(_mm256_packs_epi16(vectors[0], vectors[1]), 0b11'01'10'00);
    } else {
      auto const mixed =
          _mm256_packs_epi16(_mm256_packs_epi32(vectors[0], vectors[1]), _mm256_packs_epi32(vectors[2], vectors[3]));
      return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }
  }
};

template <std::size_t Width>
struct block_difference<simd::avx512, Width> {
  GRADSIEVE_AVX512 static mark_word of(std::byte const* a, std::byte const* b) noexcept {
    mark_word marks = 0;
    for (std::size_t v = 0; v < Width; ++v) {
      auto const in_a = _mm512_loadu_si512(a + v * 64);
      auto const in_b = _mm512_loadu_si512(b + v * 64);
      mark_word here;
      if constexpr (Width == 1)
        here = _mm512_cmpneq_epi8_mask(in_a, in_b);
      else if constexpr (Width == 2)
        here = _mm512_cmpneq_epi16_mask(in_a, in_b);
      else
        here = _mm512_cmpneq_epi32_mask(in_a, in_b);
      marks |= here << (v * (64 / Width));
    }
    return marks;
  }
};
#endif

/// Lists the elements that differ; with Update, `before` gets them. Returns their number. `to` has room for `count` and
/// a block more.
template <std::size_t Width, bool Update>
struct list_differences {
  using updated = std::conditional_t<Update, std::byte, std::byte const>;

  template <simd Level>
  GRADSIEVE_INLINE static std::size_t run(updated* before, std::byte const* after, std::size_t count,
                                          index_type* const to) noexcept {
    index_type* at = to;
    std::size_t i = 0;
    for (; i + block <= count; i += block, before += block * Width, after += block * Width) {
      prefetch(before, block * Width, Width * prefetch_ahead);  // mostly of the next section, if it is near
      prefetch(after, block * Width, Width * prefetch_ahead);
      auto const marks = block_difference<Level, Width>::of(before, after);
      if (marks == 0) continue;
      block_of<Level>::places(marks, static_cast<index_type>(i), at);
      at += count_marks(marks);
      if constexpr (Update) std::memcpy(before, after, block * Width);
    }
    auto const marks = differing<Width>(before, after, count - i);
    block_of<simd::portable>::places(marks, static_cast<index_type>(i), at);
    if constexpr (Update) std::memcpy(before, after, (count - i) * Width);
    return static_cast<std::size_t>(at - to) + count_marks(marks);
  }
};

}  // namespace gradsieve::host_kernels
