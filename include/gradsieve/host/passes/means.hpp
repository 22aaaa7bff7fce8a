// Inner loops that add up several updates, over one tile of the gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/half.hpp>
#include <gradsieve/host/simd/intrinsics.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Bits of -0, which all sums start from: -0 + x is x for every x. A sum that is still -0 has no entry, or only
/// entries that are -0.
inline constexpr std::uint32_t no_entry = 0x8000'0000u;

/// What add_entries has found.
struct added_entries {
  std::uint32_t entries = 0;  ///< elements that have one
  bool usual = true;          ///< no entry is -0, and all sums are finite
};

/// Adds the updates' entries below `end`, one update after the other, to sums[index - first], and moves the cursors
/// behind them. `places`, unless null, gets the places in `sums` that have an entry, each once if no
/// entry is -0; it has room for one more than a tile has elements.
struct add_entries {
  static constexpr std::uint32_t most_places = block * marked_strip::blocks;  // a tile's elements

  template <simd>
  GRADSIEVE_INLINE static added_entries run(selection_view const* updates, std::size_t count, std::size_t* cursors,
                                            std::uint64_t first, std::uint64_t end, float* sums,
                                            std::uint16_t* places) noexcept {
    std::uint32_t entries = 0;
    std::int32_t least = 0;  // of the entries' bits: as a signed number -0 is the least there is
    std::int32_t most = 0;   // key of a sum
    for (std::size_t u = 0; u < count; ++u) {
      index_type const* const indices = updates[u].indices.data();
      float const* const values = updates[u].values.data();
      std::size_t const size = updates[u].indices.size();
      std::size_t at = cursors[u];
      for (; at < size && indices[at] < end; ++at) {
        float& sum = sums[indices[at] - first];
        if (places != nullptr) places[smaller(entries, most_places)] = static_cast<std::uint16_t>(indices[at] - first);
        entries += gradsieve::bit_cast<std::uint32_t>(sum) == no_entry ? 1u : 0u;
        sum = gradsieve::add(sum, values[at]);
        least = smaller(least, gradsieve::bit_cast<std::int32_t>(values[at]));
        most = larger(most, static_cast<std::int32_t>(magnitude_key(sum)));
      }
      cursors[u] = at;
      prefetch(indices, block, at + update_ahead);
      prefetch(values, block, at + update_ahead);
    }
    return {entries,
            least != std::numeric_limits<std::int32_t>::min() && most < static_cast<std::int32_t>(infinite_key)};
  }
};

/// Divides the sums at the given places. Returns whether all are finite after it, and none became zero.
GRADSIEVE_PRECISE inline bool divide_sums(float* sums, std::uint16_t const* places, std::size_t count,
                                          float divisor) noexcept {
  std::uint32_t unusual = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float& sum = sums[places[i]];
    float const mean = gradsieve::divide(sum, divisor);
    unusual |= magnitude_key(mean) - 1 >= infinite_key - 1 && magnitude_key(sum) != 0 ? 1u : 0u;
    sum = mean;
  }
  return unusual == 0;
}

/// sum * factor, and zero where there is no entry. By a mask: GCC takes a choice between floats for a branch around the
/// product, and does not vectorise it.
[[nodiscard]] GRADSIEVE_INLINE float mean_of(float sum, float factor) noexcept {
  auto const mean = gradsieve::bit_cast<std::uint32_t>(multiply(sum, factor));
  std::uint32_t const mask = 0u - (gradsieve::bit_cast<std::uint32_t>(sum) != no_entry ? 1u : 0u);
  return gradsieve::bit_cast<float>(mean & mask);
}

/// Writes the means of 16 sums to where a cache line begins, past the caches if the instruction set can, and clears the
/// sums.
template <simd Level>
struct line_of_means {
  GRADSIEVE_INLINE static void stream(float* sums, float factor, float* out) noexcept {
    float means[line_size<float>];
    for (std::size_t i = 0; i < line_size<float>; ++i) means[i] = mean_of(sums[i], factor);
    stream_line(means, out);
    std::fill_n(sums, line_size<float>, gradsieve::bit_cast<float>(no_entry));
  }
};

#if GRADSIEVE_X86
template <>
struct line_of_means<simd::avx2> {
  GRADSIEVE_AVX2 static void stream(float* sums, float factor, float* out) noexcept {
    auto const none = _mm256_set1_epi32(static_cast<int>(no_entry));
    for (std::size_t i = 0; i < line_size<float>; i += 8) {
      auto const sum = _mm256_loadu_ps(sums + i);
      auto const empty = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_castps_si256(sum), none));
      _mm256_stream_ps(out + i, _mm256_andnot_ps(empty, _mm256_mul_ps(sum, _mm256_set1_ps(factor))));
      _mm256_storeu_ps(sums + i, _mm256_castsi256_ps(none));
    }
  }
};

template <>
struct line_of_means<simd::avx512> {
  GRADSIEVE_AVX512 static void stream(float* sums, float factor, float* out) noexcept {
    auto const none = _mm512_set1_epi32(static_cast<int>(no_entry));
    auto const sum = _mm512_loadu_ps(sums);
    auto const here = _mm512_cmpneq_epi32_mask(_mm512_castps_si512(sum), none);
    _mm512_stream_ps(out, _mm512_maskz_mul_ps(here, sum, _mm512_set1_ps(factor)));
    _mm512_storeu_ps(sums, _mm512_castsi512_ps(none));
  }
};
#endif

/// Writes the sums of a tile, times `factor`, and zero where there is no entry; then all sums are -0. Returns how many
/// are clamped to the largest value of T.
struct write_means {
  template <simd Level, class T>
  GRADSIEVE_INLINE static std::uint64_t run(float* sums, std::size_t size, float factor, bool streamed,
                                            T* out) noexcept {
    if (!streamed) return write<Level>(sums, size, factor, out);
    std::size_t i = smaller(size, before_line(out));
    std::uint64_t saturated = write<Level>(sums, i, factor, out);
    if constexpr (std::is_same_v<T, float>) {
      for (; i + line_size<float> <= size; i += line_size<float>)
        line_of_means<Level>::stream(sums + i, factor, out + i);
    } else {
      T means[block];
      for (; i + block <= size; i += block) {
        saturated += write<Level>(sums + i, block, factor, means);
        for (std::size_t line = 0; line < block; line += line_size<T>) stream_line(means + line, out + i + line);
      }
    }
    return saturated + write<Level>(sums + i, size - i, factor, out + i);
  }

 private:
  template <simd Level, class T>
  GRADSIEVE_INLINE static std::uint64_t write(float* sums, std::size_t count, float factor, T* out) noexcept {
    if constexpr (std::is_same_v<T, float>) {
      form(sums, count, factor, out);
      return 0;
    } else {
      std::uint64_t saturated = 0;
      float means[block];
      std::size_t i = 0;
      for (; i + block <= count; i += block) {
        form(sums + i, block, factor, means);
        saturated += narrow<Level>(means, out + i, block);
      }
      form(sums + i, count - i, factor, means);
      return saturated + narrow<Level>(means, out + i, count - i);
    }
  }

  GRADSIEVE_INLINE static void form(float* sums, std::size_t count, float factor, float* means) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      means[i] = mean_of(sums[i], factor);
      sums[i] = gradsieve::bit_cast<float>(no_entry);
    }
  }
};

}  // namespace gradsieve::host_kernels
