// Sums over elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/prefetch.hpp>
#include <gradsieve/host/simd/simd.hpp>

namespace gradsieve::host_kernels {

/// Sums of one tile or segment, in the order of its elements: the same for any number of threads.
struct statistics {
  double sum_abs = 0;
  double sum_squares = 0;
  key_type max_key = 0;
  std::uint64_t nonzero = 0;

  void add(statistics const& other) noexcept {
    sum_abs += other.sum_abs;
    sum_squares += other.sum_squares;
    max_key = larger(max_key, other.max_key);
    nonzero += other.nonzero;
  }
};

/// A vector of floats as doubles, `width` of them. GCC's own conversion takes half of them through memory.
template <simd Level>
struct widening {
  static constexpr std::size_t width = 4;
  template <class Doubles, class Floats>
  GRADSIEVE_INLINE static void run(Floats const& from, Doubles& to) noexcept {
    to = __builtin_convertvector(from, Doubles);
  }
};
#if GRADSIEVE_X86
template <>
struct widening<simd::avx2> {
  static constexpr std::size_t width = 4;
  GRADSIEVE_AVX2 static void run(__m128 const& from, __m256d& to) noexcept { to = _mm256_cvtps_pd(from); }
};
template <>
struct widening<simd::avx512> {
  static constexpr std::size_t width = 8;
  GRADSIEVE_AVX512 static void run(__m256 const& from, __m512d& to) noexcept { to = _mm512_maskz_cvtps_pd(0xFF, from); }
};
#endif

/// In the compiler's own vectors: loops over lanes are vectorised by some compilers and levels only, and eight sums in
/// fixed lanes are the same for any of them.
struct measure_tile {
  template <simd Level>
  GRADSIEVE_INLINE static statistics run(float const* values, std::size_t count) noexcept {
    constexpr std::size_t lanes = 8;
    constexpr std::size_t width = widening<Level>::width;
    constexpr std::size_t parts = lanes / width;
    using doubles [[gnu::vector_size(width * sizeof(double))]] = double;
    using floats [[gnu::vector_size(width * sizeof(float))]] = float;
    using keys [[gnu::vector_size(width * sizeof(float))]] = std::int32_t;
    doubles sum_abs[parts]{};
    doubles sum_squares[parts]{};
    keys largest[parts]{};
    keys nonzero[parts]{};
    auto const add = [&](float const* from) GRADSIEVE_LAMBDA_INLINE {
      for (std::size_t h = 0; h < parts; ++h) {
        keys key;
        std::memcpy(&key, from + width * h, sizeof key);
        key &= 0x7FFF'FFFF;
        floats magnitude;
        std::memcpy(&magnitude, &key, sizeof key);
        doubles x;
        widening<Level>::run(magnitude, x);
        sum_abs[h] += x;
        doubles const square = x * x;
        sum_squares[h] += square;
        largest[h] = key > largest[h] ? key : largest[h];
        nonzero[h] -= key != 0;  // true is -1
      }
    };
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
      prefetch(values + i + ahead, block);
      for (std::size_t j = 0; j < block; j += lanes) add(values + i + j);
    }
    for (; i + lanes <= count; i += lanes) add(values + i);
    if (i < count) {
      std::array<float, lanes> rest{};
      std::copy(values + i, values + count, rest.begin());
      add(rest.data());
    }
    statistics result;
    for (std::size_t h = 0; h < parts; ++h)
      for (std::size_t lane = 0; lane < width; ++lane) {
        result.sum_abs += sum_abs[h][lane];
        result.sum_squares += sum_squares[h][lane];
        result.max_key = larger(result.max_key, static_cast<key_type>(largest[h][lane]));
        result.nonzero += static_cast<std::uint64_t>(nonzero[h][lane]);
      }
    return result;
  }
};

}  // namespace gradsieve::host_kernels
