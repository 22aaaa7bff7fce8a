// Random numbers by name instead of by sequence.
#pragma once

#include <cstdint>

#include <gradsieve/config.hpp>

namespace gradsieve {

/// splitmix64's mixing of a counter (Steele et al. 2014): the same number for the same name on every machine, in
/// every space and for any number of threads. Chain it to build names: mix(seed ^ mix(step ^ mix(segment))).
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E37'79B9'7F4A'7C15u;
  x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
  x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
  return x ^ (x >> 31);
}

}  // namespace gradsieve
