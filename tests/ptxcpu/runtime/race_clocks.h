// Which thread knows of which: what atomics, fences and barriers order.
#pragma once

#include "race.h"

static inline bool known(RaceBlock const& B, RThread const& r, u32 gid, u32 c) {
  u32 d = gid - B.g0;
  if (d < 1024) {
    if (c <= B.base || gid == r.gid) return true;
    if (d >> 5 == r.warp && c <= r.wl[d & 31]) return true;
  }
  return r.v && r.v->has(gid, c);
}

// all that a thread knows, itself included
static VCp publish(RaceBlock const& B, u32 gid, u32 base, u32 own, u32 const* wl, VCp const& v) {
  VC* n = new VC;
  if (v) {
    n->all = v->all;
    n->one = v->one;
  }
  if (base) VC::put(n->all, gid >> 10, base);
  u32 w0 = gid & ~31u;
  for (u32 l = 0; l < 32; ++l)
    if (w0 + l != gid && wl[l] > base) VC::put(n->one, w0 + l, wl[l]);
  if (own > base) VC::put(n->one, gid, own);
  n->prune();
  n->owner = gid;
  n->oclk = own;
  return VCp(n);
}

static VCp fenced(RaceBlock& B, RThread& r, int s) {
  Fenced& F = r.F[s];
  if (!F.any) return VCp();
  if (!F.m) {
    F.m = publish(B, r.gid, F.base, F.own, F.wl, F.v);
    if (F.owner != ~0u && F.owner >> 31) VC::put(F.m->one, F.owner, F.oclk);
    F.m->owner = F.owner;
    F.m->oclk = F.oclk;
  }
  return F.m;
}

static void race_sync_op(Block* b, RThread& r, u64 a, u32 fl) {
  Race& R = race();
  RaceBlock& B = *b->rb;
  u32 blk = r.gid >> 10, kind = fl & W_KIND;
  bool gpu = fl & W_GPU;
  auto it = R.msg.find(a);
  if (it != R.msg.end() && kind != 1 && !(fl & W_BLIND)) {
    Msg& m = it->second;
    bool mine = m.c && m.cblk == blk;
    if (fl & W_ACQ) {
      if (gpu) vc_join(r.v, m.g);
      if (mine) vc_join(r.v, m.c);
    } else {
      if (gpu) vc_join(r.Q[1], m.g);
      if (mine) vc_join(r.Q[0], m.c);
    }
  }
  if (kind == 0) return;
  VCp g, c;
  if (fl & W_REL) {
    c = publish(B, r.gid, B.base, r.clk, r.wl, r.v);
    g = gpu ? c : fenced(B, r, 1);
    ++r.clk;
  } else {
    c = fenced(B, r, 0);
    g = fenced(B, r, 1);
  }
  if (!gpu) g = VCp();
  if (kind == 1) {
    if (!g && !c) {
      if (it != R.msg.end()) R.msg.erase(it);
      return;
    }
    R.msg[a] = {g, c, blk};
    return;
  }
  if (it == R.msg.end()) {
    if (g || c) R.msg[a] = {g, c, blk};
    return;
  }
  Msg& m = it->second;
  vc_join(m.g, g);
  if (m.cblk != blk) m.c = VCp();
  m.cblk = blk;
  vc_join(m.c, c);
}

void rt_fence(T* t, u32 gpu) {
  if (!RACE()) return;
  Block* b = t->blk;
  RaceBlock& B = *b->rb;
  RThread& r = B.r[t->lin];
  vc_join(r.v, r.Q[0]);
  r.Q[0] = VCp();
  if (gpu) {
    vc_join(r.v, r.Q[1]);
    r.Q[1] = VCp();
  }
  for (u32 s = 0; s <= gpu; ++s) {
    Fenced& F = r.F[s];
    F.any = F.fresh = true;
    F.base = B.base;
    F.own = F.oclk = r.clk;
    F.owner = r.gid;
    memcpy(F.wl, r.wl, sizeof F.wl);
    F.v = r.v;
    F.m = VCp();
  }
  ++r.clk;
}

