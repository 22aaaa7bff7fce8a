#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>
namespace cg = cooperative_groups;
#include "check.h"

__global__ void vadd(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void reduce_shfl(float const* x, double* out, int n) {
  __shared__ double ws[32];
  double s = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += x[i];
  for (int o = 16; o; o >>= 1) s += __shfl_down_sync(0xffffffffu, s, o);
  int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  if (!lane) ws[w] = s;
  __syncthreads();
  if (w == 0) {
    s = lane < (blockDim.x >> 5) ? ws[lane] : 0.0;
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
    if (!lane) atomicAdd(out, s);
  }
}
__global__ void hist_shared(uint32_t const* k, int n, unsigned* h) {
  __shared__ unsigned sh[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) sh[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&sh[k[i] >> 24], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (sh[i]) atomicAdd(&h[i], sh[i]);
}
__global__ void hist_match(uint32_t const* k, int n, unsigned* h) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned act = __ballot_sync(~0u, i < n);
  if (i >= n) return;
  unsigned d = k[i] >> 24;
  unsigned m = __match_any_sync(act, d);
  if ((__ffs(m) - 1) == (int)(threadIdx.x & 31)) atomicAdd(&h[d], __popc(m));
}
// decoupled look-back compaction
__device__ unsigned g_ticket;
__device__ unsigned long long g_state[1 << 14];
__global__ void clear_state(int nb) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i == 0) g_ticket = 0;
  if (i < nb) g_state[i] = 0;
}
__global__ void compact(float const* x, int n, float thr, float* ov, int* oi, unsigned* count) {
  __shared__ unsigned bid_s, wsum[32], prefix_s;
  if (threadIdx.x == 0) bid_s = atomicAdd(&g_ticket, 1u);
  __syncthreads();
  unsigned b = bid_s;
  int i = b * blockDim.x + threadIdx.x;
  float v = i < n ? x[i] : 0;
  bool keep = i < n && fabsf(v) > thr;
  unsigned lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  unsigned bal = __ballot_sync(~0u, keep);
  if (lane == 0) wsum[w] = __popc(bal);
  __syncthreads();
  if (w == 0) {
    unsigned c = lane < (blockDim.x >> 5) ? wsum[lane] : 0, inc = c;
    for (int o = 1; o < 32; o <<= 1) {
      unsigned y = __shfl_up_sync(~0u, inc, o);
      if (lane >= o) inc += y;
    }
    if (lane < (blockDim.x >> 5)) wsum[lane] = inc - c;
    unsigned tot = __shfl_sync(~0u, inc, 31);
    if (lane == 0) {
      unsigned long long volatile* st = g_state;
      unsigned excl = 0;
      if (b == 0) {
        __threadfence();
        st[0] = (2ull << 32) | tot;
      } else {
        st[b] = (1ull << 32) | tot;
        __threadfence();
        int p = b - 1;
        while (true) {
          unsigned long long s;
          do {
            s = st[p];
          } while ((s >> 32) == 0);
          excl += (unsigned)s;
          if ((s >> 32) == 2) break;
          --p;
        }
        __threadfence();
        st[b] = (2ull << 32) | (excl + tot);
      }
      prefix_s = excl;
      if ((b + 1) * blockDim.x >= (unsigned)n) *count = excl + tot;
    }
  }
  __syncthreads();
  if (keep) {
    unsigned pos = prefix_s + wsum[w] + __popc(bal & ((1u << lane) - 1));
    ov[pos] = v;
    oi[pos] = i;
  }
}
__global__ void cg_kernel(int const* x, int* tile_sums, int* scan, int n) {
  auto blk = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(blk);
  int i = blk.group_index().x * blk.size() + blk.thread_rank();
  int v = i < n ? x[i] : 0;
  int s = cg::reduce(tile, v, cg::plus<int>());
  int e = cg::exclusive_scan(tile, v, cg::plus<int>());
  if (i < n) scan[i] = e;
  if (tile.thread_rank() == 0) tile_sums[i / 16] = s;
  blk.sync();
}
__global__ void coalesced_inc(unsigned* ctr, int const* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && (x[i] & 1)) {
    auto g = cg::coalesced_threads();
    if (g.thread_rank() == 0) atomicAdd(ctr, g.size());
  }
}
__global__ void grid_sync_k(unsigned* buf, int rounds) {
  auto g = cg::this_grid();
  unsigned t = g.thread_rank(), N = g.size();
  for (int r = 0; r < rounds; ++r) {
    unsigned v = buf[(r & 1) * N + (t + 1) % N];
    buf[((r + 1) & 1) * N + t] = v + 1;
    g.sync();
  }
}
__constant__ float c_tab[8];
__device__ int d_sym[4] = {1, 2, 3, 4};
__global__ void sym_k(float* o) {
  extern __shared__ float dyn[];
  dyn[threadIdx.x] = c_tab[threadIdx.x] * d_sym[threadIdx.x & 3];
  __syncthreads();
  o[threadIdx.x] = dyn[7 - threadIdx.x];
  if (threadIdx.x < 4) d_sym[threadIdx.x] += 10;
}
__global__ void bar_red(int* o) {
  int c = __syncthreads_count(threadIdx.x % 3 == 0);
  int a = __syncthreads_and(threadIdx.x < 1000), r = __syncthreads_or(threadIdx.x == 77);
  if (threadIdx.x == 0) {
    o[0] = c;
    o[1] = a;
    o[2] = r;
  }
  unsigned al = __all_sync(~0u, threadIdx.x < 64), an = __any_sync(~0u, threadIdx.x == 5);
  if (threadIdx.x == 32) {
    o[3] = al;
    o[4] = an;
  }
}
__global__ void casmax(float* m, float const* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int* p = (int*)m;
    int old = *p, as;
    do {
      as = old;
      if (__int_as_float(as) >= x[i]) break;
      old = atomicCAS(p, as, __float_as_int(x[i]));
    } while (as != old);
  }
}
__global__ void mathk(float const* x, float* o, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float v = x[i];
    o[i] = sqrtf(fabsf(v)) + expf(v) * sinf(v) + logf(fabsf(v) + 1) + powf(fabsf(v), 1.3f) + tanhf(v) + v / (1 + v * v);
  }
}
__global__ void spinlock(int* lock, int* ctr) {
  for (int k = 0; k < 2; ++k) {
    bool done = false;
    while (!done) {
      if (atomicCAS(lock, 0, 1) == 0) {
        *(int volatile*)ctr = *(int volatile*)ctr + 1;
        __threadfence();
        atomicExch(lock, 0);
        done = true;
      }
    }
  }
}

