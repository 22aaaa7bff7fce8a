// Random numbers as hashes of their purpose, not a sequence.
#pragma once

#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A random number for a value: splitmix64's mixing of a counter (Steele et al. 2014), the same on every machine, in
/// every space and for any number of threads. Chain it for several values: mix(seed ^ mix(step ^ mix(segment))).
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E37'79B9'7F4A'7C15u;
  x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
  x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
  return x ^ (x >> 31);
}

namespace detail {

/// `count` of n positions for a sample: one random position in each of `count` strips of length n / count, rounded up
/// or down. It does not divide, as that would cost more than reading the element.
class sample_places {
 public:
  /// The same stream gives the same positions. @pre count <= n < 2^32, count <= 2^20
  GRADSIEVE_HD constexpr sample_places(std::uint64_t n, std::uint64_t count, std::uint64_t stream) noexcept
      : strip_{count == 0 ? 0 : ((n << 20) + count - 1) / count}, stream_{stream} {}

  /// Position j, j < count.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t operator[](std::uint64_t j) const noexcept {
    std::uint64_t const from = (j * strip_) >> 20;
    std::uint64_t const width = (((j + 1) * strip_) >> 20) - from;
    return from + (((mix(stream_ + j) >> 32) * width) >> 32);
  }

 private:
  std::uint64_t strip_;  // in units of 2^-20 elements
  std::uint64_t stream_;
};

}  // namespace detail

}  // namespace gradsieve
