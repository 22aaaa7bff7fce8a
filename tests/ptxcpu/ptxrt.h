// shared between the runtime (libcudart stand-in) and translated kernels
#pragma once
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef unsigned __int128 u128;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef __int128 s128;
typedef float f32;
typedef double f64;
struct Block;
struct Warp;
struct T {  // one CUDA thread
  void* sp;
  int budget;
  u32 state;
  u32 tid[3], ntid[3], ctaid[3], nctaid[3];
  u32 lane, warp, lin, dynsm, totsm, gridid, envreg1, envreg2;
  u8* sh;
  u64 lo, hi, lo2, hi2;  // shared base, cached legal range
  Block* blk;
  Warp* wp;
  char const* kname;
  u32 site;
  u32 resv;
  u64 ret;
  u32 retp;
  int pre;
  u64 stk0;
  u32 waited;  // it has waited for the kernel before its own
};

enum {
  OP_BARW = 1,
  OP_SHUP,
  OP_SHDOWN,
  OP_SHBFLY,
  OP_SHIDX,
  OP_ALL,
  OP_ANY,
  OP_UNI,
  OP_BALLOT,
  OP_MATCHANY,
  OP_MATCHALL,
  OP_ACTIVE,
  OP_RADD_,
  OP_RMINU,
  OP_RMAXU,
  OP_RMINS,
  OP_RMAXS,
  OP_RAND,
  OP_ROR,
  OP_RXOR,
  OP_ELECT
};

extern "C" {
void rt_yield(T*);
void rt_preempt(T*);
void rt_stk(T*);
void rt_bar(T*, u32 id, s32 cnt, u32 line);
u32 rt_barred(T*, u32 id, s32 cnt, u32 op, u32 pred, u32 line);
void rt_bararrive(T*, u32, s32);
u64 rt_warp(T*, u32 op, u32 site, u32 mask, u64 v, u32 b, u32 c);
void rt_chk(T*, u64 a, u32 n, u32 line, u32 kind);
void rt_misaligned(T*, u64 a, u32 n, u32 line);
void rt_trap(T*, u32 line, char const*);
[[noreturn]] void rt_exit(T*);
u32 rt_vprintf(T*, char const*, u8 const*);
void rt_assert(T*, char const*, char const*, u32, char const*);
u64 rt_malloc(u64);
void rt_mem(T*, u64 a, u32 n, u32 line, u32 flags);
void rt_fence(T*, u32 gpu);
void rt_free(u64);
u64 rt_clock();
f32 rt_fma_rm(f32, f32, f32, int);
f64 rt_fmad_rm(f64, f64, f64, int);
f32 rt_bin32(int op, f32, f32, int rm);
f64 rt_bin64(int op, f64, f64, int rm);
f32 rt_cvt64_32(f64, int rm);
f32 rt_cvts64_32(s64, int), rt_cvtu64_32(u64, int);
f64 rt_cvts64_64(s64, int), rt_cvtu64_64(u64, int);
}

#define I static inline __attribute__((always_inline))
I f32 F(u32 x) {
  f32 r;
  memcpy(&r, &x, 4);
  return r;
}

I f64 D(u64 x) {
  f64 r;
  memcpy(&r, &x, 8);
  return r;
}

I u32 B(f32 x) {
  u32 r;
  memcpy(&r, &x, 4);
  return r;
}

I u64 B(f64 x) {
  u64 r;
  memcpy(&r, &x, 8);
  return r;
}

I f32 FZ(f32 x) {
  u32 b = B(x);
  return (b & 0x7f800000u) ? x : F(b & 0x80000000u);
}

I f32 SAT(f32 x) { return !(x > 0) ? 0.f : (x > 1 ? 1.f : x); }
I f64 SAT(f64 x) { return !(x > 0) ? 0. : (x > 1 ? 1. : x); }
I f32 H(u16 h) { return _cvtsh_ss(h); }
I u16 HB(f32 f) { return _cvtss_sh(f, 0); }
I f32 BF(u16 b) { return F((u32)b << 16); }
I u16 BFB(f32 f) {
  u32 b = B(f);
  if ((b & 0x7fffffff) > 0x7f800000) return 0x7fff;
  b += 0x7fff + ((b >> 16) & 1);
  return b >> 16;
}

I u16 HBD(f64 d) {
  f32 f = (f32)d;
  if ((f64)f != d && std::isfinite(f)) {  // round to odd then to half
    u32 b = B(f);
    bool up = fabs((f64)f) > fabs(d);
    if (up) b -= 1;
    b |= 1;
    f = F(b);
  }
  return HB(f);
}