int main() {
  int n = 1000003;
  std::mt19937 g(1);
  std::normal_distribution<float> N(0, 1);
  std::vector<float> a(n), b(n), c(n);
  for (auto& v : a) v = N(g);
  for (auto& v : b) v = N(g);
  float *da, *db, *dc;
  CK(cudaMalloc(&da, n * 4));
  CK(cudaMalloc(&db, n * 4));
  CK(cudaMalloc(&dc, n * 4));
  CK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  vadd<<<(n + 255) / 256, 256>>>(da, db, dc, n);
  CK(cudaGetLastError());
  CK(cudaDeviceSynchronize());
  CK(cudaMemcpy(c.data(), dc, n * 4, cudaMemcpyDeviceToHost));
  bool ok = true;
  for (int i = 0; i < n; ++i) ok &= c[i] == a[i] + b[i];
  CHECK("vector add", ok);
  double* ds;
  CK(cudaMalloc(&ds, 8));
  CK(cudaMemset(ds, 0, 8));
  reduce_shfl<<<64, 256>>>(da, ds, n);
  double hs;
  CK(cudaMemcpy(&hs, ds, 8, cudaMemcpyDeviceToHost));
  double ref = 0;
  for (float v : a) ref += v;
  CHECK("block reduction shfl", fabs(hs - ref) < 1e-6 * n);
  std::vector<uint32_t> k(n);
  for (auto& v : k) v = g();
  uint32_t* dk;
  unsigned* dh;
  CK(cudaMalloc(&dk, n * 4));
  CK(cudaMalloc(&dh, 1024));
  CK(cudaMemcpy(dk, k.data(), n * 4, cudaMemcpyHostToDevice));
  std::vector<unsigned> h(256), hr(256);
  for (auto v : k) hr[v >> 24]++;
  CK(cudaMemset(dh, 0, 1024));
  hist_shared<<<40, 256>>>(dk, n, dh);
  CK(cudaMemcpy(h.data(), dh, 1024, cudaMemcpyDeviceToHost));
  CHECK("histogram shared atomics", h == hr);
  CK(cudaMemset(dh, 0, 1024));
  hist_match<<<(n + 255) / 256, 256>>>(dk, n, dh);
  CK(cudaMemcpy(h.data(), dh, 1024, cudaMemcpyDeviceToHost));
  CHECK("histogram match_any", h == hr);
  int nb = (n + 255) / 256;
  float* ov;
  int* oi;
  unsigned* cnt;
  CK(cudaMalloc(&ov, n * 4));
  CK(cudaMalloc(&oi, n * 4));
  CK(cudaMalloc(&cnt, 4));
  clear_state<<<(nb + 255) / 256, 256>>>(nb);
  compact<<<nb, 256>>>(da, n, 1.5f, ov, oi, cnt);
  unsigned hc;
  CK(cudaMemcpy(&hc, cnt, 4, cudaMemcpyDeviceToHost));
  std::vector<int> ri;
  for (int i = 0; i < n; ++i)
    if (fabsf(a[i]) > 1.5f) ri.push_back(i);
  ok = hc == ri.size();
  if (ok) {
    std::vector<int> gi(hc);
    std::vector<float> gv(hc);
    CK(cudaMemcpy(gi.data(), oi, hc * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(gv.data(), ov, hc * 4, cudaMemcpyDeviceToHost));
    ok = gi == ri;
    for (unsigned i = 0; i < hc; ++i) ok &= gv[i] == a[ri[i]];
  }
  CHECK("decoupled look-back compaction", ok);
  {
    int m = 1000;
    std::vector<int> x(m);
    for (int i = 0; i < m; ++i) x[i] = (i * 37) % 101;
    int *dx, *ts, *sc;
    CK(cudaMalloc(&dx, m * 4));
    CK(cudaMalloc(&ts, 64 * 4));
    CK(cudaMalloc(&sc, m * 4));
    CK(cudaMemcpy(dx, x.data(), m * 4, cudaMemcpyHostToDevice));
    cg_kernel<<<8, 128>>>(dx, ts, sc, m);
    std::vector<int> hts(63), hsc(m);
    CK(cudaMemcpy(hts.data(), ts, 63 * 4, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(hsc.data(), sc, m * 4, cudaMemcpyDeviceToHost));
    ok = true;
    for (int t = 0; t < 63; ++t) {
      int s = 0;
      for (int i = t * 16; i < std::min(m, t * 16 + 16); ++i) {
        ok &= hsc[i] == s;
        s += x[i];
      }
      ok &= s == hts[t];
    }
    CHECK("cg tile reduce/scan", ok);
    unsigned* ctr;
    CK(cudaMalloc(&ctr, 4));
    CK(cudaMemset(ctr, 0, 4));
    coalesced_inc<<<8, 128>>>(ctr, dx, m);
    unsigned hcn;
    CK(cudaMemcpy(&hcn, ctr, 4, cudaMemcpyDeviceToHost));
    unsigned rc = 0;
    for (int v : x) rc += v & 1;
    CHECK("cg coalesced_threads", hcn == rc);
  }
  {
    unsigned nbk = 12, nt = 96, Nn = nbk * nt;
    unsigned* buf;
    CK(cudaMalloc(&buf, 2 * Nn * 4));
    std::vector<unsigned> hb(2 * Nn, 0);
    for (unsigned i = 0; i < Nn; ++i) hb[i] = i;
    CK(cudaMemcpy(buf, hb.data(), 2 * Nn * 4, cudaMemcpyHostToDevice));
    int rounds = 5;
    void* args[] = {&buf, &rounds};
    CK(cudaLaunchCooperativeKernel((void*)grid_sync_k, dim3(nbk), dim3(nt), args, 0, 0));
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(hb.data(), buf, 2 * Nn * 4, cudaMemcpyDeviceToHost));
    ok = true;
    for (unsigned i = 0; i < Nn; ++i) ok &= hb[(rounds & 1) * Nn + i] == (i + rounds) % Nn + rounds;
    CHECK("cg grid.sync cooperative", ok);
  }
  {
    float ct[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    CK(cudaMemcpyToSymbol(c_tab, ct, 32));
    sym_k<<<1, 8, 32>>>(dc);
    float o[8];
    CK(cudaMemcpy(o, dc, 32, cudaMemcpyDeviceToHost));
    int ds4[4];
    CK(cudaMemcpyFromSymbol(ds4, d_sym, 16));
    ok = true;
    for (int i = 0; i < 8; ++i) ok &= o[i] == ct[7 - i] * ((7 - i) % 4 + 1);
    for (int i = 0; i < 4; ++i) ok &= ds4[i] == i + 11;
    CHECK("symbols + dynamic smem", ok);
  }
  {
    int* o;
    CK(cudaMalloc(&o, 20));
    bar_red<<<1, 256>>>(o);
    int h5[5];
    CK(cudaMemcpy(h5, o, 20, cudaMemcpyDeviceToHost));
    CHECK("syncthreads_count/and/or, all/any", h5[0] == 86 && h5[1] != 0 && h5[2] != 0 && h5[3] == 1 && h5[4] == 0);
  }
  {
    float z = -1e30f;
    CK(cudaMemcpy(dc, &z, 4, cudaMemcpyHostToDevice));
    casmax<<<nb, 256>>>(dc, da, n);
    CK(cudaMemcpy(&z, dc, 4, cudaMemcpyDeviceToHost));
    CHECK("CAS float max", z == *std::max_element(a.begin(), a.end()));
  }
  {
    mathk<<<nb, 256>>>(da, dc, n);
    CK(cudaMemcpy(c.data(), dc, n * 4, cudaMemcpyDeviceToHost));
    double me = 0;
    for (int i = 0; i < n; ++i) {
      double v = a[i];
      double r = sqrt(fabs(v)) + exp(v) * sin(v) + log(fabs(v) + 1) + pow(fabs(v), 1.3) + tanh(v) + v / (1 + v * v);
      me = std::max(me, fabs(r - c[i]) / (1 + fabs(r)));
    }
    printf("   max rel err %.3g\n", me);
    CHECK("libdevice math", me < 1e-5);
  }
  {
    int* l;
    CK(cudaMalloc(&l, 8));
    CK(cudaMemset(l, 0, 8));
    spinlock<<<4, 64>>>(l, l + 1);
    int hv[2];
    CK(cudaMemcpy(hv, l, 8, cudaMemcpyDeviceToHost));
    CHECK("spin lock (divergent)", hv[1] == 512);
  }
  printf("%d failures\n", fails);
  return fails != 0;
}
