// CUDA's calls on stream capture and graphs.
#pragma once

#include "launches.h"

struct CUgraphExec_st {
  CUgraph_st g;
};

typedef vector<std::shared_ptr<CUgraphNode_st>> NodeList;

static void copy_graph(NodeList const& from, NodeList& to) {
  std::map<CUgraphNode_st*, CUgraphNode_st*> m;
  to.clear();
  for (auto& n : from) {
    to.push_back(std::make_shared<CUgraphNode_st>(*n));
    m[n.get()] = to.back().get();
  }
  for (auto& n : to)
    for (auto& d : n->deps) d = m[d];
}

// One legal order of the nodes: as created; random with PTXCPU_SEED; last created first with
// PTXCPU_ASYNC=lazy, so that a dependency that was forgotten between two branches has a chance to show.
static bool graph_order(NodeList const& l, vector<CUgraphNode_st*>& out) {
  static u64 rng = (u64)SEED() * 0x9E3779B97F4A7C15ull + 1;
  std::map<CUgraphNode_st*, size_t> missing;
  vector<CUgraphNode_st*> ready;
  out.clear();
  for (auto& n : l) {
    missing[n.get()] = n->deps.size();
    if (n->deps.empty()) ready.push_back(n.get());
  }
  std::map<CUgraphNode_st*, size_t> at;
  for (size_t i = 0; i < l.size(); ++i) at[l[i].get()] = i;
  while (!ready.empty()) {
    size_t k = 0;
    if (SEED()) {
      rng ^= rng << 13;
      rng ^= rng >> 7;
      rng ^= rng << 17;
      k = rng % ready.size();
    } else {
      for (size_t i = 1; i < ready.size(); ++i)
        if (LAZY() ? at[ready[i]] > at[ready[k]] : at[ready[i]] < at[ready[k]]) k = i;
    }
    CUgraphNode_st* n = ready[k];
    ready.erase(ready.begin() + k);
    out.push_back(n);
    for (auto& x : l)
      for (auto* d : x->deps)
        if (d == n && --missing[x.get()] == 0) ready.push_back(x.get());
  }
  return out.size() == l.size();
}

static void run_graph(NodeList const& l) {
  vector<CUgraphNode_st*> o;
  graph_order(l, o);
  for (auto* n : o)
    if (n->run && !sticky) n->run();
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  std::lock_guard l(G);
  if ((u64)s <= 2) {
    if ((u64)s == 2) fprintf(stderr, "[ptxcpu] capture of cudaStreamPerThread is not supported\n");
    return ret(cudaErrorStreamCaptureUnsupported);
  }
  if (!streams.count(s)) return ret(cudaErrorInvalidResourceHandle);
  if (s->cap) return ret(cudaErrorIllegalState);
  Capture* c = new Capture;
  c->id = capctr++;
  c->g = new CUgraph_st;
  c->origin = s;
  c->mode = mode;
  c->thread = std::this_thread::get_id();
  c->streams = {s};
  captures[c->id] = c;
  s->cap = c;
  s->deps.clear();
  return cudaSuccess;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* out) {
  std::lock_guard l(G);
  if (out) *out = nullptr;
  if (legacy(s)) return ret(cudaErrorStreamCaptureUnsupported);
  if ((u64)s > 2 && !streams.count(s)) return ret(cudaErrorInvalidResourceHandle);
  Capture* c = S(s)->cap;
  if (!c) return ret(cudaErrorIllegalState);
  if (c->origin != s) return invalidate(c, cudaErrorStreamCaptureUnmatched, "ended in another stream");
  if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id())
    return ret(cudaErrorStreamCaptureWrongThread);
  cudaError_t e = c->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  if (!e) {  // every node of a joined stream must precede the end of the origin
    std::map<CUgraphNode_st*, bool> seen;
    Nodes todo = s->deps;
    while (!todo.empty()) {
      auto* n = todo.back();
      todo.pop_back();
      if (!seen.emplace(n, true).second) continue;
      for (auto* d : n->deps) todo.push_back(d);
    }
    for (auto* x : c->streams)
      for (auto* n : x->deps)
        if (!seen.count(n)) e = cudaErrorStreamCaptureUnjoined;
  }
  for (auto* x : c->streams) {
    x->cap = nullptr;
    x->deps.clear();
  }
  captures.erase(c->id);
  if (!e && out)
    *out = c->g;
  else
    delete c->g;
  delete c;
  return ret(e);
}

static cudaStreamCaptureStatus status_of(cudaStream_t s) {
  Capture* c = S(s)->cap;
  return !c           ? cudaStreamCaptureStatusNone
         : c->invalid ? cudaStreamCaptureStatusInvalidated
                      : cudaStreamCaptureStatusActive;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* st) {
  std::lock_guard l(G);
  if (legacy(s)) TRY(cap_legacy(false));
  *st = status_of(s);
  return cudaSuccess;
}

