// CUDA's calls on streams and events.
#pragma once

#include "launches.h"

static cudaError_t mk(cudaStream_t* s, unsigned f, int p) {
  std::lock_guard l(G);
  auto* x = new CUstream_st;
  x->nonblock = f & cudaStreamNonBlocking;
  x->prio = p;
  x->dev = cur_dev;
  x->id = sid++;
  streams[x] = true;
  *s = x;
  return cudaSuccess;
}

API cudaError_t cudaStreamCreate(cudaStream_t* s) { return mk(s, 0, 0); }
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) { return mk(s, f, 0); }
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) { return mk(s, f, p); }
API cudaError_t cudaStreamDestroy(cudaStream_t s) {
  std::lock_guard l(G);
  if ((u64)s > 2 && streams.count(s) && s->cap)
    return invalidate(s->cap, cudaErrorStreamCaptureUnsupported, "cudaStreamDestroy of a capturing stream");
  if ((u64)s <= 2 || !streams.count(s)) return ret(cudaErrorInvalidResourceHandle);
  sync_stream(s);
  streams.erase(s);
  delete s;
  return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  std::lock_guard l(G);
  TRY(cap_sync(s, "cudaStreamSynchronize"));
  if ((u64)s > 2 && !streams.count(s)) return ret(cudaErrorInvalidResourceHandle);
  sync_stream(S(s));
  return fin();
}

API cudaError_t cudaStreamQuery(cudaStream_t s) {
  std::lock_guard l(G);
  TRY(cap_sync(s, "cudaStreamQuery"));
  if (S(s)->q.empty()) return fin();
  static thread_local int n = 0;
  if (++n % 3 == 0) sync_stream(S(s));
  return cudaErrorNotReady;
}

API cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* f) {
  *f = S(s)->nonblock;
  return cudaSuccess;
}

API cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  *p = S(s)->prio;
  return cudaSuccess;
}

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) {
  *e = new CUevent_st;
  (*e)->flags = f;
  return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t e) {
  std::lock_guard l(G);
  if (e && !e->done) {
    drain_to(e->s, e->seq);
  }
  delete e;
  return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  if (S(s)->cap) {
    e->capid = S(s)->cap->id;
    e->capdeps = S(s)->deps;
    return fin();
  }
  e->capid = 0;
  u64 g = ++e->gen;
  e->recorded = true;
  if (!LAZY()) {
    e->done = true;
    e->tp = std::chrono::steady_clock::now();
    return fin();
  }
  e->done = false;
  e->s = S(s);
  e->seq = seqc;
  enq(s, [e, g] {
    if (e->gen == g) {
      e->done = true;
      e->tp = std::chrono::steady_clock::now();
    }
  });
  return fin();
}

static void ev_wait(CUstream_st* s, u64 seq) {  // run s up to seq honouring default-stream order
  while (!s->q.empty() && s->q.front().first <= seq) {
    if (!s->nonblock && s != &defst)
      while (!defst.q.empty() && defst.q.front().first < s->q.front().first) drain_to(&defst, defst.q.front().first);
    if (s->q.empty() || s->q.front().first > seq) break;
    drain_to(s, s->q.front().first);
  }
}

API cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  std::lock_guard l(G);
  TRY(cap_event(e, "cudaEventSynchronize"));
  if (!e->done) ev_wait(e->s, e->seq);
  return fin();
}

API cudaError_t cudaEventQuery(cudaEvent_t e) {
  std::lock_guard l(G);
  TRY(cap_event(e, "cudaEventQuery"));
  if (e->done) return fin();
  static thread_local int n = 0;
  if (++n % 3 == 0) ev_wait(e->s, e->seq);
  return cudaErrorNotReady;
}

API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  std::lock_guard l(G);
  if (a->capid) return cap_event(a, "cudaEventElapsedTime");
  if (b->capid) return cap_event(b, "cudaEventElapsedTime");
  if (!a->recorded || !b->recorded) return ret(cudaErrorInvalidResourceHandle);
  if (!a->done || !b->done) return ret(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(b->tp - a->tp).count();
  return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  if (e->capid) {
    auto it = captures.find(e->capid);
    if (it == captures.end()) return ret(cudaErrorCapturedEvent);
    Capture* c = it->second;
    CUstream_st* x = S(s);
    if (c->invalid) return ret(cudaErrorStreamCaptureInvalidated);
    if (legacy(s))
      return invalidate(c, cudaErrorStreamCaptureImplicit, "legacy default stream waits for a captured event");
    if (x->cap && x->cap != c) {
      invalidate(x->cap, cudaErrorStreamCaptureMerge, "wait for an event of another capture");
      return invalidate(c, cudaErrorStreamCaptureMerge, "wait for an event of another capture");
    }
    if (!x->cap) {
      x->cap = c;
      x->deps.clear();
      c->streams.push_back(x);
    }
    for (auto* n : e->capdeps)
      if (std::find(x->deps.begin(), x->deps.end(), n) == x->deps.end()) x->deps.push_back(n);
    return fin();
  }
  if (S(s)->cap && e->recorded && !(flags & cudaEventWaitExternal))
    return invalidate(S(s)->cap, cudaErrorStreamCaptureIsolation,
                      "capturing stream waits for an event recorded outside of the capture");
  if (S(s)->cap && e->recorded) {
    fprintf(stderr, "[ptxcpu] cudaEventWaitExternal during a capture is not supported\n");
    return ret(cudaErrorNotSupported);
  }
  if (S(s)->cap) return fin();
  if (!LAZY() || e->done) return fin();
  CUstream_st* es = e->s;
  u64 q = e->seq;
  enq(s, [es, q] {
    if (es == &defst || streams.count(es)) ev_wait(es, q);
  });
  return fin();
}
