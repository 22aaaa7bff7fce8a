// The macros of the library: language check, host/device marks, version.
#pragma once

#if __cplusplus < 202002L && (!defined(_MSVC_LANG) || _MSVC_LANG < 202002L)
#error "gradsieve needs C++20: compile with -std=c++20 (nvcc: -std=c++20 as well)"
#endif
#if defined(__clang__) && !defined(__apple_build_version__) && __clang_major__ < 18
#error \
    "gradsieve needs clang 18 or newer: older ones deduce no aggregate's arguments or keep no division under -ffast-math"
#elif defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11
#error "gradsieve needs g++ 11 or newer: older ones lack parts of C++20 that it uses"
#endif
#if defined(__GNUC__) && !defined(__cpp_exceptions)
#error "gradsieve needs exceptions: compile without -fno-exceptions, or use its C library (gradsieve.h)"
#endif
#if defined(min) || defined(max)
#error "gradsieve: a macro is named min or max, as C++ functions are: undefine it before the include (or define NOMINMAX)"
#endif

#if defined(__FLT_EVAL_METHOD__)
#if __FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2 || \
    (__FLT_EVAL_METHOD__ == -1 && defined(__GNUC__) && !defined(__clang__))  // clang says -1 for -ffast-math
#error \
    "gradsieve needs float and double arithmetic that rounds to these types, so that all builds get the same bits: compile without -mfpmath=387, on 32-bit x86 with -msse2 -mfpmath=sse"
#endif
#endif

// The same as in CMakeLists.txt; CMake checks that.
/// Major version; before 1, each minor version may break the interface.
#define GRADSIEVE_VERSION_MAJOR 0
/// Minor version.
#define GRADSIEVE_VERSION_MINOR 2
/// Patch version.
#define GRADSIEVE_VERSION_PATCH 0

/// @cond internal
#define GRADSIEVE_PASTE_(major_, minor_, patch_) v##major_##_##minor_##_##patch_
#define GRADSIEVE_PASTE(major_, minor_, patch_) GRADSIEVE_PASTE_(major_, minor_, patch_)
#define GRADSIEVE_TEXT_(name) #name
#define GRADSIEVE_TEXT(name) GRADSIEVE_TEXT_(name)
/// @endcond

/// @def GRADSIEVE_ABI
/// The inline namespace of all names, such as v0_2_0, so that two versions in one process have different symbols. A
/// program may define it, to any name, before it includes a header: a plug-in then shares no symbol with its host. All
/// units that pass the library's objects to each other have the same.
#if !defined(GRADSIEVE_ABI)
#define GRADSIEVE_ABI GRADSIEVE_PASTE(GRADSIEVE_VERSION_MAJOR, GRADSIEVE_VERSION_MINOR, GRADSIEVE_VERSION_PATCH)
#endif

/// @def GRADSIEVE_HD
/// Marks a function that runs on host and device; empty unless a CUDA compiler compiles it.
#if defined(__CUDACC__)
#define GRADSIEVE_HD __host__ __device__
#else
#define GRADSIEVE_HD
#endif

/// @def GRADSIEVE_EITHER_SPACE
/// Stands on a line of its own before a GRADSIEVE_HD function (before `template`) that calls a workspace or a policy.
/// Those may run on the host only; the CUDA compiler then checks the calls where the function is used, not here.
#if defined(__CUDACC__) && defined(__NVCC__)
#define GRADSIEVE_EITHER_SPACE _Pragma("nv_exec_check_disable")
#else
#define GRADSIEVE_EITHER_SPACE
#endif

/// @cond internal
// 1 if GCC itself can keep products from fusing; see multiply().
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && !defined(__CUDACC__)
#define GRADSIEVE_HAS_ASSOC_BARRIER 1
#else
#define GRADSIEVE_HAS_ASSOC_BARRIER 0
#endif

