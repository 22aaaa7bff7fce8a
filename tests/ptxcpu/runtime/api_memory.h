// CUDA's calls on memory, pools, copies and symbols.
#pragma once

#include "launches.h"

API cudaError_t cudaMalloc(void** p, size_t n) {
  std::lock_guard l(G);
  TRY(cap_unsafe("cudaMalloc"));
  if (sticky) return fin();
  if (n == 0) {
    *p = nullptr;
    return cudaSuccess;
  }
  if (n + total_alloc > TOTAL) return ret(cudaErrorMemoryAllocation);
  *p = new_alloc(n, KDEV);
  return *p ? cudaSuccess : ret(cudaErrorMemoryAllocation);
}

API cudaError_t cudaFree(void* p) {
  std::lock_guard l(G);
  TRY(cap_unsafe("cudaFree"));
  drain_all();
  if (!p) return fin();
  return del_alloc(p) ? fin() : ret(cudaErrorInvalidValue);
}

static CUmemPoolHandle_st* default_pool(int dev) {
  static std::map<int, CUmemPoolHandle_st> d;
  d[dev].dev = dev;
  return &d[dev];
}

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int dev) {
  std::lock_guard l(G);
  if (dev < 0 || dev >= NDEV()) return ret(cudaErrorInvalidDevice);
  *p = default_pool(dev);
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* p, int dev) {
  std::lock_guard l(G);
  if (dev < 0 || dev >= NDEV()) return ret(cudaErrorInvalidDevice);
  *p = default_pool(dev);
  return cudaSuccess;
}

API cudaError_t cudaMemPoolCreate(cudaMemPool_t* p, cudaMemPoolProps const* pp) {
  if (!p || !pp) return ret(cudaErrorInvalidValue);
  *p = new CUmemPoolHandle_st;
  (*p)->dev = pp->location.id;
  return cudaSuccess;
}

API cudaError_t cudaMemPoolDestroy(cudaMemPool_t p) {
  std::lock_guard l(G);
  if (!p) return ret(cudaErrorInvalidValue);
  return cudaSuccess;  // the object stays: allocations may still refer to it
}

static bool int_attr(cudaMemPoolAttr a) {
  return a == cudaMemPoolReuseFollowEventDependencies || a == cudaMemPoolReuseAllowOpportunistic ||
         a == cudaMemPoolReuseAllowInternalDependencies;
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t p, cudaMemPoolAttr a, void* v) {
  std::lock_guard l(G);
  if (!p || !v) return ret(cudaErrorInvalidValue);
  if (a == cudaMemPoolAttrReservedMemHigh || a == cudaMemPoolAttrUsedMemHigh)
    p->high = p->used;
  else
    p->attr[a] = int_attr(a) ? *(int*)v : *(u64*)v;
  return cudaSuccess;
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, cudaMemPoolAttr a, void* v) {
  std::lock_guard l(G);
  if (!p || !v) return ret(cudaErrorInvalidValue);
  auto it = p->attr.find(a);
  if (int_attr(a))
    *(int*)v = it == p->attr.end() ? 1 : (int)it->second;
  else if (a == cudaMemPoolAttrUsedMemCurrent || a == cudaMemPoolAttrReservedMemCurrent)
    *(u64*)v = p->used;
  else if (a == cudaMemPoolAttrUsedMemHigh || a == cudaMemPoolAttrReservedMemHigh)
    *(u64*)v = p->high;
  else
    *(u64*)v = it == p->attr.end() ? 0 : it->second;
  return cudaSuccess;
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t p, size_t) { return p ? cudaSuccess : ret(cudaErrorInvalidValue); }

static cudaError_t malloc_async(void** p, size_t n, CUmemPoolHandle_st* pool, cudaStream_t st) {
  std::lock_guard l(G);
  TRY(cap_pre(st));
  if (sticky) return fin();
  if (!p) return ret(cudaErrorInvalidValue);
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  if (n + total_alloc > TOTAL) return ret(cudaErrorMemoryAllocation);
  if (!(*p = new_alloc(n, KDEV))) return ret(cudaErrorMemoryAllocation);
  if (!S(st)->cap) {
    std::unique_lock l(am);
    allocs[(u64)*p].pool = pool;
    pool->used += n;
    pool->high = std::max(pool->high, pool->used);
  } else {  // a graph's allocation keeps its address for good; only its contents come and go
    void* q = *p;
    {
      std::unique_lock l(am);
      allocs[(u64)q].keep = true;
    }
    enq(st, [q, n] { memset(q, 0xCB, n); }, cudaGraphNodeTypeMemAlloc);
  }
  return fin();
}

API cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t st) {
  return malloc_async(p, n, default_pool(cur_dev), st);
}

API cudaError_t cudaMallocFromPoolAsync(void** p, size_t n, cudaMemPool_t pool, cudaStream_t st) {
  if (!pool) return ret(cudaErrorInvalidValue);
  return malloc_async(p, n, pool, st);
}

API cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  if (!p) return cudaSuccess;
  u64 a, b;
  if (!find_alloc((u64)p, a, b) || a != (u64)p) return ret(cudaErrorInvalidValue);
  enq(s, [p] { del_alloc(p); }, cudaGraphNodeTypeMemFree);
  return fin();
}

API cudaError_t cudaMallocHost(void** p, size_t n) {
  std::lock_guard l(G);
  TRY(cap_unsafe("cudaMallocHost"));
  *p = new_alloc(n ? n : 1, KPIN);
  return cudaSuccess;
}

API cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return cudaMallocHost(p, n); }
API cudaError_t cudaFreeHost(void* p) {
  std::lock_guard l(G);
  TRY(cap_unsafe("cudaFreeHost"));
  drain_all();
  if (!p) return cudaSuccess;
  return del_alloc(p) ? cudaSuccess : ret(cudaErrorInvalidValue);
}

API cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) {
  std::lock_guard l(G);
  TRY(cap_unsafe("cudaMallocManaged"));
  *p = new_alloc(n ? n : 1, KMAN);
  return cudaSuccess;
}

API cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  std::lock_guard gl(G);
  TRY(cap_unsafe("cudaHostRegister"));
  std::unique_lock l(am);
  allocs[(u64)p] = {n, KREG, 0, nullptr};
  return cudaSuccess;
}

API cudaError_t cudaHostUnregister(void* p) {
  std::lock_guard gl(G);
  TRY(cap_unsafe("cudaHostUnregister"));
  std::unique_lock l(am);
  auto it = allocs.find((u64)p);
  if (it == allocs.end() || it->second.kind != KREG) return ret(cudaErrorHostMemoryNotRegistered);
  allocs.erase(it);
  return cudaSuccess;
}

API cudaError_t cudaHostGetDevicePointer(void** d, void* h, unsigned) {
  *d = h;
  return cudaSuccess;
}

static int loc(void const* p, size_t n) {
  u64 lo, hi;
  Alloc a;
  if (!find_alloc((u64)p, lo, hi, &a)) return 0;
  if ((u64)p + n > hi) return -1;
  return a.kind == KPIN || a.kind == KREG ? 1 : a.kind == KMAN ? 3 : 2;
}  // 0 pageable 1 pinned 2 device 3 managed -1 overrun
static cudaError_t cpy(void* d, void const* s, size_t n, cudaMemcpyKind k, cudaStream_t st, bool async) {
  std::lock_guard l(G);
  TRY(cap_pre(st));
  if (!async) TRY(cap_unsafe("synchronous memcpy"));
  if (sticky) return fin();
  if (n == 0) return cudaSuccess;
  int dl = loc(d, n), sl = loc(s, n);
  if (dl < 0 || sl < 0) {
    fprintf(stderr, "[ptxcpu] memcpy of %zu bytes overruns an allocation (%s)\n", n, dl < 0 ? "dst" : "src");
    return ret(cudaErrorInvalidValue);
  }
  if ((k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice) && dl == 0) {
    fprintf(stderr, "[ptxcpu] memcpy: dst is not device memory\n");
    return ret(cudaErrorInvalidValue);
  }
  if ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice) && sl == 0) {
    fprintf(stderr, "[ptxcpu] memcpy: src is not device memory\n");
    return ret(cudaErrorInvalidValue);
  }
  if ((k == cudaMemcpyHostToDevice && sl == 2) || (k == cudaMemcpyDeviceToHost && dl == 2)) {
    fprintf(stderr, "[ptxcpu] memcpy: wrong direction\n");
    return ret(cudaErrorInvalidValue);
  }
  if (S(st)->cap) {  // pageable memory too is read and written when the graph runs
    enq(
        st,
        [=] {
          if (!sticky) memmove(d, s, n);
        },
        cudaGraphNodeTypeMemcpy);
    return cudaSuccess;
  }
  if (!LAZY()) {
    memmove(d, s, n);
    return cudaSuccess;
  }
  if (sl == 0) {
    auto v = std::make_shared<vector<u8>>((u8 const*)s, (u8 const*)s + n);
    enq(st, [=] { memcpy(d, v->data(), n); });
    if (!async) sync_stream(S(st));
  } else {
    enq(st, [=] { memmove(d, s, n); });
    if (!async || dl == 0) sync_stream(S(st));
  }
  return fin();
}

