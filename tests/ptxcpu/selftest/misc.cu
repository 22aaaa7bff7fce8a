#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <numeric>
#include <random>
#include <vector>
namespace cg = cooperative_groups;
#include "check.h"
__global__ void halfk(const float* a, const float* b, float* o, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) {
    __half x = __float2half(a[i]), y = __float2half(b[i]);
    o[i * 4] = __half2float(x + y);
    o[i * 4 + 1] = __half2float(x * y);
    o[i * 4 + 2] = __half2float(__hfma(x, y, x));
    __half2 h = __halves2half2(x, y);
    __half2 r = __hmul2(h, h);
    o[i * 4 + 3] = __low2float(r) + __high2float(r);
  }
}
__global__ void bf16k(float const* a, float* o, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i < n) {
    __nv_bfloat16 x = __float2bfloat16(a[i]);
    o[i] = __bfloat162float(x * x + x);
  }
}
__global__ void catom(int* c, float* f) {
  cuda::atomic_ref<int, cuda::thread_scope_device> r(*c);
  r.fetch_add(1, cuda::memory_order_relaxed);
  r.fetch_max(5, cuda::memory_order_acq_rel);
  cuda::atomic_ref<float, cuda::thread_scope_device> q(*f);
  q.fetch_add(0.5f);
}
__global__ void cbar(int* o) {
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  __shared__ int s[128];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  s[threadIdx.x] = threadIdx.x;
  b.arrive_and_wait();
  o[threadIdx.x] = s[127 - threadIdx.x];
}
__global__ void masync(int const* g, int* o) {
  __shared__ int s[256];
  auto blk = cg::this_thread_block();
  cg::memcpy_async(blk, s, g, sizeof s);
  cg::wait(blk);
  o[threadIdx.x] = s[255 - threadIdx.x];
}
struct Op {
  __device__ virtual float f(float) const = 0;
};
struct A : Op {
  __device__ float f(float x) const override { return x + 1; }
};
struct B_ : Op {
  __device__ float f(float x) const override { return x * 3; }
};
__global__ void virt(float* o) {
  Op* p;
  A a;
  B_ b;
  if (threadIdx.x & 1)
    p = &a;
  else
    p = &b;
  o[threadIdx.x] = p->f(threadIdx.x);
}
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void fibk(int* o) { o[threadIdx.x] = fib(threadIdx.x); }
typedef float (*FP)(float);
__device__ float sq(float x) { return x * x; }
__device__ float cu(float x) { return x * x * x; }
__device__ FP tab[2] = {sq, cu};
__global__ void fptr(float* o) { o[threadIdx.x] = tab[threadIdx.x & 1](threadIdx.x); }
__host__ __device__ int switched(int v, int const* o) {
  switch (v) {
    case 0:
      return 5;
    case 1:
      return o[0] + 7;
    case 2:
      return v * 9 + o[1];
    case 3:
      return 11 ^ o[2];
    case 4:
      return 13 - o[3];
    case 5:
      return 17;
    case 6:
      return o[4] * 3;
    default:
      return -1;
  }
}
__global__ void sw(int const* x, int* o) { o[threadIdx.x + 16] = switched(x[threadIdx.x], o); }
__global__ void i64(long long const* a, long long const* b, long long* o) {
  int i = threadIdx.x;
  o[i * 6] = a[i] / b[i];
  o[i * 6 + 1] = a[i] % b[i];
  o[i * 6 + 2] = __mul64hi(a[i], b[i]);
  o[i * 6 + 3] = __popcll(a[i]) + __clzll(a[i]) + __ffsll(b[i]);
  o[i * 6 + 4] = (long long)__umul64hi(a[i], b[i]);
  o[i * 6 + 5] = a[i] >> (b[i] & 63);
}
__global__ void bits(unsigned const* a, unsigned* o) {
  int i = threadIdx.x;
  unsigned x = a[i];
  o[i * 6] = __brev(x);
  o[i * 6 + 1] = __byte_perm(x, ~x, 0x2674);
  o[i * 6 + 2] = __funnelshift_l(x, ~x, i);
  o[i * 6 + 3] = __funnelshift_r(x, x * 3, i + 5);
  o[i * 6 + 4] = __vadd4(x, 0x01020304);
  o[i * 6 + 5] = __dp4a((int)x, 0x01020304, 7);
}
__global__ void dbl(double const* a, double* o) {
  int i = threadIdx.x;
  o[i] = exp(a[i]) * log1p(fabs(a[i])) + erf(a[i]) + cbrt(a[i]) + atan2(a[i], 2.0) + fma(a[i], a[i], 1.0) + rint(a[i]) +
         sin(a[i] * 1000);
}
__global__ void rnds(float const* a, float* o) {
  int i = threadIdx.x;
  o[i * 4] = __fadd_ru(a[i], 1e-7f);
  o[i * 4 + 1] = __fmul_rd(a[i], 1.1f);
  o[i * 4 + 2] = __float2int_rn(a[i]) + __float2int_rz(a[i]) * 100 + __float2int_ru(a[i]) * 10000;
  o[i * 4 + 3] = __fdiv_rz(a[i], 3.f);
}
// x: a negative subnormal number
__global__ void flush(float x, double tiny, unsigned* o) {
  float r;
  double d;
  unsigned p;
  asm volatile("neg.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  o[0] = __float_as_uint(r);
  asm volatile("neg.f32 %0, %1;" : "=f"(r) : "f"(x));
  o[1] = __float_as_uint(r);
  asm volatile("abs.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  o[2] = __float_as_uint(r);
  asm volatile("sub.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(0.f));
  o[3] = __float_as_uint(r);
  asm volatile("cvt.ftz.f64.f32 %0, %1;" : "=d"(d) : "f"(x));
  o[4] = (unsigned)__double2hiint(d);
  asm volatile("cvt.rn.ftz.f32.f64 %0, %1;" : "=f"(r) : "d"(tiny));
  o[5] = __float_as_uint(r);
  asm volatile("cvt.rn.f32.f64 %0, %1;" : "=f"(r) : "d"(tiny));
  o[6] = __float_as_uint(r);
  asm volatile("slct.ftz.f32.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(1.f), "f"(2.f), "f"(x));
  o[7] = __float_as_uint(r);
  asm volatile("{.reg .pred q; setp.lt.ftz.f32 q, %1, %2; selp.u32 %0, 1, 0, q;}" : "=r"(p) : "f"(x), "f"(0.f));
  o[8] = p;
}
__global__ void big(int* o) {
  int loc[200];
  for (int i = 0; i < 200; ++i) loc[i] = i * threadIdx.x;
  int s = 0;
  for (int i = 0; i < 200; ++i) s += loc[(i * 7 + threadIdx.x) % 200];
  o[threadIdx.x] = s;
}
__global__ void d3(int* o) {
  int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  o[b * 24 + t] = b * 1000 + t;
}
int main() {
  std::mt19937 g(3);
  std::uniform_real_distribution<float> U(-3, 3);
  int n = 1000;
  std::vector<float> a(n), b(n);
  for (auto& v : a) v = U(g);
  for (auto& v : b) v = U(g);
  float *da, *db, *dof;
  CK(cudaMalloc(&da, n * 4));
  CK(cudaMalloc(&db, n * 4));
  CK(cudaMalloc(&dof, n * 16));
  CK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(db, b.data(), n * 4, cudaMemcpyHostToDevice));
  bool ok;
  {
    halfk<<<4, 256>>>(da, db, dof, n);
    std::vector<float> o(4 * n);
    CK(cudaMemcpy(o.data(), dof, 16 * n, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < n; ++i) {
      __half x = __float2half(a[i]), y = __float2half(b[i]);
      float xf = __half2float(x), yf = __half2float(y);
      auto r = [](double v) { return __half2float(__double2half(v)); };
      ok &= o[i * 4] == r((double)xf + yf) && o[i * 4 + 1] == r((double)xf * yf) &&
            o[i * 4 + 2] == r((double)xf * yf + xf) && o[i * 4 + 3] == r((double)xf * xf) + r((double)yf * yf);
    }
    CHECK("fp16", ok);
  }
  {
    bf16k<<<4, 256>>>(da, dof, n);
    std::vector<float> o(n);
    CK(cudaMemcpy(o.data(), dof, 4 * n, cudaMemcpyDeviceToHost));
    ok = true;
    auto r = [](float v) { return __bfloat162float(__float2bfloat16(v)); };
    for (int i = 0; i < n; ++i) {
      float x = r(a[i]);
      float two = r(r(x * x) + x), one = r(fmaf(x, x, x));
      ok &= o[i] == two || o[i] == one;
    }
    CHECK("bf16", ok);
  }
  {
    int* c;
    CK(cudaMalloc(&c, 8));
    CK(cudaMemset(c, 0, 8));
    catom<<<10, 100>>>(c, (float*)c + 1);
    int h[2];
    CK(cudaMemcpy(h, c, 8, cudaMemcpyDeviceToHost));
    float f;
    memcpy(&f, h + 1, 4);
    CHECK("cuda::atomic_ref", h[0] >= 1000 && h[0] <= 1005 && f == 500);
  }
  int* di;
  CK(cudaMalloc(&di, 1 << 16));
  std::vector<int> h(4096);
  auto get = [&](int k) { CK(cudaMemcpy(h.data(), di, k * 4, cudaMemcpyDeviceToHost)); };
  cbar<<<1, 128>>>(di);
  get(128);
  ok = true;
  for (int i = 0; i < 128; ++i) ok &= h[i] == 127 - i;
  CHECK("cuda::barrier", ok);
  {
    int* s;
    CK(cudaMalloc(&s, 1024));
    std::vector<int> q(256);
    std::iota(q.begin(), q.end(), 9);
    CK(cudaMemcpy(s, q.data(), 1024, cudaMemcpyHostToDevice));
    masync<<<1, 256>>>(s, di);
    get(256);
    ok = true;
    for (int i = 0; i < 256; ++i) ok &= h[i] == q[255 - i];
    CHECK("cg::memcpy_async", ok);
  }
  {
    virt<<<1, 32>>>(dof);
    float o[32];
    CK(cudaMemcpy(o, dof, 128, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < 32; ++i) ok &= o[i] == ((i & 1) ? i + 1 : i * 3);
    CHECK("virtual functions", ok);
  }
  {
    fibk<<<1, 12>>>(di);
    get(12);
    int f[12] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
    ok = !memcmp(f, h.data(), 48);
    CHECK("recursion", ok);
  }
  {
    fptr<<<1, 32>>>(dof);
    float o[32];
    CK(cudaMemcpy(o, dof, 128, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < 32; ++i) ok &= o[i] == ((i & 1) ? i * i * i : i * i);
    CHECK("function pointer table", ok);
  }
  {
    int q[16];
    for (int i = 0; i < 16; ++i) q[i] = (i * 5) % 9;
    int* s;
    CK(cudaMalloc(&s, 64));
    CK(cudaMemcpy(s, q, 64, cudaMemcpyHostToDevice));
    int o[32];
    for (int i = 0; i < 32; ++i) o[i] = i * 3;
    CK(cudaMemcpy(di, o, 128, cudaMemcpyHostToDevice));
    sw<<<1, 16>>>(s, di);
    get(32);
    ok = true;
    for (int i = 0; i < 16; ++i) ok &= h[16 + i] == switched(q[i], o);
    CHECK("switch / brx", ok);
  }
  {
    std::vector<long long> x(32), y(32), o(192);
    std::mt19937_64 G(5);
    for (auto& v : x) v = G();
    for (auto& v : y) v = (long long)(G() >> (G() % 50));
    long long *dx, *dy, *dd;
    CK(cudaMalloc(&dx, 256));
    CK(cudaMalloc(&dy, 256));
    CK(cudaMalloc(&dd, 192 * 8));
    CK(cudaMemcpy(dx, x.data(), 256, cudaMemcpyHostToDevice));
    CK(cudaMemcpy(dy, y.data(), 256, cudaMemcpyHostToDevice));
    i64<<<1, 32>>>(dx, dy, dd);
    CK(cudaMemcpy(o.data(), dd, 192 * 8, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < 32; ++i) {
      ok &=
          o[i * 6] == x[i] / y[i] && o[i * 6 + 1] == x[i] % y[i] &&
          o[i * 6 + 2] == (long long)(((__int128)x[i] * y[i]) >> 64) &&
          o[i * 6 + 3] == __builtin_popcountll(x[i]) + (x[i] ? __builtin_clzll(x[i]) : 64) + __builtin_ffsll(y[i]) &&
          o[i * 6 + 4] == (long long)(((unsigned __int128)(unsigned long long)x[i] * (unsigned long long)y[i]) >> 64) &&
          o[i * 6 + 5] == x[i] >> (y[i] & 63);
    }
    CHECK("64-bit int", ok);
  }
  {
    std::vector<unsigned> x(32), o(192);
    for (auto& v : x) v = g();
    unsigned* dx;
    CK(cudaMalloc(&dx, 128));
    CK(cudaMemcpy(dx, x.data(), 128, cudaMemcpyHostToDevice));
    bits<<<1, 32>>>(dx, (unsigned*)di);
    CK(cudaMemcpy(o.data(), di, 768, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < 32; ++i) {
      unsigned v = x[i], r = 0;
      for (int k = 0; k < 32; ++k) r |= ((v >> k) & 1) << (31 - k);
      ok &= o[i * 6] == r;
      unsigned long long p = ((unsigned long long)~v << 32) | v;
      unsigned bp = 0;
      int sel[4] = {4, 7, 6, 2};
      for (int k = 0; k < 4; ++k) bp |= ((p >> (8 * sel[k])) & 255) << (8 * k);
      ok &= o[i * 6 + 1] == bp;
      ok &= o[i * 6 + 2] == (unsigned)((p << i) >> 32);
      unsigned long long p2 = ((unsigned long long)(v * 3) << 32) | v;
      ok &= o[i * 6 + 3] == (unsigned)(p2 >> ((i + 5) & 31));
      unsigned va = 0;
      for (int k = 0; k < 4; ++k) va |= (((v >> (8 * k)) + (0x01020304 >> (8 * k))) & 255) << (8 * k);
      ok &= o[i * 6 + 4] == va;
      int dp = 7;
      for (int k = 0; k < 4; ++k) dp += (int)(signed char)(v >> (8 * k)) * (int)(signed char)(0x01020304 >> (8 * k));
      ok &= o[i * 6 + 5] == (unsigned)dp;
    }
    CHECK("bit intrinsics / SIMD / dp4a", ok);
  }
  {
    std::vector<double> x(256), o(256);
    for (auto& v : x) v = U(g);
    double *dx, *dd;
    CK(cudaMalloc(&dx, 2048));
    CK(cudaMalloc(&dd, 2048));
    CK(cudaMemcpy(dx, x.data(), 2048, cudaMemcpyHostToDevice));
    dbl<<<1, 256>>>(dx, dd);
    CK(cudaMemcpy(o.data(), dd, 2048, cudaMemcpyDeviceToHost));
    double me = 0;
    for (int i = 0; i < 256; ++i) {
      double v = x[i],
             r = exp(v) * log1p(fabs(v)) + erf(v) + cbrt(v) + atan2(v, 2.0) + fma(v, v, 1.0) + rint(v) + sin(v * 1000);
      me = std::max(me, fabs(o[i] - r) / (1 + fabs(r)));
    }
    printf("   max rel err %.3g\n", me);
    CHECK("double math", me < 1e-14);
  }
  {
    rnds<<<1, 256>>>(da, dof);
    std::vector<float> o(1024);
    CK(cudaMemcpy(o.data(), dof, 4096, cudaMemcpyDeviceToHost));
    ok = true;
    for (int i = 0; i < 256; ++i) {
      double s = (double)a[i] + (double)1e-7f;
      float f = (float)s;
      if ((double)f < s) f = nextafterf(f, INFINITY);
      double p = (double)a[i] * (double)1.1f;
      float q = (float)p;
      if ((double)q > p) q = nextafterf(q, -INFINITY);
      ok &=
          o[i * 4] == f && o[i * 4 + 1] == q && o[i * 4 + 2] == rintf(a[i]) + truncf(a[i]) * 100 + ceilf(a[i]) * 10000;
    }
    CHECK("directed rounding", ok);
    unsigned const bits = 0x80000123u;
    unsigned const wanted[9] = {0, 0x123u, 0, bits, 0x80000000u, 0, 0x200u, 0x3F800000u, 0};
    float x;
    memcpy(&x, &bits, 4);
    flush<<<1, 1>>>(x, 0x1p-140, (unsigned*)dof);
    CK(cudaMemcpy(o.data(), dof, sizeof wanted, cudaMemcpyDeviceToHost));
    CHECK("flushed subnormals", memcmp(o.data(), wanted, sizeof wanted) == 0);
  }
  {
    big<<<2, 256>>>(di);
    get(256);
    ok = true;
    for (int t = 0; t < 256; ++t) {
      int s = 0;
      for (int i = 0; i < 200; ++i) s += ((i * 7 + t) % 200) * t;
      ok &= h[t] == s;
    }
    CHECK("local arrays", ok);
  }
  {
    d3<<<dim3(2, 3, 2), dim3(4, 3, 2)>>>(di);
    get(288);
    ok = true;
    for (int i = 0; i < 288; ++i) ok &= h[i] == (i / 24) * 1000 + i % 24;
    CHECK("3-d grids", ok);
  }
  {
    thrust::device_vector<int> v(20000);
    std::vector<int> hv(20000);
    for (auto& x : hv) x = g();
    thrust::copy(hv.begin(), hv.end(), v.begin());
    thrust::sort(v.begin(), v.end());
    std::sort(hv.begin(), hv.end());
    std::vector<int> o(20000);
    thrust::copy(v.begin(), v.end(), o.begin());
    CHECK("thrust::sort", o == hv);
    long long s = thrust::reduce(v.begin(), v.end(), 0ll);
    CHECK("thrust::reduce", s == std::accumulate(hv.begin(), hv.end(), 0ll));
    thrust::device_vector<int> w(20000);
    auto e = thrust::copy_if(v.begin(), v.end(), w.begin(), [] __device__(int x) { return x % 3 == 0; });
    CHECK("thrust::copy_if", (e - w.begin()) == std::count_if(hv.begin(), hv.end(), [](int x) { return x % 3 == 0; }));
  }
  printf("%d failures\n", fails);
  return fails;
}
