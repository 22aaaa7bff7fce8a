// Sums over elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/prefetch.hpp>

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

/// Four lanes at a time, in the compiler's own vectors: loops over lanes are vectorised by some compilers and levels
/// only, and eight sums in fixed lanes are the same for any of them.
struct measure_tile {
  template <simd>
  GRADSIEVE_INLINE static statistics run(float const* values, std::size_t count) noexcept {
    constexpr std::size_t width = 4;
    constexpr std::size_t lanes = 2 * width;
    using doubles [[gnu::vector_size(width * sizeof(double))]] = double;
    using floats [[gnu::vector_size(width * sizeof(float))]] = float;
    using keys [[gnu::vector_size(width * sizeof(float))]] = std::int32_t;
    doubles sum_abs[2]{};
    doubles sum_squares[2]{};
    keys largest[2]{};
    keys nonzero[2]{};
    auto const add = [&](float const* from) GRADSIEVE_LAMBDA_INLINE {
      for (std::size_t h = 0; h < 2; ++h) {
        keys key;
        std::memcpy(&key, from + width * h, sizeof key);
        key &= 0x7FFF'FFFF;
        floats magnitude;
        std::memcpy(&magnitude, &key, sizeof key);
        doubles const x = __builtin_convertvector(magnitude, doubles);
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
    for (std::size_t h = 0; h < 2; ++h)
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
