// The only macros of the library: the language check, the host/device mark and the version.
#pragma once

#if __cplusplus < 202002L && (!defined(_MSVC_LANG) || _MSVC_LANG < 202002L)
#error "gradsieve needs C++20: compile with -std=c++20 (nvcc: -std=c++20 as well)"
#endif

#define GRADSIEVE_VERSION_MAJOR 0
#define GRADSIEVE_VERSION_MINOR 1
#define GRADSIEVE_VERSION_PATCH 0

// Marks a function that runs in both spaces; empty for a host compiler.
#if defined(__CUDACC__)
#define GRADSIEVE_HD __host__ __device__
#else
#define GRADSIEVE_HD
#endif
