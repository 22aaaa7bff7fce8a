// Stores that go past the caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/intrinsics.hpp>

namespace gradsieve::host_kernels {

/// Bytes from which an array that is overwritten whole goes past the caches: a core's share of them holds little of it,
/// and a store that goes through them first reads what it overwrites.
inline constexpr std::size_t streamed_bytes = std::size_t{1} << 24;

/// Floats of a cache line.
inline constexpr std::size_t line_floats = 16;

/// Copies a line to where one begins, past the caches if the instruction set can.
template <simd Level>
struct line_of {
  GRADSIEVE_INLINE static void stream(float const* from, float* to) noexcept {
#if GRADSIEVE_X86
    for (std::size_t i = 0; i < line_floats; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
#else
    std::copy_n(from, line_floats, to);
#endif
  }
};

#if GRADSIEVE_X86
template <>
struct line_of<simd::avx2> {
  GRADSIEVE_AVX2 static void stream(float const* from, float* to) noexcept {
    for (std::size_t i = 0; i < line_floats; i += 8) _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
  }
};

template <>
struct line_of<simd::avx512> {
  GRADSIEVE_AVX512 static void stream(float const* from, float* to) noexcept {
    _mm512_stream_ps(to, _mm512_loadu_ps(from));
  }
};
#endif

/// Floats from here to where a line begins.
[[nodiscard]] GRADSIEVE_INLINE std::size_t before_line(float const* at) noexcept {
  return (line_floats - reinterpret_cast<std::uintptr_t>(at) / sizeof(float) % line_floats) % line_floats;
}

/// Copies past the caches. Other threads may look once stream_fence() was called.
struct stream_copy {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* from, float* to, std::size_t count) noexcept {
    std::size_t i = 0;
    for (std::size_t const head = smaller(count, before_line(to)); i < head; ++i) to[i] = from[i];
    for (; i + line_floats <= count; i += line_floats) line_of<Level>::stream(from + i, to + i);
    for (; i < count; ++i) to[i] = from[i];
  }
};

inline void stream_fence() noexcept {
#if GRADSIEVE_X86
  _mm_sfence();
#endif
}

}  // namespace gradsieve::host_kernels
