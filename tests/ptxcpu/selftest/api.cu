// Runtime API calls around kernels: pools, launch attributes, occupancy, device properties, pinned memory,
// streams.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "check.h"
__global__ void fill(int* a, int n, int v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = v;
}
__global__ void pdl(int* a, int n) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] += 1;
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}
__global__ void dyn(int* a) {
  extern __shared__ int sm[];
  for (int i = threadIdx.x; i < 20000; i += blockDim.x) sm[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) *a = sm[19999];
}
int main() {
  int const n = 1000;
  std::vector<int> h(n);
  cudaStream_t s, p;
  int lo, hi, v;
  CK(cudaDeviceGetStreamPriorityRange(&lo, &hi));
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CK(cudaStreamCreateWithPriority(&p, cudaStreamDefault, hi));
  unsigned fl;
  CK(cudaStreamGetFlags(s, &fl));
  CK(cudaStreamGetPriority(p, &v));
  CHECK("stream flags and priority", fl == cudaStreamNonBlocking && v == hi && hi <= lo);
  auto all = [&](int want) {
    for (int x : h)
      if (x != want) return false;
    return true;
  };
  {
    int* a;
    CK(cudaMallocAsync((void**)&a, n * 4, s));
    fill<<<4, 256, 0, s>>>(a, n, 3);
    CK(cudaMemcpyAsync(h.data(), a, n * 4, cudaMemcpyDeviceToHost, s));
    CK(cudaFreeAsync(a, s));
    CK(cudaStreamSynchronize(s));
    CHECK("mallocAsync, freeAsync", all(3));
  }
  {
    cudaMemPool_t pool, dp;
    cudaMemPoolProps pp{};
    pp.allocType = cudaMemAllocationTypePinned;
    pp.location.type = cudaMemLocationTypeDevice;
    CK(cudaMemPoolCreate(&pool, &pp));
    unsigned long long thr = 12345, got = 0;
    CK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &thr));
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
    int* a;
    CK(cudaMallocFromPoolAsync((void**)&a, n * 4, pool, s));
    fill<<<4, 256, 0, s>>>(a, n, 4);
    CK(cudaMemcpyAsync(h.data(), a, n * 4, cudaMemcpyDeviceToHost, s));
    unsigned long long used = 0, used2 = 1;
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CK(cudaFreeAsync(a, s));
    CK(cudaStreamSynchronize(s));
    CK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used2));
    CK(cudaMemPoolTrimTo(pool, 0));
    CHECK("memory pool", all(4) && got == thr && used >= n * 4u && used2 == 0);
    CK(cudaMemPoolDestroy(pool));
    CK(cudaDeviceGetDefaultMemPool(&dp, 0));
    CK(cudaDeviceGetMemPool(&pool, 0));
    CHECK("default pool", dp == pool && dp);
  }
  {
    int* a;
    CK(cudaMalloc(&a, n * 4));
    fill<<<4, 256, 0, s>>>(a, n, 1);
    cudaLaunchConfig_t c{};
    c.gridDim = 4;
    c.blockDim = 256;
    c.stream = s;
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[0].val.programmaticStreamSerializationAllowed = 1;
    c.attrs = at;
    cudaFuncAttributes about{};
    CK(cudaFuncGetAttributes(&about, pdl));
    c.numAttrs = about.ptxVersion >= 90;  // older code does not wait
    CK(cudaLaunchKernelEx(&c, pdl, a, n));
    CK(cudaLaunchKernelEx(&c, pdl, a, n));
    CK(cudaMemcpyAsync(h.data(), a, n * 4, cudaMemcpyDeviceToHost, s));
    CK(cudaStreamSynchronize(s));
    CHECK("launchKernelEx, programmatic serialization", all(3));
    CHECK("80 KB of shared memory without opt-in",
          (dyn<<<1, 128, 80000, s>>>(a), cudaGetLastError()) == cudaErrorInvalidValue);
    CK(cudaFuncSetAttribute(dyn, cudaFuncAttributeMaxDynamicSharedMemorySize, 80000));
    dyn<<<1, 128, 80000, s>>>(a);
    CK(cudaGetLastError());
    CK(cudaMemcpyAsync(h.data(), a, 4, cudaMemcpyDeviceToHost, s));
    CK(cudaStreamSynchronize(s));
    CHECK("80 KB of shared memory with opt-in", h[0] == 19999);
    CK(cudaFuncSetAttribute(dyn, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    cudaFuncAttributes fa;
    CK(cudaFuncGetAttributes(&fa, dyn));
    CHECK("function attributes", fa.maxThreadsPerBlock == 1024 && fa.maxDynamicSharedSizeBytes == 80000);
    int b1 = 0, b2 = 0, gs = 0, bs = 0;
    CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&b1, dyn, 256, 0));
    CK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&b2, dyn, 256, 80000));
    CK(cudaOccupancyMaxPotentialBlockSize(&gs, &bs, fill));
    CHECK("occupancy", b1 == 8 && b2 == 2 && gs > 0 && bs >= 32 && bs <= 1024);
    cudaPointerAttributes pa;
    CK(cudaPointerGetAttributes(&pa, a + 5));
    CHECK("pointer attributes, device", pa.type == cudaMemoryTypeDevice && pa.device == 0 && pa.devicePointer == a + 5);
    CK(cudaPointerGetAttributes(&pa, h.data()));
    CHECK("pointer attributes, pageable", pa.type == cudaMemoryTypeUnregistered);
    int *m, *pin, *dp;
    CK(cudaMallocManaged(&m, 64));
    CK(cudaPointerGetAttributes(&pa, m));
    CHECK("pointer attributes, managed", pa.type == cudaMemoryTypeManaged);
    CK(cudaHostAlloc(&pin, n * 4, cudaHostAllocMapped));
    CK(cudaHostGetDevicePointer(&dp, pin, 0));
    fill<<<4, 256, 0, s>>>(dp, n, 6);
    CK(cudaStreamSynchronize(s));
    CK(cudaPointerGetAttributes(&pa, pin));
    CHECK("pinned, mapped", pin[0] == 6 && pin[n - 1] == 6 && pa.type == cudaMemoryTypeHost && pa.hostPointer == pin);
    CK(cudaHostRegister(h.data(), n * 4, cudaHostRegisterDefault));
    CK(cudaPointerGetAttributes(&pa, h.data()));
    CHECK("hostRegister", pa.type == cudaMemoryTypeHost && cudaHostUnregister(h.data()) == cudaSuccess);
    CK(cudaFreeHost(pin));
    CK(cudaFree(m));
    CK(cudaFree(a));
  }
  {
    cudaDeviceProp pr;
    CK(cudaGetDeviceProperties(&pr, 0));
    auto at = [&](cudaDeviceAttr k) {
      int x = -1;
      CK(cudaDeviceGetAttribute(&x, k, 0));
      return x;
    };
    CHECK("attributes agree with properties",
          at(cudaDevAttrMultiProcessorCount) == pr.multiProcessorCount && at(cudaDevAttrWarpSize) == 32 &&
              pr.warpSize == 32 && at(cudaDevAttrComputeCapabilityMajor) == pr.major &&
              at(cudaDevAttrComputeCapabilityMinor) == pr.minor && at(cudaDevAttrMaxThreadsPerBlock) == 1024 &&
              at(cudaDevAttrMaxSharedMemoryPerBlock) == (int)pr.sharedMemPerBlock &&
              at(cudaDevAttrMaxSharedMemoryPerBlockOptin) == (int)pr.sharedMemPerBlockOptin &&
              at(cudaDevAttrMaxSharedMemoryPerMultiprocessor) == (int)pr.sharedMemPerMultiprocessor &&
              at(cudaDevAttrMaxThreadsPerMultiProcessor) == pr.maxThreadsPerMultiProcessor &&
              at(cudaDevAttrL2CacheSize) == pr.l2CacheSize && at(cudaDevAttrMaxGridDimX) == pr.maxGridSize[0] &&
              at(cudaDevAttrMaxGridDimY) == pr.maxGridSize[1] && at(cudaDevAttrMaxBlockDimZ) == pr.maxThreadsDim[2] &&
              at(cudaDevAttrMemoryPoolsSupported) == 1 && at(cudaDevAttrCooperativeLaunch) == 1);
    size_t fr, to;
    CK(cudaMemGetInfo(&fr, &to));
    CHECK("memGetInfo", fr <= to && to == pr.totalGlobalMem);
  }
  CHECK("PTXCPU is set", getenv("PTXCPU") && !strcmp(getenv("PTXCPU"), "1"));
  CK(cudaStreamDestroy(s));
  CK(cudaStreamDestroy(p));
  printf("%d failures\n", fails);
  return fails != 0;
}
