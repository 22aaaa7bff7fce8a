// Runs the blocks of a launch on OS threads, finds deadlocks and hangs.
#pragma once

#include "warps.h"

struct StackPool {
  std::mutex m;
  std::multimap<size_t, char*> fr;
  char* get(size_t n) {
    std::lock_guard l(m);
    auto it = fr.find(n);
    if (it != fr.end()) {
      char* p = it->second;
      fr.erase(it);
      return p;
    }
    char* p = (char*)mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      perror("ptxcpu mmap");
      abort();
    }
    madvise(p, n, MADV_NOHUGEPAGE);
    return p;
  }
  void put(char* p, size_t n) {
    std::lock_guard l(m);
    fr.emplace(n, p);
  }
};

static size_t const SPAD = 1 << 20;
static StackPool SP;

static void init_block(Block* b, Launch* L, u64 id) {
  u32 nt = L->b.x * L->b.y * L->b.z, nw = (nt + 31) / 32;
  u32 tot = L->dynoff + L->dyn;
  if (tot < L->stat) tot = L->stat;
  b->L = L;
  b->th.resize(nt);
  b->w.resize(nw);
  u32 const align = WATCH() ? 4096 : 512;  // its shadow pages are its own
  if (b->shbuf.size() < tot + 2 * align) {
    b->shbuf.resize(tot + 2 * align);
    b->lastSerial = 0;
  }
  b->sh = (u8*)(((u64)b->shbuf.data() + align - 1) & ~(u64)(align - 1));
  memset(b->sh, 0xCB, tot);
  size_t need = (size_t)nt * STK();
  if (b->nstk != need) {
    if (b->stk) SP.put(b->stk - SPAD, b->nstk + SPAD);
    b->stk = SP.get(need + SPAD) + SPAD;
    b->nstk = need;
    for (u32 i = 0; i < nt; ++i) *(u64*)(b->stk + (size_t)i * STK()) = 0x57AC4CA4A4511234ull;
  }
  b->live = nt;
  b->aborted = false;
  b->spins = 0;
  memset(b->bar, 0, sizeof b->bar);
  b->rng = (SEED() + 1) * 0x9E3779B97F4A7C15ull ^ (id * 0xD1B54A32D192ED03ull);
  if (!b->rng) b->rng = 1;
  bool same = b->lastSerial == L->serial;
  if (!same) {
    b->nr = 0;
    b->rp = 0;
    b->lastSerial = L->serial;
  }
  u32 bx = id % L->g.x, by = (id / L->g.x) % L->g.y, bz = id / ((u64)L->g.x * L->g.y);
  for (u32 i = 0; i < nw; ++i) {
    Warp& w = b->w[i];
    w.base = i * 32;
    w.n = std::min(32u, nt - i * 32);
    w.alive = w.ready = w.n == 32 ? ~0u : ((1u << w.n) - 1);
    w.ng = 0;
  }
  for (u32 i = 0; i < nt; ++i) {
    T& t = b->th[i];
    t.budget = 400;
    t.pre = PREEMPT() ? rnd(b) % PREEMPT() : 0;
    t.state = READY;
    t.waited = 0;
    t.ctaid[0] = bx;
    t.ctaid[1] = by;
    t.ctaid[2] = bz;
    if (!same) {
      t.lin = i;
      t.tid[0] = i % L->b.x;
      t.tid[1] = (i / L->b.x) % L->b.y;
      t.tid[2] = i / (L->b.x * L->b.y);
      t.ntid[0] = L->b.x;
      t.ntid[1] = L->b.y;
      t.ntid[2] = L->b.z;
      t.ctaid[0] = bx;
      t.ctaid[1] = by;
      t.ctaid[2] = bz;
      t.nctaid[0] = L->g.x;
      t.nctaid[1] = L->g.y;
      t.nctaid[2] = L->g.z;
      t.lane = i & 31;
      t.warp = i >> 5;
      t.dynsm = L->dyn;
      t.totsm = tot;
      t.sh = b->sh;
      t.lo = t.hi = t.lo2 = t.hi2 = 0;
      t.blk = b;
      t.wp = &b->w[i >> 5];
      t.kname = L->name.c_str();
      t.gridid = 1;
      t.stk0 = (u64)(b->stk + (size_t)i * STK());
      t.envreg1 = (u32)((u64)L->gridws >> 32);
      t.envreg2 = (u32)(u64)L->gridws;
    }
    u64* s = (u64*)(b->stk + (size_t)(i + 1) * STK()) - 4 - (i % 8) * 16;  // stagger to avoid cache aliasing
    s = (u64*)((u64)s & ~15ull);
    s -= 7;
    s[0] = 0;
    s[1] = 0;
    s[2] = (u64)L->fn;
    s[3] = (u64)L->params.data();
    s[4] = (u64)&t;
    s[5] = 0;
    s[5] = 0;  // r15 r14 r13 r12 rbx rbp ret
    s[0] = 0;
    s[1] = (u64)L->fn;
    s[2] = (u64)L->params.data();
    s[3] = (u64)&t;
    s[4] = 0;
    s[5] = 0;
    s[6] = (u64)&ptxcpu_boot;
    t.sp = s;
  }
  race_block(b, id);
}

