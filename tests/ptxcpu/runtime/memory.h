// All memory that kernels may touch: its bounds, with red zones around.
#pragma once

#include "environment.h"

enum Kind { KDEV, KMAN, KPIN, KGLOB, KREG };
struct CUmemPoolHandle_st {  // cudaMemPool_t; memory is given back at once, only the book-keeping is per pool
  int dev = 0;
  u64 used = 0, high = 0;
  std::map<int, u64> attr;
};

struct Alloc {
  size_t size;
  Kind kind;
  int dev;
  void* base;
  bool keep = false;  // belongs to a graph
  CUmemPoolHandle_st* pool = nullptr;
};

static std::map<u64, Alloc> allocs;
static std::shared_mutex am;
static size_t total_alloc = 0;
static size_t const TOTAL = (size_t)16 << 30;

static bool find_alloc(u64 a, u64& lo, u64& hi, Alloc* out = nullptr) {
  std::shared_lock l(am);
  auto it = allocs.upper_bound(a);
  if (it == allocs.begin()) return false;
  --it;
  if (a >= it->first + std::max<size_t>(it->second.size, 1)) return false;
  lo = it->first;
  hi = lo + it->second.size;
  if (out) *out = it->second;
  return true;
}

static void* new_alloc(size_t n, Kind k) {
  char* b = (char*)aligned_alloc(512, ((n + 511) / 512) * 512 + 1024);
  if (!b) return nullptr;
  void* p = b + 512;
  memset(b, 0xAB, 512);
  if (n < ((size_t)1 << 28)) memset(p, 0xCB, ((n + 511) / 512) * 512 + 512);
  std::unique_lock l(am);
  allocs[(u64)p] = {n, k, cur_dev, b};
  total_alloc += n;
  return p;
}

static bool del_alloc(void* p) {
  std::unique_lock l(am);
  auto it = allocs.find((u64)p);
  if (it == allocs.end()) return false;
  if (it->second.keep) {
    memset(p, 0xDD, it->second.size);
    return true;
  }
  if (it->second.pool) it->second.pool->used -= it->second.size;
  total_alloc -= it->second.size;
  memset(p, 0xDD, std::min<size_t>(it->second.size, 1 << 28));
  free(it->second.base);
  allocs.erase(it);
  return true;
}
