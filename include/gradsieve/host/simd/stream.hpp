// Stores that go past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/host/simd/simd.hpp>

namespace gradsieve::host_kernels {

/// Bytes from which an array that is overwritten whole goes past the caches: a core's share of them holds little of it,
/// and a store that goes through them first reads what it overwrites.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 24;

/// Copies past the caches. Other threads may look once stream_fence() was called.
inline void stream(float const* from, float* to, std::size_t count) noexcept {
#if GRADSIEVE_X86
  while (count > 0 && reinterpret_cast<std::uintptr_t>(to) % 16 != 0) {
    *to++ = *from++;
    --count;
  }
  for (; count >= 4; from += 4, to += 4, count -= 4) _mm_stream_ps(to, _mm_loadu_ps(from));
#endif
  std::copy_n(from, count, to);
}

inline void stream_fence() noexcept {
#if GRADSIEVE_X86
  _mm_sfence();
#endif
}

}  // namespace gradsieve::host_kernels