API cudaError_t cudaMemcpy(void* d, void const* s, size_t n, cudaMemcpyKind k) { return cpy(d, s, n, k, 0, false); }
API cudaError_t cudaMemcpyAsync(void* d, void const* s, size_t n, cudaMemcpyKind k, cudaStream_t st) {
  return cpy(d, s, n, k, st, true);
}

API cudaError_t cudaMemcpyPeer(void* d, int, void const* s, int, size_t n) {
  return cpy(d, s, n, cudaMemcpyDefault, 0, false);
}

static cudaError_t mset(void* d, int v, size_t n, cudaStream_t st) {
  std::lock_guard l(G);
  TRY(cap_pre(st));
  if (sticky) return fin();
  if (!n) return cudaSuccess;
  int dl = loc(d, n);
  if (dl <= 0) {
    fprintf(stderr, "[ptxcpu] memset outside device memory\n");
    return ret(cudaErrorInvalidValue);
  }
  enq(st, [=] { memset(d, v, n); }, cudaGraphNodeTypeMemset);
  return cudaSuccess;
}

API cudaError_t cudaMemset(void* d, int v, size_t n) { return mset(d, v, n, 0); }
API cudaError_t cudaMemsetAsync(void* d, int v, size_t n, cudaStream_t s) { return mset(d, v, n, s); }

static u8* sym(void const* s, size_t* n) {
  auto it = vars.find(s);
  if (it == vars.end() || !load_module(it->second.m)) return nullptr;
  auto g = it->second.m->gaddr.find(it->second.name);
  if (g == it->second.m->gaddr.end()) return nullptr;
  if (n) *n = it->second.size;
  return g->second;
}

API cudaError_t cudaGetSymbolAddress(void** p, void const* s) {
  std::lock_guard l(G);
  *p = sym(s, nullptr);
  return *p ? cudaSuccess : ret(cudaErrorInvalidSymbol);
}

API cudaError_t cudaMemcpyToSymbol(void const* y, void const* s, size_t n, size_t o, cudaMemcpyKind k) {
  std::lock_guard l(G);
  u8* p = sym(y, nullptr);
  if (!p) return ret(cudaErrorInvalidSymbol);
  return cpy(p + o, s, n, k, 0, false);
}

API cudaError_t cudaMemcpyFromSymbol(void* d, void const* y, size_t n, size_t o, cudaMemcpyKind k) {
  std::lock_guard l(G);
  u8* p = sym(y, nullptr);
  if (!p) return ret(cudaErrorInvalidSymbol);
  return cpy(d, p + o, n, k, 0, false);
}

API cudaError_t cudaMemGetInfo(size_t* f, size_t* t) {
  *t = TOTAL;
  *f = TOTAL - total_alloc;
  return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, void const* p) {
  memset(a, 0, sizeof *a);
  u64 lo, hi;
  Alloc x;
  if (!find_alloc((u64)p, lo, hi, &x)) {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -1;
    a->hostPointer = (void*)p;
    return cudaSuccess;
  }
  a->device = x.dev;
  a->type = x.kind == KPIN || x.kind == KREG ? cudaMemoryTypeHost
            : x.kind == KMAN                 ? cudaMemoryTypeManaged
                                             : cudaMemoryTypeDevice;
  a->devicePointer = (void*)p;
  if (a->type != cudaMemoryTypeDevice) a->hostPointer = (void*)p;
  return cudaSuccess;
}
