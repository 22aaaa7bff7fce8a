// What the self-tests check with: a failed call ends the program, a failed condition is counted.
#pragma once

#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>

#define CK(x)                                                                        \
  do {                                                                               \
    cudaError_t e = (x);                                                             \
    if (e != cudaSuccess) {                                                          \
      printf("CUDA error %s at %s:%d\n", cudaGetErrorString(e), __FILE__, __LINE__); \
      exit(2);                                                                       \
    }                                                                                \
  } while (0)

static int fails = 0;
#define CHECK(name, cond)                            \
  do {                                               \
    bool ok_ = (cond);                               \
    printf("%-46s %s\n", name, ok_ ? "ok" : "FAIL"); \
    fflush(stdout);                                  \
    if (!ok_) ++fails;                               \
  } while (0)
