#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cub/cub.cuh>
#include <numeric>
#include <random>
#include <vector>
#include "check.h"
template <int A>
__global__ void bscan(const int* x, int* o, int* agg) {
  using S = cub::BlockScan<int, 128, (cub::BlockScanAlgorithm)A>;
  __shared__ typename S::TempStorage t;
  int v[4];
  for (int j = 0; j < 4; ++j) v[j] = x[threadIdx.x * 4 + j];
  int ag;
  S(t).ExclusiveSum(v, v, ag);
  for (int j = 0; j < 4; ++j) o[threadIdx.x * 4 + j] = v[j];
  if (!threadIdx.x) *agg = ag;
}
__global__ void bred(float const* x, float* o) {
  using S = cub::BlockReduce<float, 256>;
  __shared__ typename S::TempStorage t;
  float r = S(t).Reduce(x[threadIdx.x], cuda::maximum<>{});
  if (!threadIdx.x) *o = r;
}
__global__ void bsort(unsigned* x) {
  using S = cub::BlockRadixSort<unsigned, 128, 4>;
  __shared__ typename S::TempStorage t;
  unsigned v[4];
  for (int j = 0; j < 4; ++j) v[j] = x[threadIdx.x * 4 + j];
  S(t).Sort(v);
  for (int j = 0; j < 4; ++j) x[threadIdx.x * 4 + j] = v[j];
}
struct Gt {
  float t;
  __host__ __device__ bool operator()(float v) const { return fabsf(v) > t; }
};
template <class F>
void two(F f) {
  void* d = nullptr;
  size_t s = 0;
  CK(f(d, s));
  CK(cudaMalloc(&d, s));
  CK(f(d, s));
  CK(cudaDeviceSynchronize());
  CK(cudaFree(d));
}
int main() {
  int n = 1000003;
  std::mt19937 g(1);
  std::normal_distribution<float> N(0, 1);
  std::vector<float> a(n);
  for (auto& v : a) v = N(g);
  std::vector<unsigned> k(n);
  for (auto& v : k) v = g();
  std::vector<int> x(n);
  for (auto& v : x) v = g() % 7;
  float *da, *dq;
  unsigned *dk, *dk2;
  int *dx, *dy, *dn;
  CK(cudaMalloc(&da, n * 4));
  CK(cudaMalloc(&dq, n * 4));
  CK(cudaMalloc(&dk, n * 4));
  CK(cudaMalloc(&dk2, n * 4));
  CK(cudaMalloc(&dx, n * 4));
  CK(cudaMalloc(&dy, n * 4));
  CK(cudaMalloc(&dn, 1024 * 4));
  CK(cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(dk, k.data(), n * 4, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(dx, x.data(), n * 4, cudaMemcpyHostToDevice));
  auto chk = [&](char const* nm) {
    std::vector<int> o(512);
    int ag;
    CK(cudaMemcpy(o.data(), dy, 2048, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(&ag, dn, 4, cudaMemcpyDeviceToHost));
    int s = 0;
    bool ok = true;
    for (int i = 0; i < 512; ++i) {
      ok &= o[i] == s;
      s += x[i];
    }
    CHECK(nm, ok && ag == s);
  };
  bscan<0><<<1, 128>>>(dx, dy, dn);
  chk("cub::BlockScan RAKING");
  bscan<2><<<1, 128>>>(dx, dy, dn);
  chk("cub::BlockScan WARP_SCANS");
  bred<<<1, 256>>>(da, dq);
  float m;
  CK(cudaMemcpy(&m, dq, 4, cudaMemcpyDeviceToHost));
  CHECK("cub::BlockReduce", m == *std::max_element(a.begin(), a.begin() + 256));
  {
    CK(cudaMemcpy(dk2, dk, 2048, cudaMemcpyDeviceToDevice));
    bsort<<<1, 128>>>(dk2);
    std::vector<unsigned> o(512), r(k.begin(), k.begin() + 512);
    CK(cudaMemcpy(o.data(), dk2, 2048, cudaMemcpyDeviceToHost));
    std::sort(r.begin(), r.end());
    CHECK("cub::BlockRadixSort", o == r);
  }
  two([&](void* d, size_t& s) { return cub::DeviceSelect::If(d, s, da, dq, dn, n, Gt{1.5f}); });
  {
    int c;
    CK(cudaMemcpy(&c, dn, 4, cudaMemcpyDeviceToHost));
    std::vector<float> r, o;
    for (float v : a)
      if (fabsf(v) > 1.5f) r.push_back(v);
    o.resize(r.size());
    bool ok = c == (int)r.size();
    if (ok) {
      CK(cudaMemcpy(o.data(), dq, c * 4, cudaMemcpyDeviceToHost));
      ok = o == r;
    }
    CHECK("cub::DeviceSelect::If", ok);
  }
  two([&](void* d, size_t& s) { return cub::DeviceReduce::Sum(d, s, dx, dn, n); });
  {
    int c;
    CK(cudaMemcpy(&c, dn, 4, cudaMemcpyDeviceToHost));
    CHECK("cub::DeviceReduce::Sum", c == std::accumulate(x.begin(), x.end(), 0));
  }
  two([&](void* d, size_t& s) { return cub::DeviceScan::ExclusiveSum(d, s, dx, dy, n); });
  {
    std::vector<int> o(n), r(n);
    CK(cudaMemcpy(o.data(), dy, n * 4, cudaMemcpyDeviceToHost));
    std::exclusive_scan(x.begin(), x.end(), r.begin(), 0);
    CHECK("cub::DeviceScan::ExclusiveSum", o == r);
  }
  two([&](void* d, size_t& s) { return cub::DeviceHistogram::HistogramEven(d, s, dx, dn, 8, 0, 7, n); });
  {
    std::vector<int> o(7), r(7);
    for (int v : x) r[v]++;
    CK(cudaMemcpy(o.data(), dn, 28, cudaMemcpyDeviceToHost));
    CHECK("cub::DeviceHistogram::Even", o == r);
  }
  two([&](void* d, size_t& s) { return cub::DeviceRadixSort::SortKeys(d, s, dk, dk2, n); });
  {
    auto r = k;
    std::sort(r.begin(), r.end());
    std::vector<unsigned> o(n);
    CK(cudaMemcpy(o.data(), dk2, n * 4, cudaMemcpyDeviceToHost));
    CHECK("cub::DeviceRadixSort::SortKeys", o == r);
  }
  two([&](void* d, size_t& s) { return cub::DeviceRadixSort::SortPairs(d, s, dk, dk2, dx, dy, 2000); });
  {
    std::vector<std::pair<unsigned, int>> r(2000);
    for (int i = 0; i < 2000; ++i) r[i] = {k[i], x[i]};
    std::stable_sort(r.begin(), r.end(), [](auto& p, auto& q) { return p.first < q.first; });
    std::vector<unsigned> o(2000);
    std::vector<int> v(2000);
    CK(cudaMemcpy(o.data(), dk2, 8000, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(v.data(), dy, 8000, cudaMemcpyDeviceToHost));
    bool ok = true;
    for (int i = 0; i < 2000; ++i) ok &= o[i] == r[i].first && v[i] == r[i].second;
    CHECK("cub::DeviceRadixSort::SortPairs sm", ok);
  }
  printf("%d failures\n", fails);
  return fails;
}
