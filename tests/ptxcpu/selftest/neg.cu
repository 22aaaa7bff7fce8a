#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
__global__ void oob(int* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  p[i] = i;
}
__global__ void shoob(int* p) {
  __shared__ int s[64];
  s[threadIdx.x * 2] = threadIdx.x;
  __syncthreads();
  p[threadIdx.x] = s[threadIdx.x];
}
__global__ void misal(char* p) { *(int*)(p + 1 + 4 * threadIdx.x) = 1; }
__global__ void nosync(int* p) {
  __shared__ int s[256];
  s[threadIdx.x] = threadIdx.x;
  p[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void deadl(int* p) {
  if (threadIdx.x < 16) {
    __shfl_sync(~0u, p[0], 0);
  } else
    __syncwarp(0xffffffff);
  p[threadIdx.x] = 1;
}
__global__ void barw(int* p) {
  if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    asm volatile("bar.sync 1, 64;");
  }
  p[threadIdx.x] = 1;
}
__global__ void badmask(int* p) { p[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 0); }
__global__ void hostp(int* p) { p[threadIdx.x] = 1; }
__global__ void as(int x) { assert(x == 3); }
__global__ void pr(float f) {
  if (threadIdx.x < 2) printf("hello %d %s %.2f %lld\n", (int)threadIdx.x, "str", f, 1ll << 40);
}
__global__ void hang(int volatile* p) { while (*p == 0); }
__global__ void racy(int* p) { *p = *p + 1; }
__global__ void slow(int* p, int v) { p[threadIdx.x] = v; }
__global__ void late(int* p) {
  p[threadIdx.x] = 1;
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
template <class Kernel>
void early(Kernel* kernel, int* p) {
  cudaLaunchAttribute how{};
  how.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  how.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t c{};
  c.gridDim = 1;
  c.blockDim = 32;
  c.attrs = &how;
  c.numAttrs = 1;
  cudaLaunchKernelEx(&c, kernel, p);
}
int main(int c, char** v) {
  int* d;
  cudaMalloc(&d, 256 * 4);
  cudaMemset(d, 0, 1024);
  char const* t = v[1];
  cudaError_t e = cudaSuccess;
  if (!strcmp(t, "oob"))
    oob<<<2, 256>>>(d, 256);
  else if (!strcmp(t, "shoob"))
    shoob<<<1, 64>>>(d);
  else if (!strcmp(t, "misal"))
    misal<<<1, 32>>>((char*)d);
  else if (!strcmp(t, "deadl"))
    deadl<<<1, 32>>>(d);
  else if (!strcmp(t, "barw"))
    barw<<<1, 64>>>(d);
  else if (!strcmp(t, "badmask"))
    badmask<<<1, 32>>>(d);
  else if (!strcmp(t, "hostp")) {
    std::vector<int> h(256);
    hostp<<<1, 32>>>(h.data());
  } else if (!strcmp(t, "uaf")) {
    cudaFree(d);
    hostp<<<1, 32>>>(d);
  } else if (!strcmp(t, "assert"))
    as<<<1, 32>>>(2);
  else if (!strcmp(t, "printf"))
    pr<<<1, 32>>>(1.5f);
  else if (!strcmp(t, "hang"))
    hang<<<1, 1>>>(d);
  else if (!strcmp(t, "cpyover")) {
    char b[2048];
    e = cudaMemcpy(d, b, 2048, cudaMemcpyHostToDevice);
    printf("%s\n", cudaGetErrorString(e));
    return 0;
  } else if (!strcmp(t, "nosync")) {
    nosync<<<1, 256>>>(d);
    int h[256];
    cudaMemcpy(h, d, 1024, cudaMemcpyDeviceToHost);
    int bad = 0;
    for (int i = 0; i < 256; ++i) bad += h[i] != 255 - i;
    printf("nosync: %d wrong\n", bad);
  } else if (!strcmp(t, "nowait")) {
    early(hostp, d);
  } else if (!strcmp(t, "latewait")) {
    early(late, d);
  } else if (!strcmp(t, "racy")) {
    racy<<<8, 64>>>(d);
    int h;
    cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost);
    printf("racy: %d of 512 (a real GPU would lose updates)\n", h);
  } else if (!strcmp(t, "nostreamsync")) {
    int* h;
    cudaMallocHost(&h, 1024);
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    slow<<<1, 256, 0, s>>>(d, 7);
    cudaMemcpyAsync(h, d, 1024, cudaMemcpyDeviceToHost, s);
    printf("before sync %d\n", h[0]);
    cudaStreamSynchronize(s);
    printf("after sync %d\n", h[0]);
  }
  e = cudaDeviceSynchronize();
  printf("%-10s -> %s\n", t, cudaGetErrorString(e));
  return 0;
}
