// Threads as fibers, their warps and blocks, a launch.
#pragma once

#include "memory.h"

asm(R"(
.text
.globl ptxcpu_switch
.type ptxcpu_switch,@function
ptxcpu_switch:
 push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
 mov %rsp,(%rdi); mov %rsi,%rsp
 pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
 ret
.globl ptxcpu_boot
ptxcpu_boot:
 mov %r12,%rdi; mov %r13,%rsi; call *%r14
 ud2
)");
extern "C" void ptxcpu_switch(void** save, void* load);
extern "C" void ptxcpu_boot();
typedef void (*KFn)(T*, u8*);

struct Launch {
  KFn fn;
  string name;
  dim3 g, b;
  vector<u8> params;
  u32 dyn, stat, dynoff;
  bool coop;
  bool first = false;  // the launch loads the kernel
  bool early = false;  // it may start before the kernel before it has ended
  std::atomic<u64> ticket{0};
  u64 nblk;
  std::atomic<bool> abort{false};
  std::atomic<int> err{0};
  std::atomic<u64> prog{0};
  void* gridws = nullptr;
  string msg;
  std::mutex mm;
  std::atomic<int> active{0};
  u64 serial;
  string const* ptx = nullptr;
  u32 base = 0;  // the kernel's line in it
};

struct Group {
  u32 op, site, mask, arr;
};

struct Slot {
  u64 v;
  u32 b, c;
};

struct Warp {
  u32 base, n, alive, ready, ng;
  Group g[32];
  Slot s[32];
};

struct Bar {
  s32 cnt, need;
  u32 acc, acc2, res, res2, arrived_noblock;
  bool on;
};

struct RaceBlock;

struct Block {
  Launch* L;
  RaceBlock* rb = nullptr;
  vector<u32> stores;  // of each thread, with PTXCPU_STATS
  vector<T> th;
  vector<Warp> w;
  Bar bar[17];
  vector<u8> shbuf;
  u8* sh;
  char* stk;
  size_t nstk;
  u32 live;
  bool aborted;
  void* sched;
  u64 rng;
  bool yielded;
  u32 spins;
  u64 rlo[8], rhi[8];
  u32 nr, rp;
  u64 lastSerial;
};

enum { READY, WWARP, WBAR, DONE };

static inline u32 rnd(Block* b) {
  b->rng ^= b->rng << 13;
  b->rng ^= b->rng >> 7;
  b->rng ^= b->rng << 17;
  return (u32)(b->rng >> 11);
}

static void report(Block* b, int err, char const* fmt, ...) {
  Launch* L = b->L;
  char buf[2000];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(buf, sizeof buf, fmt, ap);
  va_end(ap);
  std::lock_guard l(L->mm);
  if (!L->abort) {
    L->msg = buf;
    L->err = err;
    fprintf(stderr, "[ptxcpu] kernel %s: %s\n", L->name.c_str(), buf);
    if (envi("PTXCPU_ABORT", 0)) abort();
  }
  L->abort = true;
  b->aborted = true;
}
