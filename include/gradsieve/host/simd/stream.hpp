// Stores that go past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/intrinsics.hpp>

namespace gradsieve::host_kernels {

/// Bytes from which an array that is overwritten whole goes past the caches: a core's share of them holds little of it,
/// and a store that goes through them first reads what it overwrites.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 24;

/// Floats of a cache line.
inline constexpr std::size_t line_floats = 16;

/// Floats from here to where a line begins.
[[nodiscard]] GRADSIEVE_INLINE std::size_t before_line(float const* at) noexcept {
  return (line_floats - reinterpret_cast<std::uintptr_t>(at) / sizeof(float) % line_floats) % line_floats;
}

/// Copies a line to where one begins, past the caches where every processor of the kind can. Other threads may look
/// once stream_fence() was called.
GRADSIEVE_INLINE void stream_line(float const* from, float* to) noexcept {
#if GRADSIEVE_X86
  for (std::size_t i = 0; i < line_floats; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#else
  std::copy_n(from, line_floats, to);
#endif
}

inline void stream_fence() noexcept {
#if GRADSIEVE_X86
  _mm_sfence();
#endif
}

}  // namespace gradsieve::host_kernels