static void race_warp(Block* b, Warp* w, u32 mask) {  // bar.warp.sync by the lanes of `mask`
  if (!RACE()) return;
  RaceBlock& B = *b->rb;
  u32 wl[32] = {};
  VCp v, Q[2];
  bool fresh[2] = {};
  RThread* r0 = &B.r[w->base];
  for (u32 m = mask; m; m &= m - 1) {
    u32 i = __builtin_ctz(m);
    RThread& r = r0[i];
    for (u32 l = 0; l < 32; ++l) wl[l] = std::max(wl[l], r.wl[l]);
    vc_join(v, r.v);
    for (int s = 0; s < 2; ++s) {
      vc_join(Q[s], r.Q[s]);
      fresh[s] |= r.F[s].fresh;
    }
  }
  for (u32 m = mask; m; m &= m - 1) {
    u32 i = __builtin_ctz(m);
    wl[i] = std::max(wl[i], r0[i].clk);
  }
  for (int s = 0; s < 2; ++s)
    if (fresh[s]) {
      Fenced N;
      memset(N.wl, 0, sizeof N.wl);
      for (u32 m = mask; m; m &= m - 1) {
        u32 i = __builtin_ctz(m);
        Fenced& F = r0[i].F[s];
        if (!F.any) continue;
        N.base = std::max(N.base, F.base);
        for (u32 l = 0; l < 32; ++l) N.wl[l] = std::max(N.wl[l], F.wl[l]);
        N.wl[i] = std::max(N.wl[i], F.own);
        vc_join(N.v, F.v);
      }
      for (u32 m = mask; m; m &= m - 1) {
        u32 i = __builtin_ctz(m);
        Fenced& F = r0[i].F[s];
        F.any = F.fresh = true;
        F.base = N.base;
        F.own = N.wl[i];
        F.owner = ~0u;
        memcpy(F.wl, N.wl, sizeof F.wl);
        F.v = N.v;
        F.m = VCp();
      }
    }
  for (u32 m = mask; m; m &= m - 1) {
    RThread& r = r0[__builtin_ctz(m)];
    memcpy(r.wl, wl, sizeof wl);
    r.v = v;
    r.Q[0] = Q[0];
    r.Q[1] = Q[1];
    ++r.clk;
  }
}

static void race_arrive(T* t, u32 id) {  // bar.arrive: does not wait
  if (!RACE()) return;
  RaceBlock& B = *t->blk->rb;
  RThread& r = B.r[t->lin];
  vc_join(B.bar[id], publish(B, r.gid, B.base, r.clk, r.wl, r.v));
  ++r.clk;
}

static void race_bar(Block* b, u32 id) {  // a barrier is complete; its waiting threads have state WBAR
  if (!RACE()) return;
  RaceBlock& B = *b->rb;
  u32 n = 0;
  for (auto& t : b->th) n += t.state == WBAR && t.resv == id;
  if (n < b->live || B.bar[id]) {  // of a part of the block
    VCp acc;
    acc = B.bar[id];
    B.bar[id] = VCp();
    for (auto& t : b->th)
      if (t.state == WBAR && t.resv == id) {
        RThread& r = B.r[t.lin];
        vc_join(acc, publish(B, r.gid, B.base, r.clk, r.wl, r.v));
        ++r.clk;
      }
    for (auto& t : b->th)
      if (t.state == WBAR && t.resv == id) B.r[t.lin].v = acc;
    return;
  }
  u32 top = 0;
  VCp v, Q[2];
  bool fresh[2] = {};
  for (auto& r : B.r) {
    top = std::max(top, r.clk);
    vc_join(v, r.v);
    for (int s = 0; s < 2; ++s) {
      vc_join(Q[s], r.Q[s]);
      fresh[s] |= r.F[s].fresh;
    }
  }
  for (int s = 0; s < 2; ++s)
    if (fresh[s]) {
      vector<u32> k(B.r.size());
      u32 base = 0, least = ~0u;
      VCp fv;
      for (auto& r : B.r) {
        Fenced& F = r.F[s];
        if (!F.any) continue;
        base = std::max(base, F.base);
        vc_join(fv, F.v);
        u32 i = r.gid & 1023;
        k[i] = std::max(k[i], F.own);
        if (F.fresh)
          for (u32 l = 0; l < 32 && (i & ~31u) + l < k.size(); ++l)
            k[(i & ~31u) + l] = std::max(k[(i & ~31u) + l], F.wl[l]);
      }
      for (u32 x : k) least = std::min(least, x);
      base = std::max(base, least);
      bool odd = false;
      for (u32 x : k) odd |= x > base;
      if (odd) {
        VC* n = new VC;
        if (fv) {
          n->all = fv->all;
          n->one = fv->one;
        }
        VC::V o;
        for (u32 i = 0; i < k.size(); ++i)
          if (k[i] > base) o.push_back({B.g0 + i, k[i]});
        VC::merge(n->one, o);
        n->prune();
        fv = VCp(n);
      }
      VCp m;
      for (auto& r : B.r) {
        Fenced& F = r.F[s];
        F.any = true;
        F.fresh = false;
        F.base = base;
        F.own = k[r.gid & 1023];
        F.owner = 1u << 31 | B.g0 | s;
        F.oclk = top + 1;
        memset(F.wl, 0, sizeof F.wl);
        F.v = fv;
        F.m = VCp();
      }
    }
  B.base = top;
  for (auto& r : B.r) {
    r.clk = top + 1;
    r.v = v;
    r.Q[0] = Q[0];
    r.Q[1] = Q[1];
  }
}