API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* st, unsigned long long* id,
                                         cudaGraph_t* g, cudaGraphNode_t const** deps, cudaGraphEdgeData const** edges,
                                         size_t* n) {
  std::lock_guard l(G);
  if (legacy(s)) TRY(cap_legacy(false));
  *st = status_of(s);
  if (*st != cudaStreamCaptureStatusActive) return cudaSuccess;
  CUstream_st* x = S(s);
  if (id) *id = x->cap->id;
  if (g) *g = x->cap->g;
  if (deps) *deps = x->deps.data();
  if (edges) *edges = nullptr;
  if (n) *n = x->deps.size();
  return cudaSuccess;
}

API cudaError_t cudaGraphCreate(cudaGraph_t* g, unsigned) {
  *g = new CUgraph_st;
  return cudaSuccess;
}

API cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  std::lock_guard l(G);
  delete g;
  return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t g, unsigned long long flags) {
  std::lock_guard l(G);
  if (!out || !g) return ret(cudaErrorInvalidValue);
  if (flags & cudaGraphInstantiateFlagDeviceLaunch) return ret(cudaErrorNotSupported);
  for (auto& p : captures)
    if (p.second->g == g) return ret(cudaErrorInvalidValue);
  auto* x = new CUgraphExec_st;
  copy_graph(g->nodes, x->g.nodes);
  vector<CUgraphNode_st*> o;
  if (!graph_order(x->g.nodes, o)) {
    delete x;
    return ret(cudaErrorInvalidValue);
  }
  *out = x;
  return cudaSuccess;
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long flags) {
  return instantiate(x, g, flags);
}

API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* x, cudaGraph_t g, unsigned long long flags) {
  return instantiate(x, g, flags);
}

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
  std::lock_guard l(G);
  delete x;  // a launch that is still pending keeps its own copy of the nodes
  return cudaSuccess;
}

API cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s) {
  std::lock_guard l(G);
  TRY(cap_pre(s));
  return x ? fin() : ret(cudaErrorInvalidValue);
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s) {
  std::lock_guard l(G);
  if (!x) return ret(cudaErrorInvalidValue);
  TRY(cap_pre(s));
  if (sticky) return fin();
  NodeList nodes;
  copy_graph(x->g.nodes, nodes);
  enq(s, [nodes] { run_graph(nodes); }, cudaGraphNodeTypeGraph);
  return fin();
}

// only the parameters may change, not the shape of the graph
API cudaError_t cudaGraphExecUpdate(cudaGraphExec_t x, cudaGraph_t g, cudaGraphExecUpdateResultInfo* r) {
  std::lock_guard l(G);
  NodeList n;
  copy_graph(g->nodes, n);
  bool same = n.size() == x->g.nodes.size();
  auto index = [](NodeList const& l, CUgraphNode_st* p) {
    size_t i = 0;
    while (i < l.size() && l[i].get() != p) ++i;
    return i;
  };
  for (size_t i = 0; same && i < n.size(); ++i) {
    auto &a = *n[i], &b = *x->g.nodes[i];
    same = a.type == b.type && a.deps.size() == b.deps.size();
    for (size_t k = 0; same && k < a.deps.size(); ++k) same = index(n, a.deps[k]) == index(x->g.nodes, b.deps[k]);
  }
  if (r) {
    memset(r, 0, sizeof *r);
    r->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
  }
  if (!same) return ret(cudaErrorGraphExecUpdateFailure);
  x->g.nodes = n;
  return cudaSuccess;
}

static cudaError_t list_nodes(Nodes const& l, cudaGraphNode_t* out, size_t* n) {
  if (!n) return ret(cudaErrorInvalidValue);
  if (out)
    for (size_t i = 0; i < *n; ++i) out[i] = i < l.size() ? l[i] : nullptr;
  if (!out || *n > l.size()) *n = l.size();
  return cudaSuccess;
}

API cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* out, size_t* n) {
  std::lock_guard l(G);
  Nodes v;
  for (auto& x : g->nodes) v.push_back(x.get());
  return list_nodes(v, out, n);
}

API cudaError_t cudaGraphGetEdges(cudaGraph_t g, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                                  size_t* n) {
  std::lock_guard l(G);
  size_t k = 0;
  for (auto& x : g->nodes)
    for (auto* d : x->deps) {
      if (from && to && k < *n) {
        from[k] = d;
        to[k] = x.get();
        if (data) memset(&data[k], 0, sizeof *data);
      }
      ++k;
    }
  if (!from || *n > k) *n = k;
  return cudaSuccess;
}

API cudaError_t cudaGraphNodeGetType(cudaGraphNode_t n, cudaGraphNodeType* t) {
  *t = n->type;
  return cudaSuccess;
}
