// What PTXCPU_RACE finds, and what it must not report: race <case ...>. Every case but CUB's is one kernel; some
// wait in a spin loop. `good` and `bad` are all cases of that kind.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cub/cub.cuh>
#include <cuda/atomic>
#include <cuda/barrier>
#include <vector>
namespace cg = cooperative_groups;
typedef int volatile vint;
template <cuda::thread_scope S>
using aref = cuda::atomic_ref<int, S>;
constexpr auto DEV = cuda::thread_scope_device;
constexpr auto BLK = cuda::thread_scope_block;
#define TID (blockIdx.x * blockDim.x + threadIdx.x)
// d: data, f: flags (zero), o: results
// ---- between blocks
template <bool Release, bool Acquire>
__global__ void flag(int* d, int* f, int* o) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    *d = 7;
    if (Release) __threadfence();
    *(vint*)f = 1;
  } else {
    while (*(vint*)f == 0);
    if (Acquire) __threadfence();
    o[blockIdx.x] = *d;
  }
}
template <cuda::thread_scope S>
__global__ void ref(int* d, int* f, int* o) {
  if (threadIdx.x) return;
  aref<S> a(*f);
  if (blockIdx.x == 0) {
    *d = 7;
    a.store(1, cuda::memory_order_release);
  } else {
    while (a.load(cuda::memory_order_acquire) == 0);
    o[blockIdx.x] = *d;
  }
}
template <int Order>  // 0 relaxed, 1 acquire and release, 2 sequentially consistent, 3 relaxed with fences
__global__ void chain(int* d, int* f, int* o) {  // each block waits for the one before it
  if (threadIdx.x) return;
  aref<DEV> a(*f);
  auto const load = Order == 1   ? cuda::memory_order_acquire
                    : Order == 2 ? cuda::memory_order_seq_cst
                                 : cuda::memory_order_relaxed;
  auto const add = Order == 1   ? cuda::memory_order_acq_rel
                   : Order == 2 ? cuda::memory_order_seq_cst
                                : cuda::memory_order_relaxed;
  while (a.load(load) != (int)blockIdx.x);
  if (Order == 3) cuda::atomic_thread_fence(cuda::memory_order_acquire, DEV);
  int sum = 0;
  for (unsigned b = 0; b < blockIdx.x; ++b) sum += d[b];
  d[blockIdx.x] = sum + 1;
  if (Order == 3) cuda::atomic_thread_fence(cuda::memory_order_release, DEV);
  a.fetch_add(1, add);
}
__global__ void weakflag(int* d, int* f, int* o) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0)
    *f = 1;
  else
    o[blockIdx.x] = atomicAdd(f, 0);
}
__global__ void strong(int* d, int* f, int* o) {  // no order, but nothing that tears or is cached
  *(vint*)d = blockIdx.x;
  o[TID] = *(vint*)d;
}
__global__ void sizes(int* d, int* f, int* o) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0)
    atomicAdd((unsigned long long*)d, 1);
  else
    o[blockIdx.x] = *(vint*)d;
}
__global__ void plusplus(int* d, int* f, int* o) {
  if (threadIdx.x == 0) ++*d;
}
template <bool Sync>
__global__ void grid(int* d, int* f, int* o) {
  auto g = cg::this_grid();
  d[g.thread_rank()] = g.thread_rank();
  if (Sync)
    g.sync();
  else
    __syncthreads();
  o[g.thread_rank()] = d[g.num_threads() - 1 - g.thread_rank()];
  g.sync();
  d[g.thread_rank()] = o[(g.thread_rank() + 100) % g.num_threads()];
}
__global__ void gridlate(int* d, int* f, int* o) {  // one sync too few: the second turn overwrites what others read
  auto g = cg::this_grid();
  for (int turn = 0; turn < 2; ++turn) {
    if (g.thread_rank() == 0) *d = turn;
    g.sync();
    o[g.thread_rank()] = *d;
  }
}
template <int Late>
__global__ void nc(int* d, int* f, int* o) {
  auto g = cg::this_grid();
  if (!Late) d[g.thread_rank()] = 1;
  g.sync();
  o[g.thread_rank()] = __ldg(d + (g.thread_rank() + 64) % g.num_threads());
  g.sync();
  if (Late) d[g.thread_rank()] = 1;
}
__global__ void ncgood(int* d, int* f, int* o) { o[TID] = __ldg(d + TID / 2); }
// the block that comes last adds up: 0 thread 0 has a fence, 1 all have one before the barrier, 2 none, 3 none after
// the counter, 4 acquire and release
template <int Kind>
__global__ void last(int* d, int* f, int* o) {
  __shared__ bool mine;
  if (Kind != 1) {
    if (threadIdx.x == 0) d[blockIdx.x] = blockIdx.x;
  } else {
    d[TID] = TID;
    __threadfence();
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    if (Kind == 0 || Kind == 3) __threadfence();
    int before;
    if (Kind == 4)
      before = aref<DEV>(*f).fetch_add(1, cuda::memory_order_acq_rel);
    else
      before = atomicAdd(f, 1);
    mine = before == (int)gridDim.x - 1;
    if (Kind == 0) __threadfence();
  }
  __syncthreads();
  if (Kind == 1) __threadfence();
  if (mine)
    o[threadIdx.x] = Kind == 1 ? d[threadIdx.x * 2] + d[gridDim.x * blockDim.x - 1] : d[threadIdx.x % gridDim.x];
}
template <bool Fences>
__global__ void lock(int* d, int* f, int* o) {
  if (threadIdx.x) return;
  while (atomicCAS(f, 0, 1) != 0);
  if (Fences) __threadfence();
  ++*d;
  if (Fences) __threadfence();
  atomicExch(f, 0);
}
__global__ void histogram(int* d, int* f, int* o) {
  atomicAdd(&d[TID % 10], 1);
  if (threadIdx.x == 0) atomicMax(&d[11], blockIdx.x);
}
__global__ void same(int* d, int* f, int* o) { d[threadIdx.x % 2] = 5; }
__global__ void vec(int* d, int* f, int* o) {
  if (blockIdx.x == 0) ((int4*)d)[threadIdx.x] = {1, 2, 3, 4};
  if (blockIdx.x == 1 && threadIdx.x == 5) o[0] = d[7];
}
// ---- within a block
template <bool Sync>
__global__ void shared(int* d, int* f, int* o) {
  __shared__ int s[256];
  s[threadIdx.x] = threadIdx.x;
  if (Sync) __syncthreads();
  o[TID] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void again(int* d, int* f, int* o) {  // read, then written by the next turn without a barrier between
  __shared__ int s;
  for (int i = 0; i < 2; ++i) {
    if (threadIdx.x == 40) s = i;
    __syncthreads();
    o[TID] = s;
  }
}
template <bool Sync>
__global__ void warp(int* d, int* f, int* o) {
  __shared__ int s[256];
  s[threadIdx.x] = threadIdx.x;
  if (Sync)
    __syncwarp();
  else
    __shfl_sync(~0u, threadIdx.x, 0);
  o[TID] = s[threadIdx.x ^ 1];
}
template <bool All>
__global__ void part(int* d, int* f, int* o) {  // half a warp synchronises
  __shared__ int s[32];
  if (threadIdx.x >= 32) return;
  s[threadIdx.x] = threadIdx.x;
  if (threadIdx.x < 16) {
    __syncwarp(0xffff);
    o[TID] = s[(threadIdx.x + 1) % (All ? 16 : 32)];
  }
}
template <bool Two>
__global__ void named(int* d, int* f, int* o) {  // warps 0 and 1 fill, warp 2 reads
  __shared__ int s[64];
  if (threadIdx.x < 64) {
    s[threadIdx.x] = threadIdx.x;
    if (Two || threadIdx.x < 32) asm volatile("bar.arrive 1, %0;" ::"r"(Two ? 96 : 64) : "memory");
  } else if (threadIdx.x < 96) {
    asm volatile("bar.sync 1, %0;" ::"r"(Two ? 96 : 64) : "memory");
    o[TID] = s[threadIdx.x - 64] + s[threadIdx.x - 32];
  }
}
__global__ void bytes(int* d, int* f, int* o) {
  ((unsigned char*)d)[TID] = 1;
  __shared__ short s[256];
  s[threadIdx.x] = 1;
  __syncthreads();
  o[TID] = ((int*)s)[threadIdx.x / 2];
}
__global__ void bytes2(int* d, int* f, int* o) { ((unsigned char*)d)[TID / 2] = TID; }
__global__ void mbar(int* d, int* f, int* o) {
  using B = cuda::barrier<BLK>;
  __shared__ B b;
  __shared__ int s[256];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  for (int i = 0; i < 3; ++i) {
    s[threadIdx.x] = i;
    b.arrive_and_wait();
    o[TID] = s[(threadIdx.x + 33) % blockDim.x];
    b.arrive_and_wait();
  }
}
__global__ void blockscope(int* d, int* f, int* o) {  // warps of one block, ordered by atomics of .cta scope
  aref<BLK> a(f[blockIdx.x]);
  if (threadIdx.x == 0) {
    d[blockIdx.x] = 1;
    a.store(1, cuda::memory_order_release);
  } else if (threadIdx.x == 32) {
    while (a.load(cuda::memory_order_acquire) == 0);
    o[blockIdx.x] = d[blockIdx.x];
  }
}
__global__ void warpthen(int* d, int* f, int* o) {  // a warp's writes, bar.warp.sync, then lane 0 releases them
  aref<DEV> a(*f);
  if (threadIdx.x >= 32) return;
  if (blockIdx.x == 0) {
    d[threadIdx.x] = threadIdx.x;
    __syncwarp();
    if (threadIdx.x == 0) a.store(1, cuda::memory_order_release);
  } else {
    if (threadIdx.x == 0)
      while (a.load(cuda::memory_order_acquire) == 0);
    __syncwarp();
    o[TID] = d[31 - threadIdx.x];
  }
}
// ---- CUB
template <class F>
static void twice(F f) {
  size_t n = 0;
  f(nullptr, n);
  void* tmp;
  cudaMalloc(&tmp, n);
  f(tmp, n);
  cudaFree(tmp);
}
struct odd {
  __device__ bool operator()(int x) const { return x & 1; }
};
static void cubs(char const* c) {
  int const n = 100003;
  int *in, *out, *m;
  cudaMalloc(&in, n * 4);
  cudaMalloc(&out, n * 4);
  cudaMalloc(&m, 4);
  std::vector<int> h(n);
  for (int i = 0; i < n; ++i) h[i] = (i * 2654435761u) >> 7;
  cudaMemcpy(in, h.data(), n * 4, cudaMemcpyHostToDevice);
  twice([&](void* t, size_t& s) {
    if (!strcmp(c, "cubscan")) cub::DeviceScan::ExclusiveSum(t, s, in, out, n);
    if (!strcmp(c, "cubselect")) cub::DeviceSelect::If(t, s, in, out, m, n, odd{});
    if (!strcmp(c, "cubreduce")) cub::DeviceReduce::Sum(t, s, in, out, n);
    if (!strcmp(c, "cubsort")) cub::DeviceRadixSort::SortKeys(t, s, in, out, n);
    if (!strcmp(c, "cubhist")) cub::DeviceHistogram::HistogramEven(t, s, in, out, 65, 0, 1 << 25, n);
  });
}
int main(int n, char** v) {
  int *d, *f, *o, blocks = 8, threads = 256;
  for (int** p : {&d, &f, &o}) cudaMalloc(p, 1 << 16);
  auto wanted = [&](char const* name, bool good) {
    for (int i = 1; i < n; ++i)
      if (!strcmp(v[i], name) || !strcmp(v[i], good ? "good" : "bad")) return true;
    return false;
  };
  int failures = 0, ran = 0;
  auto done = [&](char const* name) {
    cudaError_t e = cudaDeviceSynchronize();
    printf("%s: %s\n", name, cudaGetErrorString(e));
    fflush(stdout);
    failures += e != cudaSuccess;
    ++ran;
  };
  auto run = [&](char const* name, bool good, auto* k) {
    if (!wanted(name, good)) return;
    for (int* p : {d, f, o}) cudaMemset(p, 0, 1 << 16);
    void* a[] = {&d, &f, &o};
    cudaLaunchCooperativeKernel(k, dim3(blocks), dim3(threads), a, 0, nullptr);
    done(name);
  };
  auto good = [&](char const* name, auto* k) { run(name, true, k); };
  auto bad = [&](char const* name, auto* k) { run(name, false, k); };
  good("flag", flag<true, true>);
  bad("flag-norelease", flag<false, true>);
  bad("flag-noacquire", flag<true, false>);
  good("ref", ref<DEV>);
  bad("ref-block", ref<BLK>);
  bad("chain-relaxed", chain<0>);
  good("chain", chain<1>);
  good("chain-seqcst", chain<2>);
  good("chain-fences", chain<3>);
  bad("weakflag", weakflag);
  good("strong", strong);
  bad("sizes", sizes);
  bad("plusplus", plusplus);
  good("grid", grid<true>);
  bad("grid-nosync", grid<false>);
  bad("grid-late", gridlate);
  bad("nc", nc<0>);
  bad("nc-late", nc<1>);
  good("nc-good", ncgood);
  good("last", last<0>);
  good("last-all", last<1>);
  bad("last-none", last<2>);
  bad("last-noacquire", last<3>);
  good("last-acqrel", last<4>);
  good("lock", lock<true>);
  bad("lock-nofence", lock<false>);
  good("histogram", histogram);
  good("same", same);
  bad("vec", vec);
  good("shared", shared<true>);
  bad("shared-nosync", shared<false>);
  bad("again", again);
  good("warp", warp<true>);
  bad("warp-nosync", warp<false>);
  good("part", part<true>);
  bad("part-more", part<false>);
  good("named", named<true>);
  bad("named-less", named<false>);
  good("bytes", bytes);
  bad("bytes-same", bytes2);
  good("mbar", mbar);
  good("blockscope", blockscope);
  good("warpthen", warpthen);
  for (char const* c : {"cubscan", "cubselect", "cubreduce", "cubsort", "cubhist"})
    if (wanted(c, true)) {
      cubs(c);
      done(c);
    }
  printf("%d cases ran\n%d failures\n", ran, failures);
  return failures != 0;
}
