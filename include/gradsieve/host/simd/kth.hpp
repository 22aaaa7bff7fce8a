// The key of a rank, among contiguous keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

[[nodiscard]] GRADSIEVE_INLINE std::size_t count_keys(key_type const* keys, std::size_t count,
                                                      key_type least) noexcept {
  std::int32_t found = 0;  // keys fit 31 bits, and signed comparisons vectorise everywhere
  auto const below = static_cast<std::int32_t>(least) - 1;
  for (std::size_t i = 0; i < count; ++i) found += static_cast<std::int32_t>(keys[i]) > below ? 1 : 0;
  return static_cast<std::size_t>(found);
}

/// The key of a rank; the largest has rank 1. Bisection by counting: no branch depends on a single key, so even
/// thousands of keys take less time than a partial sort. Cost: about log2(range / distance to the next key) reads of
/// the keys, at most 32. @pre 1 <= rank <= count < 2^31
struct kth_key {
  template <simd>
  GRADSIEVE_INLINE static key_type run(key_type const* keys, std::size_t count, std::uint64_t rank) noexcept {
    std::int32_t most = 0;
    std::int32_t least = 0x7FFF'FFFF;
    for (std::size_t i = 0; i < count; ++i) {
      most = larger(most, static_cast<std::int32_t>(keys[i]));
      least = smaller(least, static_cast<std::int32_t>(keys[i]));
    }
    if (rank == 1) return static_cast<key_type>(most);
    auto low = static_cast<key_type>(least);  // at least `rank` keys reach it
    auto high = static_cast<key_type>(most);  // fewer reach any key above it
    while (low < high) {
      key_type const middle = high - (high - low) / 2;
      std::size_t const reached = count_keys(keys, count, middle);
      if (reached == rank) return smallest(keys, count, middle);
      if (reached > rank)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

 private:
  /// The smallest key that reaches `least`.
  [[nodiscard]] GRADSIEVE_INLINE static key_type smallest(key_type const* keys, std::size_t count,
                                                          key_type least) noexcept {
    key_type distance = ~key_type{0};  // keys below wrap around
    for (std::size_t i = 0; i < count; ++i) distance = smaller(distance, keys[i] - least);
    return least + distance;
  }
};

/// Number of keys of at least `least`.
struct count_least {
  template <simd>
  GRADSIEVE_INLINE static std::uint64_t run(key_type const* keys, std::size_t count, key_type least) noexcept {
    return count_keys(keys, count, least);
  }
};

}  // namespace gradsieve::host_kernels
