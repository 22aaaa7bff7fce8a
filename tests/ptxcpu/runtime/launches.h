// Checks a launch, runs it or makes it a node of a graph.
#pragma once

#include "modules.h"
#include "scheduler.h"
#include "streams.h"

struct Kernel {  // a checked launch, parameters by value; may be run many times
  KFn fn;
  string name;
  dim3 g, b;
  vector<u8> params;
  u32 dyn, stat, dynoff;
  bool coop;
  bool first;  // nothing has asked for the kernel before
  bool early = false;
  string const* ptx;
  u32 base;  // the kernel's line in it
};

static void run_kernel(Kernel& K) {
  if (sticky) return;
  static u64 serial = 1;
  auto L = std::make_unique<Launch>();
  L->serial = serial++;
  L->fn = K.fn;
  L->name = K.name;
  L->g = K.g;
  L->b = K.b;
  L->dyn = K.dyn;
  L->stat = K.stat;
  L->dynoff = K.dynoff;
  L->coop = K.coop;
  L->first = K.first;
  K.first = false;
  L->early = K.early;
  L->params = K.params;
  L->ptx = K.ptx;
  L->base = K.base;
  L->nblk = (u64)K.g.x * K.g.y * K.g.z;
  if (K.coop) {
    L->gridws = new_alloc(64, KDEV);
    memset(L->gridws, 0, 64);
  }
  auto t0 = std::chrono::steady_clock::now();
  if (WATCH()) race_begin(L.get());
  pool().run(L.get());
  if (WATCH()) race_end(L.get());
  if (VERB())
    fprintf(stderr, "[ptxcpu] %s <<<(%u,%u,%u),(%u,%u,%u),%u>>> %.3f ms\n", L->name.c_str(), L->g.x, L->g.y, L->g.z,
            L->b.x, L->b.y, L->b.z, L->dyn,
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t0).count());
  if (K.coop) del_alloc(L->gridws);
  if (L->err) sticky = (int)L->err;
}

static cudaError_t prepare(Func* F, dim3 g, dim3 b, void** args, size_t smem, bool coop, std::shared_ptr<Kernel>* out) {
  if (!F) return ret(cudaErrorInvalidDeviceFunction);
  if (sticky) return ret((cudaError_t)(int)sticky);
  u64 nt = (u64)b.x * b.y * b.z;
  if (!g.x || !g.y || !g.z || !nt || nt > 1024 || b.z > 64 || g.y > 65535 || g.z > 65535 || g.x > 2147483647u)
    return ret(cudaErrorInvalidConfiguration);
  if (!load(F)) return ret(cudaErrorInvalidKernelImage);
  if (nt > F->maxnt) return ret(cudaErrorLaunchOutOfResources);
  if (F->stat + smem > (size_t)std::max(49152, F->maxdyn + (int)F->stat) ||
      (F->maxdyn <= 49152 && F->stat + smem > 49152))
    return ret(cudaErrorInvalidValue);
  if (coop && (u64)g.x * g.y * g.z > (u64)SMS() * std::max<u64>(1, 2048 / nt))
    return ret(cudaErrorCooperativeLaunchTooLarge);
  auto K = std::make_shared<Kernel>();
  K->fn = F->fn;
  K->name = F->name;
  K->g = g;
  K->b = b;
  K->dyn = smem;
  K->stat = F->stat;
  K->dynoff = F->dynoff;
  K->coop = coop;
  K->first = !F->known;
  F->known = true;
  K->ptx = &F->m->ptx;
  K->base = F->base;
  K->params.resize(F->psize + 16);
  for (size_t i = 0; i < F->lay.size(); ++i) memcpy(K->params.data() + F->lay[i].first, args[i], F->lay[i].second);
  *out = K;
  return cudaSuccess;
}

static cudaError_t launch(Func* F, dim3 g, dim3 b, void** args, size_t smem, cudaStream_t st, bool coop,
                          bool early = false) {
  std::unique_lock l(G);
  TRY(cap_pre(st));
  std::shared_ptr<Kernel> K;
  TRY(prepare(F, g, b, args, smem, coop, &K));
  K->early = early;
  enq(st, [K] { run_kernel(*K); }, cudaGraphNodeTypeKernel);
  return cudaSuccess;
}

API cudaError_t cudaLaunchKernel(void const* f, dim3 g, dim3 b, void** a, size_t s, cudaStream_t st) {
  return launch(getf(f), g, b, a, s, st, false);
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void** a, size_t s, cudaStream_t st) {
  return launch((Func*)k, g, b, a, s, st, false);
}

API cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t k, dim3 g, dim3 b, void** a, size_t s, cudaStream_t st) {
  return launch((Func*)k, g, b, a, s, st, false);
}

API cudaError_t cudaLaunchCooperativeKernel(void const* f, dim3 g, dim3 b, void** a, size_t s, cudaStream_t st) {
  return launch(getf(f), g, b, a, s, st, true);
}

API cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const* c, void const* f, void** a) {
  bool coop = false, early = false;
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeCooperative)
      coop = c->attrs[i].val.cooperative;
    else if (c->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
      early = c->attrs[i].val.programmaticStreamSerializationAllowed;
    else if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) {
      auto& d = c->attrs[i].val.clusterDim;
      if (d.x * d.y * d.z > 1) {
        fprintf(stderr, "[ptxcpu] clusters unsupported\n");
        return ret(cudaErrorNotSupported);
      }
    }
  return launch(getf(f), c->gridDim, c->blockDim, a, c->dynamicSmemBytes, c->stream, coop, early);
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* u) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  enq(s, [=] { f(u); });
  return fin();
}

API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* u, unsigned) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  if (S(s)->cap) return invalidate(S(s)->cap, cudaErrorStreamCaptureUnsupported, "cudaStreamAddCallback");
  enq(s, [=] { f(s, (cudaError_t)(int)sticky, u); });
  return fin();
}
