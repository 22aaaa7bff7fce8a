// The processor's vector instructions, and kernels compiled once for each set.
#pragma once

#include <gradsieve/core/config.hpp>

#if GRADSIEVE_X86
#include <cpuid.h>
#endif

namespace gradsieve::inline GRADSIEVE_ABI {

/// Instruction sets that the host's kernels are compiled for. Results do not depend on which of them runs.
enum class simd { portable, neon, avx2, avx512 };

}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Units that define GRADSIEVE_NO_AVX512 have AVX2 kernels at most; if all of a program do, it is smaller.
#if defined(GRADSIEVE_NO_AVX512)
inline constexpr bool compiles_avx512 = false;
#else
inline constexpr bool compiles_avx512 = true;
#endif

#if GRADSIEVE_X86
/// True if the processor converts float16 (F16C); read from the processor, as not every compiler knows the name.
[[nodiscard]] inline bool converts_halfs() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

/// The best instruction set of this processor.
[[nodiscard]] inline simd best_simd() noexcept {
#if GRADSIEVE_X86
  static simd const best = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2") || !converts_halfs()) return simd::portable;
    bool const wide = compiles_avx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return wide ? simd::avx512 : simd::avx2;
  }();
  return best;
#elif GRADSIEVE_NEON
  return simd::neon;
#else
  return simd::portable;
#endif
}

template <class Kernel, class... Args>
GRADSIEVE_UNFUSED auto run_portable(Args... args) noexcept {
  return Kernel::template run<simd::portable>(args...);
}
#if GRADSIEVE_X86
template <class Kernel, class... Args>
GRADSIEVE_AVX2 auto run_avx2(Args... args) noexcept {
  return Kernel::template run<simd::avx2>(args...);
}
template <class Kernel, class... Args>
GRADSIEVE_AVX512 auto run_avx512(Args... args) noexcept {
  return Kernel::template run<simd::avx512>(args...);
}
#elif GRADSIEVE_NEON
template <class Kernel, class... Args>
GRADSIEVE_UNFUSED auto run_neon(Args... args) noexcept {
  return Kernel::template run<simd::neon>(args...);
}
#endif

/// Calls Kernel::run<level>(args...), inlined into a function with that level's instructions.
template <class Kernel, class... Args>
auto run(simd level, Args... args) noexcept {
#if GRADSIEVE_X86
  if constexpr (compiles_avx512)
    if (level == simd::avx512) return run_avx512<Kernel>(args...);
  if (level >= simd::avx2) return run_avx2<Kernel>(args...);
#elif GRADSIEVE_NEON
  if (level == simd::neon) return run_neon<Kernel>(args...);
#endif
  static_cast<void>(level);
  return run_portable<Kernel>(args...);
}

/// The kernel of run_best().
struct called {
  template <simd, class Body>
  GRADSIEVE_INLINE static auto run(Body const& body) noexcept {
    return body();
  }
};
/// Calls body() with the best instructions of this processor: a GRADSIEVE_LAMBDA_INLINE lambda with copies only.
template <class Body>
auto run_best(Body const& body) noexcept {
  return run<called>(best_simd(), body);
}

}  // namespace gradsieve::host_kernels
