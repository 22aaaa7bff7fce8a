// Sums over elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Sums of one tile or segment, in element order: the same for any number of threads.
struct statistics {
  double sum_abs = 0;
  double sum_squares = 0;
  key_type max_key = 0;
  std::uint64_t nonzero = 0;

  void add(statistics const& other) noexcept {
    detail::add_in_order(sum_abs, other.sum_abs);
    detail::add_in_order(sum_squares, other.sum_squares);
    max_key = larger(max_key, other.max_key);
    nonzero += other.nonzero;
  }
};

/// A vector of `width` floats as doubles. GCC's own conversion takes half of them through memory.
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

/// Sums of a tile, given piece by piece. Eight sums in fixed lanes are the same for all compilers and levels; vector
/// types, as not all compilers vectorise loops over lanes.
template <simd Level>
class running_sums {
 public:
  /// Adds a multiple of eight elements.
  GRADSIEVE_INLINE void add(float const* values, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; i += lanes) add_lanes(values + i);
  }

  /// Adds the remaining elements, any number, and returns all sums.
  [[nodiscard]] GRADSIEVE_INLINE statistics end(float const* values, std::size_t count) noexcept {
    std::size_t const whole = count / lanes * lanes;
    add(values, whole);
    if (whole < count) {
      std::array<float, lanes> rest{};
      std::copy(values + whole, values + count, rest.begin());
      add_lanes(rest.data());
    }
    statistics result;
    for (std::size_t h = 0; h < parts; ++h)
      for (std::size_t lane = 0; lane < width; ++lane) {
        detail::add_in_order(result.sum_abs, double{sum_abs_[h][lane]});
        detail::add_in_order(result.sum_squares, double{sum_squares_[h][lane]});
        result.max_key = larger(result.max_key, static_cast<key_type>(largest_[h][lane]));
        result.nonzero += static_cast<std::uint64_t>(nonzero_[h][lane]);
      }
    return result;
  }

 private:
  static constexpr std::size_t lanes = 8;
  static constexpr std::size_t width = widening<Level>::width;
  static constexpr std::size_t parts = lanes / width;
  using doubles [[gnu::vector_size(width * sizeof(double))]] = double;
  using floats [[gnu::vector_size(width * sizeof(float))]] = float;
  using keys [[gnu::vector_size(width * sizeof(float))]] = std::int32_t;

  GRADSIEVE_INLINE void add_lanes(float const* from) noexcept {
    for (std::size_t h = 0; h < parts; ++h) {
      keys key;
      std::memcpy(&key, from + width * h, sizeof key);
      key &= 0x7FFF'FFFF;
      floats magnitude;
      std::memcpy(&magnitude, &key, sizeof key);
      doubles x;
      widening<Level>::run(magnitude, x);
      detail::add_in_order(sum_abs_[h], x);
      doubles const square = x * x;
      detail::add_in_order(sum_squares_[h], square);
      largest_[h] = key > largest_[h] ? key : largest_[h];
      nonzero_[h] -= key != 0;  // true is -1
    }
  }

  doubles sum_abs_[parts]{};
  doubles sum_squares_[parts]{};
  keys largest_[parts]{};
  keys nonzero_[parts]{};
};

struct measure_tile {
  template <simd Level>
  GRADSIEVE_INLINE static statistics run(float const* values, std::size_t count) noexcept {
    running_sums<Level> sums;
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
      prefetch(values + i + prefetch_ahead, block);
      sums.add(values + i, block);
    }
    return sums.end(values + i, count - i);
  }
};

/// Calls add(value, sums) for every element; may omit keys below `add.least_key`, if it has that member.
struct add_up_values {
  template <simd Level, class Sums, class Add>
  GRADSIEVE_INLINE static void run(float const* values, std::size_t count, Add const add, Sums* to) noexcept {
    Sums sums = *to;
    std::size_t i = 0;
    for (; i + block <= count; i += block) {
      prefetch(values + i + prefetch_ahead, block);
      if constexpr (requires { add.least_key; }) {
        mark_word marks = block_of<Level>::at_least(values + i, add.least_key);
        if (count_marks(marks) <= few_added) {
          for (; marks != 0; marks &= marks - 1) add(values[i + lowest_mark(marks)], sums);
          continue;
        }
      }
      for (std::size_t j = 0; j < block; ++j) add(values[i + j], sums);
    }
    for (; i < count; ++i) add(values[i], sums);
    *to = sums;
  }
};

}  // namespace gradsieve::host_kernels