// 0 finished 1 progress 2 spinning 3 deadlock
static int pass(Block* b) {
  bool prog = false, ranany = false;
  u32 nw = b->w.size();
  u32 st = 0;
  bool rev = false;
  if (SEED()) {
    st = rnd(b) % nw;
    rev = rnd(b) & 1;
  }
  for (u32 k = 0; k < nw; ++k) {
    u32 wi = (rev ? nw - 1 - k : k);
    wi = (wi + st) % nw;
    Warp& w = b->w[wi];
    for (;;) {
      u32 m = w.ready;
      bool p = false, r = false;
      u32 ro = 0;
      bool rv = false;
      if (SEED() && m) {
        ro = rnd(b) & 31;
        rv = rnd(b) & 1;
      }
      while (m) {
        u32 l;
        if (SEED()) {
          u32 x = (m >> ro) | (ro ? m << (32 - ro) : 0);
          l = rv ? 31 - __builtin_clz(x) : __builtin_ctz(x);
          l = (l + ro) & 31;
        } else
          l = __builtin_ctz(m);
        m &= ~(1u << l);
        w.ready &= ~(1u << l);
        T* t = &b->th[w.base + l];
        b->yielded = false;
        ptxcpu_switch(&b->sched, t->sp);
        r = true;
        if (!b->yielded) p = true;
        if (b->aborted || b->L->abort) return 0;
      }
      ranany |= r;
      prog |= p;
      if (p) continue;
      bool act = false;
      for (u32 i = 0; i < w.ng; ++i)
        if (w.g[i].op == OP_ACTIVE) {
          complete(b, &w, i);
          act = true;
          prog = true;
          break;
        }
      if (act) continue;
      break;
    }
    if (!b->live) return 0;
  }
  return prog ? 1 : ranany ? 2 : 3;
}

static void deadlock(Block* b) {
  string s;
  std::map<string, int> c;
  for (auto& t : b->th) {
    char buf[200];
    if (t.state == WBAR)
      snprintf(buf, 200, "bar.sync %u (PTX line %u)", t.resv, t.site + b->L->base);
    else if (t.state == WWARP) {
      u32 mk = 0, ar = 0;
      char const* o = "";
      for (u32 i = 0; i < t.wp->ng; ++i)
        if (t.wp->g[i].arr >> t.lane & 1) {
          mk = t.wp->g[i].mask;
          ar = t.wp->g[i].arr;
          o = opn[t.wp->g[i].op];
        }
      snprintf(buf, 200, "warp %u %s line %u mask %08x arrived %08x alive %08x", t.warp, o, t.site + b->L->base, mk, ar,
               t.wp->alive);
    } else if (t.state == DONE)
      snprintf(buf, 200, "exited");
    else
      snprintf(buf, 200, "ready?");
    c[buf]++;
  }
  int k = 0;
  for (auto& p : c) {
    if (++k > 8) {
      s += " ...";
      break;
    }
    s += "\n    " + std::to_string(p.second) + " threads: " + p.first;
  }
  T& t = b->th[0];
  report(b, cudaErrorLaunchTimeout, "DEADLOCK in block (%u,%u,%u):%s", t.ctaid[0], t.ctaid[1], t.ctaid[2], s.c_str());
}

