// Stream capture and graphs: replay with changed inputs, forks and joins, and the errors of illegal calls.
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_reduce.cuh>
#include <thread>
#include <vector>
#include "check.h"
__global__ void scale(const int* a, int* b, int n, int f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] * f;
}
__global__ void square(int const* a, int* b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) b[i] = a[i] * a[i];
}
__global__ void addk(int const* a, int const* b, int* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
__global__ void fill(int* a, int n, int v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = v;
}
// As a program reads a word by an atomic that changes nothing; g++ 12 once lost the address on the way.
__global__ void read_by_atomic(float const* failed, unsigned long long* word, unsigned long long* zero,
                               unsigned long long* heard, int* good) {
  __shared__ bool is_good;
  if (threadIdx.x == 0) {
    if (failed != nullptr && *failed > 0) atomicCAS(word, 0ull, 7ull);
    auto const found = word == nullptr ? 0 : atomicOr(word, 0ull);
    is_good = found == 0;
    if (blockIdx.x == 0) {
      if (zero != nullptr) *zero = 0;
      if (heard != nullptr) *heard = found;
    }
  }
  __syncthreads();
  if (threadIdx.x == 1) good[blockIdx.x] = is_good;
}
static int host_calls = 0;
static void host_fn(void* p) { ++*(int*)p; }

int main() {
  int const n = 5000, nb = (n + 255) / 256;
  int *a, *b, *c, *out, *pin, *d;
  CK(cudaMalloc(&a, n * 4));
  CK(cudaMalloc(&b, n * 4));
  CK(cudaMalloc(&c, n * 4));
  CK(cudaMalloc(&d, n * 4));
  CK(cudaMalloc(&out, 4));
  CK(cudaMallocHost(&pin, 8));
  cudaStream_t s, s2, blk;
  CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  CK(cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking));
  CK(cudaStreamCreate(&blk));
  cudaEvent_t ev, ev2;
  CK(cudaEventCreateWithFlags(&ev, cudaEventDisableTiming));
  CK(cudaEventCreateWithFlags(&ev2, cudaEventDisableTiming));
  size_t bytes = 0;
  CK(cub::DeviceReduce::Sum(nullptr, bytes, c, out, n));
  void* tmp;
  CK(cudaMalloc(&tmp, bytes));
  std::vector<int> h(n);
  cudaGraph_t g;
  cudaGraphExec_t x;
  cudaStreamCaptureStatus st;
  unsigned long long id = 0;

  {
    unsigned long long words[3] = {5, 6, 1};
    unsigned long long* w;
    int good[2];
    CK(cudaMalloc(&w, sizeof words));
    CK(cudaMemcpy(w, words, sizeof words, cudaMemcpyHostToDevice));
    read_by_atomic<<<2, 32>>>(nullptr, w, w + 1, w + 2, a);
    CK(cudaMemcpy(words, w, sizeof words, cudaMemcpyDeviceToHost));
    CK(cudaMemcpy(good, a, sizeof good, cudaMemcpyDeviceToHost));
    CHECK("a word read by an atomic", words[0] == 5 && words[1] == 0 && words[2] == 5 && !good[0] && !good[1]);
    CK(cudaFree(w));
  }
  {  // two kernels + cub, copy to the host, replayed with changed inputs
    int f = 3;
    pin[0] = -1;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    scale<<<nb, 256, 0, s>>>(a, b, n, f);
    f = 99;  // parameters are taken by value
    square<<<nb, 256, 0, s>>>(b, c, n);
    CK(cub::DeviceReduce::Sum(tmp, bytes, c, out, n, s));
    CK(cudaMemcpyAsync(pin, out, 4, cudaMemcpyDeviceToHost, s));
    CK(cudaLaunchHostFunc(s, host_fn, &host_calls));
    CK(cudaStreamIsCapturing(s, &st));
    CHECK("status while capturing", st == cudaStreamCaptureStatusActive);
    cudaGraph_t gi;
    cudaGraphNode_t const* deps;
    size_t node = 0;
    CK(cudaStreamGetCaptureInfo(s, &st, &id, &gi, &deps, nullptr, &node));
    CHECK("capture info", st == cudaStreamCaptureStatusActive && id != 0 && node == 1);
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaStreamIsCapturing(s, &st));
    size_t nn = 0;
    CK(cudaGraphGetNodes(g, nullptr, &nn));
    CHECK("node count", nn >= 5 && nn <= 8);
    CHECK("nothing ran while capturing", pin[0] == -1 && host_calls == 0 && st == cudaStreamCaptureStatusNone);
    CK(cudaGraphInstantiate(&x, g, nullptr, nullptr, 0));
    CK(cudaGraphDestroy(g));
    CK(cudaGraphUpload(x, s));
    bool ok = true;
    for (int r = 0; r < 3; ++r) {
      long want = 0;
      for (int i = 0; i < n; ++i) {
        h[i] = (i * (r + 1)) % 17;
        want += 9 * h[i] * h[i];
      }
      CK(cudaMemcpyAsync(a, h.data(), n * 4, cudaMemcpyHostToDevice, s));
      CK(cudaGraphLaunch(x, s));
      CK(cudaStreamSynchronize(s));
      ok = ok && pin[0] == want;
    }
    CHECK("three replays with changed inputs", ok && host_calls == 3);
    CK(cudaGraphExecDestroy(x));
  }
  {  // fork to s2 and join
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    CK(cudaMemsetAsync(a, 0, n * 4, s));
    CK(cudaEventRecord(ev, s));
    CK(cudaStreamWaitEvent(s2, ev, 0));
    fill<<<nb, 256, 0, s>>>(b, n, 5);
    fill<<<nb, 256, 0, s2>>>(c, n, 7);
    CK(cudaStreamIsCapturing(s2, &st));
    CK(cudaEventRecord(ev2, s2));
    CK(cudaStreamWaitEvent(s, ev2, 0));
    addk<<<nb, 256, 0, s>>>(b, c, d, n);
    CK(cudaStreamEndCapture(s, &g));
    size_t ne = 0;
    CK(cudaGraphGetEdges(g, nullptr, nullptr, nullptr, &ne));
    CHECK("fork: joined stream captures, 4 edges", st == cudaStreamCaptureStatusActive && ne == 4);
    CK(cudaGraphInstantiateWithFlags(&x, g, 0));
    bool ok = true;
    for (int r = 0; r < 3; ++r) {
      CK(cudaMemsetAsync(d, 0, n * 4, s));  // not cudaMemset: s does not wait for the legacy stream
      CK(cudaGraphLaunch(x, s));
      CK(cudaStreamSynchronize(s));
      CK(cudaMemcpy(h.data(), d, n * 4, cudaMemcpyDeviceToHost));
      for (int v : h) ok = ok && v == 12;
    }
    CHECK("fork and join replays", ok);
    cudaGraphExecUpdateResultInfo ri;
    CHECK("exec update, same shape", cudaGraphExecUpdate(x, g, &ri) == cudaSuccess);
    CK(cudaGraphExecDestroy(x));
    CK(cudaGraphDestroy(g));
    CHECK("query of a captured event", cudaEventQuery(ev) == cudaErrorCapturedEvent);
    cudaGetLastError();
    CK(cudaEventRecord(ev, s));
    CK(cudaEventSynchronize(ev));
  }
  {  // stream-ordered allocation inside of the graph
    int* p;
    CK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CK(cudaMallocAsync((void**)&p, n * 4, s));
    fill<<<nb, 256, 0, s>>>(p, n, 4);
    addk<<<nb, 256, 0, s>>>(p, p, d, n);
    CK(cudaFreeAsync(p, s));
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphInstantiate(&x, g, 0));
    bool ok = true;
    for (int r = 0; r < 2; ++r) {
      CK(cudaGraphLaunch(x, s));
      CK(cudaMemcpyAsync(h.data(), d, n * 4, cudaMemcpyDeviceToHost, s));
      CK(cudaStreamSynchronize(s));
      for (int v : h) ok = ok && v == 8;
    }
    CHECK("mallocAsync and freeAsync in a graph", ok);
    CK(cudaGraphExecDestroy(x));
    CK(cudaGraphDestroy(g));
  }
  // illegal calls: the call reports want, the capture ends as invalidated
  auto bad = [&](char const* name, cudaStream_t t, cudaStreamCaptureMode m, cudaError_t want, auto f) {
    CK(cudaStreamBeginCapture(t, m));
    fill<<<1, 32, 0, t>>>(d, 32, 1);
    cudaError_t e = f();
    cudaStreamCaptureStatus q = cudaStreamCaptureStatusNone;
    CK(cudaStreamIsCapturing(t, &q));
    cudaError_t l = cudaMemsetAsync(d, 0, 4, t);
    cudaError_t z = cudaStreamEndCapture(t, &g);
    CHECK(name, e == want && q == cudaStreamCaptureStatusInvalidated && l == cudaErrorStreamCaptureInvalidated &&
                    z == cudaErrorStreamCaptureInvalidated && g == nullptr);
    cudaGetLastError();
  };
  auto GL = cudaStreamCaptureModeGlobal, TL = cudaStreamCaptureModeThreadLocal, RX = cudaStreamCaptureModeRelaxed;
  auto un = cudaErrorStreamCaptureUnsupported;
  int* q;
  bad("sync of the capturing stream", s, GL, un, [&] { return cudaStreamSynchronize(s); });
  bad("sync of the capturing stream, relaxed", s, RX, un, [&] { return cudaStreamSynchronize(s); });
  bad("query of the capturing stream", s, RX, un, [&] { return cudaStreamQuery(s); });
  bad("device sync", s, RX, un, [&] { return cudaDeviceSynchronize(); });
  bad("cudaMalloc, global", s, GL, un, [&] { return cudaMalloc(&q, 64); });
  bad("cudaMalloc, thread local", s, TL, un, [&] { return cudaMalloc(&q, 64); });
  bad("cudaMalloc in another thread, global", s, GL, un, [&] {
    cudaError_t e = cudaSuccess;
    std::thread([&] { e = cudaMalloc(&q, 64); }).join();
    return e;
  });
  bad("cudaFree, global", s, GL, un, [&] { return cudaFree(tmp); });
  bad("cudaMemcpy, nonblocking stream", s, GL, un, [&] { return cudaMemcpy(&host_calls, d, 4, cudaMemcpyDefault); });
  bad("event sync, captured event", s, GL, cudaErrorCapturedEvent, [&] {
    CK(cudaEventRecord(ev2, s));
    return cudaEventSynchronize(ev2);
  });
  bad("legacy stream kernel, blocking stream", blk, GL, cudaErrorStreamCaptureImplicit, [&] {
    fill<<<1, 32>>>(d, 32, 1);
    return cudaGetLastError();
  });
  bad("legacy stream memset, blocking, relaxed", blk, RX, cudaErrorStreamCaptureImplicit,
      [&] { return cudaMemset(d, 0, 4); });
  CK(cudaEventRecord(ev, s2));
  bad("wait for an outside event", s, GL, cudaErrorStreamCaptureIsolation,
      [&] { return cudaStreamWaitEvent(s, ev, 0); });
  {
    CK(cudaStreamBeginCapture(s, RX));
    CHECK("cudaMalloc, relaxed, is legal", cudaMalloc(&q, 64) == cudaSuccess);
    fill<<<1, 32, 0, blk>>>(d, 32, 3);
    CHECK("other streams work meanwhile", cudaStreamSynchronize(blk) == cudaSuccess);
    CK(cudaStreamEndCapture(s, &g));
    CK(cudaGraphDestroy(g));
    CK(cudaFree(q));
  }
  {
    CK(cudaStreamBeginCapture(s, TL));
    cudaError_t e = cudaErrorUnknown;
    std::thread([&] { e = cudaMalloc(&q, 64); }).join();
    CHECK("cudaMalloc in another thread, thread local", e == cudaSuccess);
    CK(cudaEventRecord(ev, s));
    CK(cudaStreamWaitEvent(s2, ev, 0));
    fill<<<1, 32, 0, s2>>>(d, 32, 3);
    CHECK("unjoined fork", cudaStreamEndCapture(s, &g) == cudaErrorStreamCaptureUnjoined && g == nullptr);
    cudaGetLastError();
    CK(cudaFree(q));
  }
  CHECK("end without begin", cudaStreamEndCapture(s, &g) == cudaErrorIllegalState);
  CHECK("capture of the legacy stream", cudaStreamBeginCapture(0, GL) == un);
  cudaGetLastError();
  {  // an ordinary kernel after all that
    fill<<<nb, 256>>>(d, n, 2);
    CK(cudaMemcpy(h.data(), d, n * 4, cudaMemcpyDeviceToHost));
    bool ok = true;
    for (int v : h) ok = ok && v == 2;
    CHECK("ordinary work afterwards", ok);
  }
  printf("%d failures\n", fails);
  return fails != 0;
}