I u16 BFBD(f64 d) {
  f32 f = (f32)d;
  if ((f64)f != d && std::isfinite(f)) {
    u32 b = B(f);
    if (fabs((f64)f) > fabs(d)) b -= 1;
    b |= 1;
    f = F(b);
  }
  return BFB(f);
}

I u16 HBM(f32 f, int rm) {
  return rm == 0 ? _cvtss_sh(f, 0) : rm == 1 ? _cvtss_sh(f, 3) : rm == 2 ? _cvtss_sh(f, 1) : _cvtss_sh(f, 2);
}  // 1 rz 2 rm 3 rp
// checked accesses
#define TICK(t)                                              \
  do {                                                       \
    if (__builtin_expect(--(t)->budget < 0, 0)) rt_yield(t); \
  } while (0)
#ifdef PTX_PREEMPT
#define PRE(t)                                              \
  do {                                                      \
    if (__builtin_expect(--(t)->pre < 0, 0)) rt_preempt(t); \
  } while (0)
#else
#define PRE(t)
#endif
// the watch mode: told of every access to global or shared memory and of every fence
#ifdef PTX_WATCH
#define WA(t, a, n, line, fl) rt_mem(t, a, n, line, fl)
#define WF(t, gpu) rt_fence(t, gpu)
#else
#define WA(t, a, n, line, fl)
#define WF(t, gpu)
#endif
template <int A>
I void ck(T* t, u64 a, u32 n, u32 line, u32 kind) {
  PRE(t);
  if (__builtin_expect(a & (A - 1), 0)) rt_misaligned(t, a, A, line);
  if (__builtin_expect(!(a >= t->lo && a + n <= t->hi), 0) && !(a >= t->lo2 && a + n <= t->hi2))
    rt_chk(t, a, n, line, kind);
}

template <int A>
I void cksh(T* t, u64 o, u32 n, u32 line, u32 kind) {
  PRE(t);
  if (__builtin_expect(o & (A - 1), 0)) rt_misaligned(t, o, A, line);
  if (__builtin_expect(o + n > t->totsm || o > t->totsm, 0)) rt_chk(t, o, n, line, kind | 4);
}

template <class X>
I X LD(u64 a) {
  X r;
  memcpy(&r, (void*)a, sizeof r);
  return r;
}

template <class X>
I void ST(u64 a, X v) {
  memcpy((void*)a, &v, sizeof v);
}

template <class X>
I X LDA(u64 a) {
  return __atomic_load_n((X*)a, __ATOMIC_ACQUIRE);
}

template <class X>
I void STA(u64 a, X v) {
  __atomic_store_n((X*)a, v, __ATOMIC_RELEASE);
}

struct V16 {
  u64 x, y;
};

I V16 LDA16(u64 a) {  // 16-byte single-copy atomic (AVX machines: aligned vmovdqa is atomic)
  __m128i v;
  __asm__ volatile("vmovdqa %1,%0" : "=x"(v) : "m"(*(__m128i*)a) : "memory");
  V16 r;
  memcpy(&r, &v, 16);
  return r;
}

I void STA16(u64 a, V16 s) {
  __m128i v;
  memcpy(&v, &s, 16);
  __asm__ volatile("vmovdqa %1,%0" : "=m"(*(__m128i*)a) : "x"(v) : "memory");
}