struct Worker {
  vector<std::unique_ptr<Block>> freeb;
};

static void work(Launch* L, Worker* W) {
  std::deque<std::unique_ptr<Block>> res;
  u32 nt = L->b.x * L->b.y * L->b.z;
  size_t maxres = std::max<size_t>(1, 131072 / nt / NW());
  if (L->coop) maxres = ~0ull;
  u64 idle = 0;
  auto t0 = std::chrono::steady_clock::now();
  u64 seen = 0;
  bool armed = false;
  auto fetch = [&]() -> bool {
    if (L->abort) return false;
    u64 id = L->ticket.fetch_add(1);
    if (id >= L->nblk) return false;
    std::unique_ptr<Block> b;
    if (!W->freeb.empty()) {
      b = std::move(W->freeb.back());
      W->freeb.pop_back();
    } else {
      b.reset(new Block());
      b->stk = nullptr;
      b->nstk = 0;
      b->lastSerial = 0;
    }
    init_block(b.get(), L, id);
    res.push_front(std::move(b));
    return true;
  };
  while (!L->abort) {
    if (res.empty()) {
      if (!fetch()) break;
    }
    Block* b = res.front().get();
    int r = pass(b);
    if (r == 0) {
      L->prog++;
      W->freeb.push_back(std::move(res.front()));
      res.pop_front();
      idle = 0;
      armed = false;
      continue;
    }
    if (r == 1) {
      idle = 0;
      armed = false;
      continue;
    }
    if (r == 3) {
      deadlock(b);
      break;
    }
    // spinning: rotate; after a full rotation without progress, give the other workers a chance, then bring
    // in another block
    ++idle;
    auto f = std::move(res.front());
    res.pop_front();
    res.push_back(std::move(f));
    if (idle % res.size() == 0) {
      sched_yield();
      if (idle / res.size() >= 4 && res.size() < maxres) {
        if (fetch()) idle = 0;
      }
      if (!armed || seen != L->prog) {
        armed = true;
        seen = L->prog;
        t0 = std::chrono::steady_clock::now();
      } else if (std::chrono::steady_clock::now() - t0 > std::chrono::seconds(envi("PTXCPU_HANG", 60))) {
        report(b, cudaErrorLaunchTimeout, "HANG: every resident block only spins (block (%u,0,0) among them)",
               b->th[0].ctaid[0]);
        break;
      }
    }
  }
  for (auto& b : res) W->freeb.push_back(std::move(b));
}

struct Pool {
  vector<std::thread> th;
  vector<Worker> w;
  std::mutex m;
  std::condition_variable cv, cd;
  Launch* cur = nullptr;
  u64 gen = 0;
  int busy = 0;
  pid_t pid = 0;
  void start() {
    if (pid == getpid()) return;
    pid = getpid();
    new (&th) vector<std::thread>();
    w.resize(NW());
    for (int i = 1; i < NW(); ++i) {
      th.emplace_back([this, i] {
        u64 my = 0;
        for (;;) {
          Launch* L;
          {
            std::unique_lock l(m);
            cv.wait(l, [&] { return gen != my; });
            my = gen;
            L = cur;
          }
          if (L) work(L, &w[i]);
          {
            std::lock_guard l(m);
            if (--busy == 0) cd.notify_all();
          }
        }
      });
      th.back().detach();
    }
  }
  void run(Launch* L) {
    start();
    if (NW() == 1 || L->nblk == 1) {
      work(L, &w[0]);
      return;
    }
    {
      std::lock_guard l(m);
      cur = L;
      ++gen;
      busy = NW() - 1;
    }
    cv.notify_all();
    work(L, &w[0]);
    std::unique_lock l(m);
    cd.wait(l, [&] { return busy == 0; });
    cur = nullptr;
  }
};

static Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}
