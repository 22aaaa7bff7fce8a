// Prefetching.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Asks for `count` elements from values[first] on that will be needed soon; they may lie behind the array's end.
template <class T>
GRADSIEVE_INLINE void prefetch(T const* values, std::size_t count, std::size_t first = 0) noexcept {
  auto const from = reinterpret_cast<std::uintptr_t>(values) + first * sizeof(T);
  for (std::size_t line = 0; line < count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<void const*>(from + line));
}

}  // namespace gradsieve::host_kernels