// Before a function whose divisions must stay divisions under -ffast-math too. GCC uses the attributes of the function
// that they are inlined into, and does not inline other float arithmetic into it under -ffast-math; clang uses
// divide(). GRADSIEVE_UNFUSED, for kernels, forbids GCC to fuse and sets -O3, whatever the user's level is: at -O2 the
// pass over the elements takes 1.2 times as long. Without optimisation both macros set -O3.
#if defined(__GNUC__) && !defined(__clang__)
#if defined(__OPTIMIZE__)
#define GRADSIEVE_PRECISE __attribute__((optimize("no-fast-math", "fp-contract=off")))
#else
#define GRADSIEVE_PRECISE __attribute__((optimize("O3", "no-fast-math", "fp-contract=off")))
#endif
#define GRADSIEVE_UNFUSED __attribute__((optimize("O3", "fp-contract=off")))
#else
#define GRADSIEVE_PRECISE
#define GRADSIEVE_UNFUSED
#endif

// First in a function whose arithmetic follows IEEE 754 under clang's -ffast-math: it does not assume finite sums, nor
// reorders or fuses anything. GCC ignores it: see GRADSIEVE_PRECISE. GRADSIEVE_FINITE_MATH: clang assumes that no float
// is NaN or infinite; see opaque_bits().
#if defined(__clang__) && !defined(__CUDACC__)
#define GRADSIEVE_EXACT _Pragma("float_control(precise, on)") _Pragma("clang fp contract(off)")
#else
#define GRADSIEVE_EXACT
#endif
#if defined(__clang__) && !defined(__CUDA_ARCH__) && defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#define GRADSIEVE_FINITE_MATH 1
#else
#define GRADSIEVE_FINITE_MATH 0
#endif

// Vector code for x86 is compiled beside the portable code and chosen at run time; the user needs no flag.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__CUDA_ARCH__)
#define GRADSIEVE_X86 1
#define GRADSIEVE_AVX2 GRADSIEVE_UNFUSED __attribute__((target("avx2,bmi,bmi2,popcnt,f16c")))
#if defined(__clang__)
#define GRADSIEVE_WIDE
#else
#define GRADSIEVE_WIDE ",prefer-vector-width=512"  // -march=native may prefer 256 bits
#endif
#define GRADSIEVE_AVX512 \
  GRADSIEVE_UNFUSED      \
  __attribute__((target("avx2,bmi,bmi2,popcnt,f16c,avx512f,avx512bw,avx512dq,avx512vl" GRADSIEVE_WIDE)))
#else
#define GRADSIEVE_X86 0
#endif

// Every AArch64 processor has these vectors.
#if defined(__aarch64__) && defined(__ARM_NEON) && defined(__GNUC__)
#define GRADSIEVE_NEON 1
#else
#define GRADSIEVE_NEON 0
#endif

// Before the definition of an ordinary function in a header of bodies, which gradsieve::compiled or every unit holds.
#if defined(GRADSIEVE_COMPILED)
#define GRADSIEVE_BODY
#else
#define GRADSIEVE_BODY inline
#endif

// For the bodies of kernels, which use the instruction set of the function that they are inlined into.
#if defined(__GNUC__)
#define GRADSIEVE_INLINE __attribute__((always_inline)) inline
#define GRADSIEVE_LAMBDA_INLINE __attribute__((always_inline))
#else
#define GRADSIEVE_INLINE inline
#define GRADSIEVE_LAMBDA_INLINE
#endif

// For what a kernel hardly ever does: a function of its own, with the arithmetic of kernels.
#if defined(__GNUC__)
#define GRADSIEVE_APART GRADSIEVE_UNFUSED __attribute__((noinline))
#else
#define GRADSIEVE_APART
#endif

// Before a loop whose iterations are independent in memory. GCC at -O2 vectorises only loops without a run-time check.
#if defined(__GNUC__) && !defined(__clang__)
#define GRADSIEVE_INDEPENDENT _Pragma("GCC ivdep")
#else
#define GRADSIEVE_INDEPENDENT
#endif

// Says that two pointers are to different objects. Clang otherwise checks at run time whether a local array overlaps
// the arrays of a loop, and keeps the local one in memory for that.
#if defined(__has_builtin) && !defined(__CUDACC__)
#if __has_builtin(__builtin_assume_separate_storage)
#define GRADSIEVE_SEPARATE(first, second) __builtin_assume_separate_storage(first, second)
#endif
#endif
#if !defined(GRADSIEVE_SEPARATE)
#define GRADSIEVE_SEPARATE(first, second) static_cast<void>(0)
#endif
/// @endcond
