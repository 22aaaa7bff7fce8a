// Settings from the environment, the lock and the errors of the API.
#pragma once

#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "../ptxrt.h"

using std::string;
using std::vector;
extern "C" size_t ZSTD_decompress(void*, size_t, void const*, size_t);
extern "C" unsigned ZSTD_isError(size_t);
static char const* env(char const* n, char const* d) {
  char const* e = getenv(n);
  return e && *e ? e : d;
}

static long envi(char const* n, long d) {
  char const* e = getenv(n);
  return e && *e ? atol(e) : d;
}

static int VERB() {
  static int v = envi("PTXCPU_VERBOSE", 0);
  return v;
}

static long SEED() {
  static long v = envi("PTXCPU_SEED", 0);
  return v;
}

static bool LAZY() {
  static bool v = string(env("PTXCPU_ASYNC", "")) == "lazy";
  return v;
}

static int NDEV() {
  static int v = envi("PTXCPU_DEVICES", 1);
  return v;
}

static int SMS() {
  static int v = envi("PTXCPU_SMS", 8);
  return v;
}

static int CC() {
  static int v = envi("PTXCPU_CC", 0);
  return v;
}

static bool WATCH();

static int NW() {
  static int v = WATCH() ? 1 : envi("PTXCPU_WORKERS", std::max(1u, std::thread::hardware_concurrency()));
  return v;
}

static size_t STK() {
  static size_t v = envi("PTXCPU_STACK", 64) * 1024;
  return v;
}

static std::recursive_mutex G;  // API lock
static std::atomic<int> sticky{0};
static thread_local cudaError_t last_err = cudaSuccess;
static thread_local int cur_dev = 0;

static cudaError_t ret(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_err = e;
  return e;
}

#define API extern "C" __attribute__((visibility("default")))
