// Stores that bypass the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Elements of a cache line.
template <class T>
inline constexpr std::size_t line_size = 64 / sizeof(T);

/// Number of elements from here to the next line's begin.
template <class T>
[[nodiscard]] GRADSIEVE_INLINE std::size_t before_line(T const* at) noexcept {
  return (line_size<T> - reinterpret_cast<std::uintptr_t>(at) / sizeof(T) % line_size<T>) % line_size<T>;
}

/// Copies a line to an aligned line, on x86 past the caches. Other threads may read it after stream_fence().
template <class T>
GRADSIEVE_INLINE void stream_line(T const* from, T* to) noexcept {
#if GRADSIEVE_X86
  for (std::size_t i = 0; i < line_size<T>; i += 16 / sizeof(T))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i)));
#else
  std::copy_n(from, line_size<T>, to);
#endif
}

inline void stream_fence() noexcept {
#if GRADSIEVE_X86
  _mm_sfence();
#endif
}

/// Prefetches `count` elements from values[first] on; they may lie behind the array's end.
template <class T>
GRADSIEVE_INLINE void prefetch(T const* values, std::size_t count, std::size_t first = 0) noexcept {
  auto const from = reinterpret_cast<std::uintptr_t>(values) + first * sizeof(T);
  for (std::size_t line = 0; line < count * sizeof(T); line += 64)
    __builtin_prefetch(reinterpret_cast<void const*>(from + line));
}

}  // namespace gradsieve::host_kernels
