// What else translated kernels call: checks of accesses, traps, printf, rounding modes.
#pragma once

#include "warps.h"

void rt_chk(T* t, u64 a, u32 n, u32 line, u32 kind) {
  Block* b = t->blk;
  u64 lo, hi;
  static char const* kn[] = {"read", "write", "atomic"};
  if (!(kind & 4)) {
    auto put = [&](u64 l, u64 h) {
      t->lo2 = t->lo;
      t->hi2 = t->hi;
      t->lo = l;
      t->hi = h;
    };
    for (u32 i = 0; i < b->nr; ++i)
      if (a >= b->rlo[i] && a + n <= b->rhi[i]) {
        put(b->rlo[i], b->rhi[i]);
        return;
      }
    if (a >= (u64)b->sh && a + n <= (u64)b->sh + t->totsm) {
      put((u64)b->sh, (u64)b->sh + t->totsm);
      return;
    }
    if (a >= (u64)b->stk && a + n <= (u64)b->stk + b->nstk) return;
    if (a >= (u64)b->L->params.data() && a + n <= (u64)b->L->params.data() + b->L->params.size()) return;
    if (find_alloc(a, lo, hi) && a + n <= hi) {
      put(lo, hi);
      u32 k = b->nr < 8 ? b->nr++ : (b->rp++ & 7);
      b->rlo[k] = lo;
      b->rhi[k] = hi;
      return;
    }
  }
  report(b, cudaErrorIllegalAddress,
         "illegal %s%s of %u bytes at 0x%llx (%s) by block (%u,%u,%u) thread (%u,%u,%u), PTX line %u",
         kind & 4 ? "shared " : "", kn[kind & 3], n, (unsigned long long)a,
         (kind & 4)              ? (string("shared size ") + std::to_string(t->totsm)).c_str()
         : find_alloc(a, lo, hi) ? "straddles end of allocation"
         : find_alloc(a - 1, lo, hi) || find_alloc(a - 256, lo, hi) ? "just past an allocation"
                                                                    : "not device-accessible",
         t->ctaid[0], t->ctaid[1], t->ctaid[2], t->tid[0], t->tid[1], t->tid[2], line + t->blk->L->base);
  t->state = DONE;
  leave(t);
}

void rt_misaligned(T* t, u64 a, u32 n, u32 line) {
  report(t->blk, cudaErrorMisalignedAddress,
         "misaligned access at 0x%llx (needs %u) by block (%u,%u,%u) thread (%u,%u,%u), PTX line %u",
         (unsigned long long)a, n, t->ctaid[0], t->ctaid[1], t->ctaid[2], t->tid[0], t->tid[1], t->tid[2],
         line + t->blk->L->base);
  t->state = DONE;
  leave(t);
}

void rt_trap(T* t, u32 line, char const* w) {
  report(t->blk, cudaErrorLaunchFailure, "%s by block (%u,%u,%u) thread (%u,%u,%u), PTX line %u", w, t->ctaid[0],
         t->ctaid[1], t->ctaid[2], t->tid[0], t->tid[1], t->tid[2], line + t->blk->L->base);
  t->state = DONE;
  leave(t);
}

void rt_assert(T* t, char const* m, char const* f, u32 ln, char const* fn) {
  report(t->blk, cudaErrorAssert, "%s:%u: %s: block (%u,%u,%u) thread (%u,%u,%u) Assertion `%s` failed", f, ln, fn,
         t->ctaid[0], t->ctaid[1], t->ctaid[2], t->tid[0], t->tid[1], t->tid[2], m);
  t->state = DONE;
  leave(t);
}

void rt_stk(T* t) {
  report(t->blk, cudaErrorLaunchFailure, "per-thread stack overflow: raise PTXCPU_STACK (KB, now %zu)", STK() / 1024);
  t->state = DONE;
  leave(t);
}

u64 rt_malloc(u64 n) {
  void* p = new_alloc(n, KDEV);
  if (p) race_forget((u64)p, n);
  return (u64)p;
}

void rt_free(u64 p) {
  if (p) del_alloc((void*)p);
}

u64 rt_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

u32 rt_vprintf(T* t, char const* f, u8 const* a) {
  string o;
  size_t off = 0;
  for (char const* p = f; *p;) {
    if (*p != '%') {
      o += *p++;
      continue;
    }
    if (p[1] == '%') {
      o += '%';
      p += 2;
      continue;
    }
    string s = "%";
    ++p;
    while (*p && strchr("-+ #0123456789.*", *p)) {
      if (*p == '*') {
        off = (off + 3) & ~3;
        s += std::to_string(*(int*)(a + off));
        off += 4;
      } else
        s += *p;
      ++p;
    }
    int lng = 0;
    while (*p && strchr("hlzjt", *p)) {
      if (*p != 'h') lng = 1;
      s += *p++;
    }
    char c = *p++;
    s += c;
    char buf[600];
    if (strchr("diouxXc", c)) {
      if (lng) {
        off = (off + 7) & ~7;
        snprintf(buf, 600, s.c_str(), *(long long*)(a + off));
        off += 8;
      } else {
        off = (off + 3) & ~3;
        snprintf(buf, 600, s.c_str(), *(int*)(a + off));
        off += 4;
      }
    } else if (strchr("fFeEgGaA", c)) {
      off = (off + 7) & ~7;
      snprintf(buf, 600, s.c_str(), *(double*)(a + off));
      off += 8;
    } else {
      off = (off + 7) & ~7;
      snprintf(buf, 600, s.c_str(), *(void**)(a + off));
      off += 8;
    }
    o += buf;
  }
  fwrite(o.data(), 1, o.size(), stdout);
  return o.size();
}

struct RM {
  int o;
  RM(int m) {
    o = fegetround();
    fesetround(m == 1 ? FE_TOWARDZERO : m == 2 ? FE_DOWNWARD : m == 3 ? FE_UPWARD : FE_TONEAREST);
  }
  ~RM() { fesetround(o); }
};

f32 rt_fma_rm(f32 a, f32 b, f32 c, int m) {
  RM r(m);
  f32 volatile x = __builtin_fmaf(a, b, c);
  return x;
}

f64 rt_fmad_rm(f64 a, f64 b, f64 c, int m) {
  RM r(m);
  f64 volatile x = __builtin_fma(a, b, c);
  return x;
}

template <class X>
static X bin(int op, X a, X b, int m) {
  RM r(m);
  X volatile p = a, q = b, x;
  x = op == 0 ? p + q : op == 1 ? p - q : op == 2 ? p * q : op == 3 ? p / q : std::sqrt(p);
  return x;
}

f32 rt_bin32(int op, f32 a, f32 b, int m) { return bin<f32>(op, a, b, m); }
f64 rt_bin64(int op, f64 a, f64 b, int m) { return bin<f64>(op, a, b, m); }
f32 rt_cvt64_32(f64 a, int m) {
  RM r(m);
  f64 volatile x = a;
  f32 volatile y = (f32)x;
  return y;
}

f32 rt_cvts64_32(s64 a, int m) {
  RM r(m);
  s64 volatile x = a;
  f32 volatile y = (f32)x;
  return y;
}

f32 rt_cvtu64_32(u64 a, int m) {
  RM r(m);
  u64 volatile x = a;
  f32 volatile y = (f32)x;
  return y;
}

f64 rt_cvts64_64(s64 a, int m) {
  RM r(m);
  s64 volatile x = a;
  f64 volatile y = (f64)x;
  return y;
}

f64 rt_cvtu64_64(u64 a, int m) {
  RM r(m);
  u64 volatile x = a;
  f64 volatile y = (f64)x;
  return y;
}
