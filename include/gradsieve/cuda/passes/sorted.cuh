// Searches in what is sorted, by one thread.
#pragma once

#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// How many of `count` places, the first ones, are such that before(place).
template <class Before>
[[nodiscard]] __device__ std::uint64_t count_before(std::uint64_t count, Before const& before) {
  std::uint64_t low = 0;
  while (count > 0) {
    std::uint64_t const half = count / 2;
    bool const here = before(low + half);
    low = here ? low + half + 1 : low;
    count = here ? count - half - 1 : half;
  }
  return low;
}

/// The first of `count` rising numbers that is not below `bound`; `count` if there is none.
template <class T>
[[nodiscard]] __device__ std::uint64_t first_not_below(T const* numbers, std::uint64_t count, std::uint64_t bound) {
  return count_before(count, [&](std::uint64_t i) { return numbers[i] < bound; });
}

}  // namespace gradsieve::cuda_kernels
