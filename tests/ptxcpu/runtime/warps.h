// What threads do together: shuffles, votes, barriers, exit.
#pragma once

#include "race_memory.h"

static inline void leave(T* t) { ptxcpu_switch(&t->sp, t->blk->sched); }
static char const* opn[] = {"?",          "bar.warp.sync", "shfl.up",   "shfl.down",   "shfl.bfly", "shfl.idx",
                            "vote.all",   "vote.any",      "vote.uni",  "vote.ballot", "match.any", "match.all",
                            "activemask", "redux.add",     "redux.min", "redux.max",   "redux.min", "redux.max",
                            "redux.and",  "redux.or",      "redux.xor", "elect"};
static void complete(Block* b, Warp* w, u32 gi) {  // all lanes in group arrived
  Group g = w->g[gi];
  w->g[gi] = w->g[--w->ng];
  u32 A = g.arr;
  u64 acc = 0;
  u32 bal = 0;
  bool first = true;
  auto each = [&](auto f) {
    for (u32 m = A; m; m &= m - 1) f((u32)__builtin_ctz(m));
  };
  switch (g.op) {
    case OP_SHUP:
    case OP_SHDOWN:
    case OP_SHBFLY:
    case OP_SHIDX:
      each([&](u32 l) {
        Slot& s = w->s[l];
        u32 bv = s.b & 31, cv = s.c & 31, sm = (s.c >> 8) & 31, maxl = (l & sm) | (cv & ~sm), minl = l & sm;
        s32 j;
        bool p;
        if (g.op == OP_SHUP) {
          j = (s32)l - (s32)bv;
          p = j >= (s32)maxl;
        } else if (g.op == OP_SHDOWN) {
          j = l + bv;
          p = j <= (s32)maxl;
        } else if (g.op == OP_SHBFLY) {
          j = l ^ bv;
          p = j <= (s32)maxl;
        } else {
          j = minl | (bv & ~sm);
          p = j <= (s32)maxl;
        }
        if (!p) j = l;
        T& t = b->th[w->base + l];
        t.retp = p;
        if ((A >> j) & 1)
          t.ret = (u32)w->s[j].v;
        else {
          t.ret = 0xDEADBEEFu;
          if (VERB() > 1)
            fprintf(stderr, "[ptxcpu] %s: shfl line %u lane %u reads inactive lane %d\n", b->L->name.c_str(),
                    g.site + b->L->base, l, j);
        }
      });
      break;
    case OP_BARW:
      race_warp(b, w, A);
      break;
    case OP_ALL:
    case OP_ANY:
    case OP_UNI:
    case OP_BALLOT:
      each([&](u32 l) {
        if (w->s[l].v) bal |= 1u << l;
      });
      each([&](u32 l) {
        T& t = b->th[w->base + l];
        t.ret = g.op == OP_BALLOT ? bal
                : g.op == OP_ALL  ? bal == A
                : g.op == OP_ANY  ? bal != 0
                                  : (bal == 0 || bal == A);
      });
      break;
    case OP_MATCHANY:
      each([&](u32 l) {
        u32 m = 0;
        each([&](u32 k) {
          if (w->s[k].v == w->s[l].v) m |= 1u << k;
        });
        b->th[w->base + l].ret = m;
        b->th[w->base + l].retp = 1;
      });
      break;
    case OP_MATCHALL: {
      bool eq = true;
      u64 v0 = w->s[__builtin_ctz(A)].v;
      each([&](u32 l) { eq &= w->s[l].v == v0; });
      each([&](u32 l) {
        T& t = b->th[w->base + l];
        t.ret = eq ? A : 0;
        t.retp = eq;
      });
    } break;
    case OP_ACTIVE:
      each([&](u32 l) { b->th[w->base + l].ret = A; });
      break;
    case OP_ELECT:
      each([&](u32 l) { b->th[w->base + l].ret = __builtin_ctz(A); });
      break;
    default:
      each([&](u32 l) {
        u32 v = (u32)w->s[l].v;
        if (first) {
          acc = v;
          first = false;
        } else
          switch (g.op) {
            case OP_RADD_:
              acc = (u32)(acc + v);
              break;
            case OP_RMINU:
              acc = std::min((u32)acc, v);
              break;
            case OP_RMAXU:
              acc = std::max((u32)acc, v);
              break;
            case OP_RMINS:
              acc = (u32)std::min((s32)acc, (s32)v);
              break;
            case OP_RMAXS:
              acc = (u32)std::max((s32)acc, (s32)v);
              break;
            case OP_RAND:
              acc &= v;
              break;
            case OP_ROR:
              acc |= v;
              break;
            case OP_RXOR:
              acc ^= v;
              break;
          }
      });
      each([&](u32 l) { b->th[w->base + l].ret = acc; });
  }
  each([&](u32 l) { b->th[w->base + l].state = READY; });
  w->ready |= A;
}

