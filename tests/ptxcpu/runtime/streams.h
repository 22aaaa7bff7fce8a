// Queues of streams and their order, and the rules of stream capture.
#pragma once

#include "fibers.h"

struct Capture;
struct CUgraphNode_st {  // cudaGraphNode_t
  cudaGraphNodeType type;
  std::function<void()> run;
  vector<CUgraphNode_st*> deps;
};

typedef vector<CUgraphNode_st*> Nodes;
struct CUgraph_st {  // cudaGraph_t; nodes are in creation order, which is a topological order
  vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

struct CUstream_st {
  Capture* cap = nullptr;
  Nodes deps;  // while capturing: what the next node depends on
  std::deque<std::pair<u64, std::function<void()>>> q;
  bool nonblock = false;
  int prio = 0, dev = 0;
  unsigned long long id;
};

struct CUevent_st {
  u64 capid = 0;  // last recorded in this capture (0: recorded normally)
  Nodes capdeps;
  bool recorded = false;
  CUstream_st* s = nullptr;
  u64 seq = 0;
  std::chrono::steady_clock::time_point tp;
  bool done = true;
  u64 gen = 0;
  unsigned flags = 0;
};

static CUstream_st defst;
static std::map<CUstream_st*, bool> streams;
static u64 seqc = 1;
static unsigned long long sid = 10;
static CUstream_st* S(cudaStream_t s) { return (u64)s <= 2 ? &defst : s; }
static void drain_to(CUstream_st* s, u64 seq) {
  while (!s->q.empty() && s->q.front().first <= seq) {
    auto f = std::move(s->q.front().second);
    s->q.pop_front();
    f();
  }
}

static void drain_all(u64 seq = ~0ull) {
  for (;;) {
    CUstream_st* b = nullptr;
    u64 m = seq;
    auto c = [&](CUstream_st* s) {
      if (!s->q.empty() && s->q.front().first <= m) {
        m = s->q.front().first;
        b = s;
      }
    };
    c(&defst);
    for (auto& p : streams) c(p.first);
    if (!b) break;
    drain_to(b, m);
  }
}

// Runs what the default stream and the blocking ones were given up to `last`, in this order.
static void drain_blocking(u64 last) {
  for (;;) {
    CUstream_st* b = nullptr;
    u64 m = last;
    auto c = [&](CUstream_st* x) {
      if (!x->nonblock && !x->q.empty() && x->q.front().first <= m) {
        m = x->q.front().first;
        b = x;
      }
    };
    c(&defst);
    for (auto& p : streams) c(p.first);
    if (!b) return;
    drain_to(b, m);
  }
}
static void sync_stream(CUstream_st* s) {
  if (s->q.empty()) return;
  u64 last = s->q.back().first;
  if (s == &defst || !s->nonblock) {  // legacy default stream ordering: work in blocking streams and default
                                      // stream is mutually ordered
    if (s == &defst) {                // everything in blocking streams issued before the last default op precedes it
      drain_blocking(last);
      return;
    }
    while (!s->q.empty()) {
      u64 n = s->q.front().first;
      if (!defst.q.empty() && defst.q.front().first < n) {
        u64 d = 0;
        for (auto& e : defst.q)
          if (e.first < n) d = e.first;  // run default-stream ops issued before n (and what precedes them)
        drain_blocking(d);
        continue;
      }
      drain_to(s, n);
      if (n >= last) break;
    }
    return;
  }
  drain_to(s, last);
}

// ---------------------------------------------------------------- stream capture
struct Capture {
  u64 id;
  CUgraph_st* g;
  CUstream_st* origin;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  vector<CUstream_st*> streams;
};

static std::map<u64, Capture*> captures;
static u64 capctr = 1;
static bool legacy(cudaStream_t s) { return (u64)s <= 1; }
static cudaError_t invalidate(Capture* c, cudaError_t e, char const* why) {
  if (!c->invalid) fprintf(stderr, "[ptxcpu] stream capture invalidated: %s\n", why);
  c->invalid = true;
  return ret(e);
}

// use of the legacy default stream while a blocking stream is being captured
static cudaError_t cap_legacy(bool inval = true) {
  cudaError_t e = cudaSuccess;
  for (auto& p : captures)
    for (auto* s : p.second->streams)
      if (!s->nonblock) {
        e = inval ? invalidate(p.second, cudaErrorStreamCaptureImplicit, "use of the legacy default stream")
                  : ret(cudaErrorStreamCaptureImplicit);
        break;
      }
  return e;
}

// first thing in every call that puts work into stream st
static cudaError_t cap_pre(cudaStream_t st) {
  if (captures.empty()) return cudaSuccess;
  if (legacy(st)) return cap_legacy();
  if (S(st)->cap && S(st)->cap->invalid) return ret(cudaErrorStreamCaptureInvalidated);
  return cudaSuccess;
}

// calls that CUDA names potentially unsafe during a capture (cudaMalloc and the like)
static cudaError_t cap_unsafe(char const* what) {
  if (captures.empty()) return cudaSuccess;
  cudaError_t e = cudaSuccess;
  for (auto& p : captures) {
    Capture* c = p.second;
    bool mine = c->thread == std::this_thread::get_id();
    if (c->mode == cudaStreamCaptureModeRelaxed) continue;
    if (!mine && c->mode != cudaStreamCaptureModeGlobal) continue;
    e = invalidate(c, cudaErrorStreamCaptureUnsupported, what);
  }
  return e;
}

static cudaError_t cap_device(char const* what) {  // calls that touch all streams of the device
  cudaError_t e = cudaSuccess;
  for (auto& p : captures) e = invalidate(p.second, cudaErrorStreamCaptureUnsupported, what);
  return e;
}

static cudaError_t cap_sync(cudaStream_t st, char const* what) {
  if (captures.empty()) return cudaSuccess;
  if (legacy(st))
    if (cudaError_t e = cap_legacy()) return e;
  if (Capture* c = S(st)->cap)
    return c->invalid ? ret(cudaErrorStreamCaptureInvalidated) : invalidate(c, cudaErrorStreamCaptureUnsupported, what);
  return cap_unsafe(what);
}

static cudaError_t cap_event(cudaEvent_t e, char const* what) {
  if (e->capid) {
    auto it = captures.find(e->capid);
    if (it != captures.end()) return invalidate(it->second, cudaErrorCapturedEvent, what);
    return ret(cudaErrorCapturedEvent);
  }
  return cap_unsafe(what);
}

#define TRY(x) \
  if (cudaError_t try_ = (x)) return try_
static CUgraphNode_st* add_node(CUgraph_st* g, cudaGraphNodeType t, const Nodes& deps, std::function<void()> f) {
  auto n = std::make_shared<CUgraphNode_st>();
  n->type = t;
  n->run = std::move(f);
  n->deps = deps;
  g->nodes.push_back(n);
  return n.get();
}

static void enq(cudaStream_t st, std::function<void()> f, cudaGraphNodeType t = cudaGraphNodeTypeHost) {
  CUstream_st* s = S(st);
  if (s->cap) {
    s->deps = {add_node(s->cap->g, t, s->deps, std::move(f))};
    return;
  }
  if (!LAZY()) {
    f();
    return;
  }
  s->q.emplace_back(seqc++, std::move(f));
}

static cudaError_t fin() {
  int e = sticky;
  return ret((cudaError_t)e);
}
