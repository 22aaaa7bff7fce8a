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

/// of(a, b): marks of a block's elements that differ; of Width bytes each.
template <simd Level, std::size_t Width>
struct block_difference {
  GRADSIEVE_INLINE static mark_word of(void const* a, void const* b) noexcept {
    if (std::memcmp(a, b, block * Width) == 0) return 0;
    mark_word marks = 0;
    for (std::size_t i = 0; i < block; ++i) {
      auto const place = [&](void const* of) { return static_cast<std::byte const*>(of) + i * Width; };
      marks |= mark_word{std::memcmp(place(a), place(b), Width) != 0 ? 1u : 0u} << i;
    }
    return marks;
  }
};

#if GRADSIEVE_X86
template <std::size_t Width>
struct block_difference<simd::avx2, Width> {
  GRADSIEVE_AVX2 static mark_word of(void const* a, void const* b) noexcept {
    std::array<std::uint32_t, 2> halves;
    for (std::size_t half = 0; half < 2; ++half) {
      __m256i same[4];  // all bits of a lane are equal
      for (std::size_t v = 0; v < Width; ++v) {
        auto const in_a = _mm256_loadu_si256(static_cast<__m256i const*>(a) + half * Width + v);
        auto const in_b = _mm256_loadu_si256(static_cast<__m256i const*>(b) + half * Width + v);
        same[v] = Width == 1   ? _mm256_cmpeq_epi8(in_a, in_b)
                  : Width == 2 ? _mm256_cmpeq_epi16(in_a, in_b)
                               : _mm256_cmpeq_epi32(in_a, in_b);
      }
      auto bytes = same[0];  // one of each lane, in order
      if constexpr (Width == 2) {
        bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(same[0], same[1]), 0b11'01'10'00);
      } else if constexpr (Width == 4) {
        bytes = _mm256_packs_epi16(_mm256_packs_epi32(same[0], same[1]), _mm256_packs_epi32(same[2], same[3]));
        bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
      }
      halves[half] = ~static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
    }
    return halves[0] | mark_word{halves[1]} << 32;
  }
};

template <std::size_t Width>
struct block_difference<simd::avx512, Width> {
  GRADSIEVE_AVX512 static mark_word of(void const* a, void const* b) noexcept {
    mark_word marks = 0;
    for (std::size_t v = 0; v < Width; ++v) {
      auto const in_a = _mm512_loadu_si512(static_cast<__m512i const*>(a) + v);
      auto const in_b = _mm512_loadu_si512(static_cast<__m512i const*>(b) + v);
      mark_word const here = Width == 1   ? _mm512_cmpneq_epi8_mask(in_a, in_b)
                             : Width == 2 ? _mm512_cmpneq_epi16_mask(in_a, in_b)
                                          : _mm512_cmpneq_epi32_mask(in_a, in_b);
      marks |= here << (v * (64 / Width));
    }
    return marks;
  }
};
#endif

/// Lists the elements that differ, and their new values; `before` gets these, unless it is const. Returns their number.
/// `to` and `values` have room for `count` and a block more.
template <class Before>
struct list_differences {
  using value = std::remove_const_t<Before>;

  template <simd Level>
  GRADSIEVE_INLINE static std::size_t run(Before* before, value const* after, std::size_t count, index_type* to,
                                          value* values) noexcept {
    std::size_t found = 0, i = 0;
    auto const take = [&](auto few, mark_word marks, std::size_t first, value const* now, std::size_t size)
                          GRADSIEVE_LAMBDA_INLINE {
                            append<few()>(marks, first, now, to + found, values + found);
                            found += count_marks(marks);
                            if constexpr (!std::is_const_v<Before>)
                              __builtin_memcpy(static_cast<void*>(before + first), now, size * sizeof(value));
                          };
    std::integral_constant<std::size_t, few_in_block> const few;
    std::integral_constant<std::size_t, few_in_dense_block> const more;
    mark_word marks[strip];
    std::size_t changed[strip];
    for (std::size_t blocks = 0; i + block <= count; i += blocks * block) {
      blocks = smaller(strip, (count - i) / block);
      std::size_t some = 0;
      for (std::size_t b = 0; b < blocks; ++b) {
        marks[b] = block_difference<Level, sizeof(value)>::of(before + i + b * block, after + i + b * block);
        changed[some] = b;
        some += marks[b] != 0 ? 1 : 0;
      }
      auto const list = [&](auto usual) GRADSIEVE_LAMBDA_INLINE {
        for (std::size_t c = 0; c < some; ++c) {
          prefetch(before + i, block, (strip + c) * block);  // as many blocks of the next strip
          prefetch(after + i, block, (strip + c) * block);
          auto const first = i + changed[c] * block;
          take(usual, marks[changed[c]], first, after + first, block);
        }
      };
      if (4 * some < 3 * strip)
        list(few);
      else
        list(more);
    }
    value last[2][block]{};
    for (std::size_t j = 0; i + j < count; ++j) last[0][j] = before[i + j], last[1][j] = after[i + j];
    take(more, block_difference<Level, sizeof(value)>::of(last[0], last[1]), i, last[1], count - i);
    return found;
  }

 private:
  static constexpr std::size_t strip = 32;  // blocks that are compared before their changes are listed

  template <std::size_t Few>
  GRADSIEVE_INLINE static void append(mark_word marks, std::size_t first, value const* from, index_type* to,
                                      value* values) noexcept {
    auto const put = [&](std::size_t j, std::size_t i) GRADSIEVE_LAMBDA_INLINE {
      to[j] = static_cast<index_type>(first + i);
      values[j] = from[i];
    };
    auto const all = count_marks(marks);
    if (all <= Few)  // a fixed number of iterations: the true one would be mispredicted
      for (std::size_t j = 0; j < Few; ++j, marks &= marks - 1)
        put(j, lowest_mark(marks | mark_word{1} << (block - 1)));
    else
      for (std::size_t j = 0; j < all; ++j, marks &= marks - 1) put(j, lowest_mark(marks));
  }
};

}  // namespace gradsieve::host_kernels