u64 rt_warp(T* t, u32 op, u32 site, u32 mask, u64 v, u32 bb, u32 c) {
  Warp* w = t->wp;
  Block* b = t->blk;
  u32 me = 1u << t->lane;
  if (!(mask & me)) {
    report(b, cudaErrorIllegalInstruction,
           "%s at PTX line %u: lane %u of block (%u,%u,%u) thread (%u,%u,%u) is not in its own member mask "
           "0x%08x",
           opn[op], site + b->L->base, t->lane,
           t->ctaid[0], t->ctaid[1], t->ctaid[2], t->tid[0], t->tid[1], t->tid[2], mask);
    t->state = DONE;
    leave(t);
  }
  Slot& s = w->s[t->lane];
  s.v = v;
  s.b = bb;
  s.c = c;
  u32 i = 0;
  for (; i < w->ng; ++i)
    if (w->g[i].site == site && w->g[i].mask == mask && w->g[i].op == op) break;
  if (i == w->ng) {
    w->g[w->ng++] = {op, site, mask, 0};
  }
  Group& g = w->g[i];
  g.arr |= me;
  t->state = WWARP;
  t->site = site;
  if (op != OP_ACTIVE && g.arr == (mask & w->alive)) {
    complete(b, w, i);
    w->ready &= ~me;
    t->state = READY;
    return t->ret;
  }
  leave(t);
  return t->ret;
}

static void bar_release(Block* b, u32 id) {
  Bar& B = b->bar[id];
  race_bar(b, id);
  if (STATS()) ++race().cur.bar;
  B.res = B.acc;
  B.res2 = B.acc2;
  B.cnt = 0;
  B.on = false;
  B.arrived_noblock = 0;
  for (auto& t : b->th)
    if (t.state == WBAR && t.resv == id) {
      t.state = READY;
      t.wp->ready |= 1u << t.lane;
    }
}

// exited threads are not waited for, but those that arrived and then exited have arrived
static s32 bar_need(Block* b, Bar const& B) {
  return B.need < 0 ? (s32)b->live : std::min<s32>(B.need, b->live + B.arrived_noblock);
}

static bool bar_arrive(Block* b, u32 id, s32 cnt, u32 pred) {
  Bar& B = b->bar[id];
  if (!B.on) {
    B.on = true;
    B.cnt = 0;
    B.acc = 0;
    B.acc2 = 1;
    B.need = cnt;
  }
  B.cnt++;
  B.acc += pred != 0;
  B.acc2 &= pred != 0;
  return B.cnt >= bar_need(b, B);
}

void rt_bar(T* t, u32 id, s32 cnt, u32 line) {
  Block* b = t->blk;
  if (id > 16) id = 15;
  t->state = WBAR;
  t->resv = id;
  t->site = line;
  if (bar_arrive(b, id, cnt, 0)) {
    bar_release(b, id);
    t->wp->ready &= ~(1u << t->lane);
    t->state = READY;
    return;
  }
  leave(t);
}

u32 rt_barred(T* t, u32 id, s32 cnt, u32 op, u32 pred, u32 line) {
  Block* b = t->blk;
  t->state = WBAR;
  t->resv = id;
  t->site = line;
  if (bar_arrive(b, id, cnt, pred)) {
    bar_release(b, id);
    t->wp->ready &= ~(1u << t->lane);
    t->state = READY;
  } else
    leave(t);
  Bar& B = b->bar[id];
  return op == 0 ? B.res : op == 1 ? B.res2 : B.res != 0;
}

void rt_bararrive(T* t, u32 id, s32 cnt) {
  race_arrive(t, id);
  t->blk->bar[id].arrived_noblock++;
  if (bar_arrive(t->blk, id, cnt, 0)) bar_release(t->blk, id);
}

void rt_yield(T* t) {
  t->budget = 400;
  t->blk->yielded = true;
  t->wp->ready |= 1u << t->lane;
  leave(t);
}

static long PREEMPT() {
  static long v = envi("PTXCPU_PREEMPT", 0);
  return v;
}

void rt_preempt(T* t) {
  t->pre = rnd(t->blk) % PREEMPT();
  rt_yield(t);
}

void rt_exit(T* t) {
  Block* b = t->blk;
  Warp* w = t->wp;
  {
    u64* c = (u64*)(b->stk + (size_t)t->lin * STK());
    if (__builtin_expect(*c != 0x57AC4CA4A4511234ull, 0)) {
      *c = 0x57AC4CA4A4511234ull;
      report(b, cudaErrorLaunchFailure, "per-thread stack overflow: raise PTXCPU_STACK (KB, now %zu)", STK() / 1024);
      t->state = DONE;
      leave(t);
    }
  }
  if (b->L->early && !t->waited)
    report(b, cudaErrorLaunchFailure,
           "was launched early, but a thread ended without griddepcontrol.wait: the kernel may end, and the next one "
           "read, before the kernel before it has ended");
  t->state = DONE;
  b->live--;
  w->alive &= ~(1u << t->lane);
  for (u32 i = 0; i < w->ng;) {
    if (w->g[i].op != OP_ACTIVE && w->g[i].arr == (w->g[i].mask & w->alive)) {
      complete(b, w, i);
      i = 0;
    } else
      ++i;
  }
  if (b->live)
    for (u32 i = 0; i < 17; ++i) {
      Bar& B = b->bar[i];
      if (B.on && B.cnt > 0) {
        if (B.cnt >= bar_need(b, B)) bar_release(b, i);
      }
    }
  leave(t);
  __builtin_unreachable();
}