template <class X, class Fn>
I X RMW(u64 a, Fn f) {
  X* p = (X*)a;
  X o = __atomic_load_n(p, __ATOMIC_RELAXED);
  for (;;) {
    X n = f(o);
    if (__atomic_compare_exchange_n(p, &o, n, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return o;
  }
}

// integer helpers
template <class X>
I X DIV(X a, X b) {
  if (b == 0) return (X) ~(X)0;
  if ((X)-1 < 0 && b == (X)-1) return (X)(0 - (u64)a);
  return a / b;
}

template <class X>
I X REM(X a, X b) {
  if (b == 0) return a;
  if ((X)-1 < 0 && b == (X)-1) return 0;
  return a % b;
}

I u32 POPC(u64 x) { return __builtin_popcountll(x); }
I u32 CLZ32(u32 x) { return x ? __builtin_clz(x) : 32; }
I u32 CLZ64(u64 x) { return x ? __builtin_clzll(x) : 64; }
I u32 BREV32(u32 x) {
  x = __builtin_bswap32(x);
  x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
  x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
  return ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
}

I u64 BREV64(u64 x) { return ((u64)BREV32((u32)x) << 32) | BREV32((u32)(x >> 32)); }
I u32 BFINDU32(u32 x, bool sh) {
  if (!x) return ~0u;
  u32 p = 31 - CLZ32(x);
  return sh ? 31 - p : p;
}

I u32 BFINDU64(u64 x, bool sh) {
  if (!x) return ~0u;
  u32 p = 63 - CLZ64(x);
  return sh ? 63 - p : p;
}

I u64 BFE(u64 a, u32 b, u32 c, int w, bool sg) {
  u32 pos = b & 255, len = c & 255;
  if (len == 0) return 0;
  u64 m = w == 32 ? 0xffffffffull : ~0ull;
  bool sb = sg && ((a >> ((pos + len - 1 > (u32)w - 1) ? w - 1 : pos + len - 1)) & 1);
  u64 r = 0;
  for (u32 i = 0; i < (u32)w; ++i) {
    bool bit = (i < len && pos + i < (u32)w) ? ((a >> (pos + i)) & 1) : sb;
    r |= (u64)bit << i;
  }
  return r & m;
}

I u64 BFI(u64 a, u64 b, u32 c, u32 d, int w) {
  u32 pos = c & 255, len = d & 255;
  u64 f = b;
  for (u32 i = 0; i < len && pos + i < (u32)w; ++i) {
    u64 m = 1ull << (pos + i);
    f = (f & ~m) | (((a >> i) & 1) ? m : 0);
  }
  return f;
}

I u32 PRMT(u32 a, u32 b, u32 s) {
  u64 x = ((u64)b << 32) | a;
  u32 r = 0;
  for (int i = 0; i < 4; ++i) {
    u32 n = (s >> (4 * i)) & 15;
    u32 v = (x >> (8 * (n & 7))) & 255;
    if (n & 8) v = (v & 128) ? 255 : 0;
    r |= v << (8 * i);
  }
  return r;
}

I u32 PRMTM(u32 a, u32 b, u32 c, int mode) {
  u32 s = c & 3;
  static u16 const t[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543}, {0x5670, 0x6701, 0x7012, 0x0123},
                              {0, 0x1111, 0x2222, 0x3333},      {0x3210, 0x3211, 0x3222, 0x3333},
                              {0, 0x1110, 0x2210, 0x3210},      {0x1010, 0x3232, 0x1010, 0x3232}};
  return PRMT(a, b, t[mode][s]);
}

I u32 LOP3(u32 a, u32 b, u32 c, u32 l) {
  u32 r = 0;
  if (l & 1) r |= ~a & ~b & ~c;
  if (l & 2) r |= ~a & ~b & c;
  if (l & 4) r |= ~a & b & ~c;
  if (l & 8) r |= ~a & b & c;
  if (l & 16) r |= a & ~b & ~c;
  if (l & 32) r |= a & ~b & c;
  if (l & 64) r |= a & b & ~c;
  if (l & 128) r |= a & b & c;
  return r;
}

I u32 SHFL_(u32 a, u32 b, u32 c, bool wrap) {
  u32 n = wrap ? c & 31 : (c > 32 ? 32 : c);
  return n == 0 ? b : n == 32 ? a : (b << n) | (a >> (32 - n));
}

I u32 SHFR_(u32 a, u32 b, u32 c, bool wrap) {
  u32 n = wrap ? c & 31 : (c > 32 ? 32 : c);
  return n == 0 ? a : n == 32 ? b : (b << (32 - n)) | (a >> n);
}

I u32 BMSK(u32 a, u32 b, bool wrap) {
  if (wrap) {
    a &= 31;
    b &= 31;
  }
  if (a >= 32 || b == 0) return 0;
  u64 m = (b >= 32 ? 0xffffffffull : ((1ull << b) - 1));
  return (u32)(m << a);
}

I u32 FNS(u32 m, u32 base, s32 off) {
  if (off == 0) return (m >> (base & 31)) & 1 ? base : ~0u;
  int p = base;
  int d = off > 0 ? 1 : -1;
  int c = 0;
  for (; p >= 0 && p < 32; p += d)
    if ((m >> p) & 1 && ++c == off * d) return p;
  return ~0u;
}

I s32 DP4A(s64 c, u32 a, u32 b, bool sa, bool sb) {
  s64 r = c;
  for (int i = 0; i < 4; ++i) {
    s32 x = sa ? (s32)(s8)(a >> (8 * i)) : (s32)(u8)(a >> (8 * i)),
        y = sb ? (s32)(s8)(b >> (8 * i)) : (s32)(u8)(b >> (8 * i));
    r += (s64)x * y;
  }
  return (s32)r;
}

template <class X>
I X ADDSAT(X a, X b) {
  X r;
  if (__builtin_add_overflow(a, b, &r))
    return a < 0 ? (X)((X)1 << (sizeof(X) * 8 - 1)) : (X) ~((X)1 << (sizeof(X) * 8 - 1));
  return r;
}

template <class X>
I X SUBSAT(X a, X b) {
  X r;
  if (__builtin_sub_overflow(a, b, &r))
    return a < 0 ? (X)((X)1 << (sizeof(X) * 8 - 1)) : (X) ~((X)1 << (sizeof(X) * 8 - 1));
  return r;
}

// float helpers
I f32 FMIN(f32 a, f32 b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return B(a) >> 31 ? a : b;
  return a < b ? a : b;
}

I f32 FMAX(f32 a, f32 b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return B(a) >> 31 ? b : a;
  return a > b ? a : b;
}

I f64 FMIN(f64 a, f64 b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return B(a) >> 63 ? a : b;
  return a < b ? a : b;
}

I f64 FMAX(f64 a, f64 b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return B(a) >> 63 ? b : a;
  return a > b ? a : b;
}

template <class X>
I X NANP(X m, X a, X b) {
  return a != a ? a : b != b ? b : m;
}

template <class FI>
I FI RND(FI x, int rm) {
  return rm == 0 ? __builtin_rint(x) : rm == 1 ? __builtin_trunc(x) : rm == 2 ? __builtin_floor(x) : __builtin_ceil(x);
}

template <class IT>
I IT F2I(f64 x, int rm, bool srcd) {
  if (x != x) return (srcd || sizeof(IT) == 8) ? (IT)((u64)1 << (sizeof(IT) * 8 - 1)) : 0;
  x = RND(x, rm);
  constexpr bool sg = (IT)-1 < 0;
  f64 hi = std::ldexp(1.0, sizeof(IT) * 8 - (sg ? 1 : 0));
  f64 lo = sg ? -hi : 0;
  if (x >= hi) return sg ? (IT) ~((u64)1 << (sizeof(IT) * 8 - 1)) : (IT) ~(u64)0;
  if (x < lo) return sg ? (IT)((u64)1 << (sizeof(IT) * 8 - 1)) : 0;
  return (IT)x;
}

template <class IT>
I IT CL(s128 v) {
  constexpr bool sg = (IT)-1 < 0;
  s128 hi = sg ? (((s128)1 << (sizeof(IT) * 8 - 1)) - 1) : (((s128)1 << (sizeof(IT) * 8)) - 1);
  s128 lo = sg ? -((s128)1 << (sizeof(IT) * 8 - 1)) : 0;
  return (IT)(v > hi ? hi : v < lo ? lo : v);
}

// mbarrier: [0,20) pending, [20,40) expected, [40,63) tx (23-bit signed), 63 phase.  One OS thread runs a
// block, so plain accesses do.
I s64 MBGTX(u64 v) { return ((s64)(v << 1)) >> 41; }
I u64 MBPK(u64 p, u64 e, s64 tx, u64 ph) {
  return (p & 0xfffff) | ((e & 0xfffff) << 20) | (((u64)tx & 0x7fffff) << 40) | (ph << 63);
}

I void MBINIT(u64 a, u32 n) { ST<u64>(a, MBPK(n, n, 0, 0)); }
I void MBDONE(u64 a) {
  u64 v = LD<u64>(a);
  if ((v & 0xfffff) == 0 && MBGTX(v) == 0) {
    u64 e = (v >> 20) & 0xfffff;
    ST<u64>(a, MBPK(e, e, 0, (v >> 63) ^ 1));
  }
}

I void MBTXO(u64 a, s64 d) {
  u64 v = LD<u64>(a);
  ST<u64>(a, MBPK(v, v >> 20, MBGTX(v) + d, v >> 63));
}

I void MBTX(u64 a, s64 d) {
  MBTXO(a, d);
  MBDONE(a);
}

I u64 MBARR(u64 a, u32 n, bool drop) {
  u64 v = LD<u64>(a);
  ST<u64>(a, MBPK((v & 0xfffff) - n, ((v >> 20) & 0xfffff) - (drop ? n : 0), MBGTX(v), v >> 63));
  MBDONE(a);
  return v;
}
