// The watch mode (PTXCPU_RACE, PTXCPU_STATS): kernels compiled with -DPTX_WATCH call rt_mem() before each
// access to global or shared memory and rt_fence() at each fence. Included once, by rt.cpp; one OS thread
// runs a launch.
//
// Happens-before by vector clocks (as FastTrack: a shadow cell has the last write and the reads since then).
// A thread's id is block*1024+index. A thread knows
//   base     all threads of its own block up to this clock: a whole block's barrier sets all clocks to base+1
//   wl[32]   the lanes of its warp up to these clocks (bar.warp.sync)
//   v        other blocks up to a clock, and single threads up to a clock (what it acquired)
// F is what it knew at its last fence and what bar.sync told it of others' fences: a relaxed write publishes
// that. Q is what relaxed reads have seen: the next fence acquires it. Both exist twice, for .cta and for
// .gpu and wider.
#pragma once

#include "fibers.h"

enum {
  W_KIND = 3,  // 0 read, 1 write, 2 read-modify-write
  W_STRONG = 4,
  W_GPU = 8,  // scope .gpu or wider
  W_NC = 16,
  W_SIZE = 7 << 5,  // log2 of an element's size
  W_ACQ = 256,
  W_SILENT = 256,  // of a write in a cell: it left the value as it was
  W_REL = 512,
  W_BLIND = 1024  // an atomic whose result nobody uses: it publishes, but sees nothing
};

struct VC {
  u32 rc = 0;
  u32 owner = ~0u,
      oclk = 0;  // all that `owner` knew at clock oclk is in here, and nothing else (~0: of several)
  typedef vector<std::pair<u32, u32>> V;
  V all, one;  // (block, clock) and (thread, clock), sorted
  static bool in(V const& v, u32 k, u32 c) {
    if (k < v.size() && v[k].first == k) return v[k].second >= c;
    auto it = std::lower_bound(v.begin(), v.end(), std::make_pair(k, 0u));
    return it != v.end() && it->first == k && it->second >= c;
  }
  bool has(u32 gid, u32 c) const { return in(all, gid >> 10, c) || in(one, gid, c); }
  static void put(V& v, u32 k, u32 c) {
    auto it = std::lower_bound(v.begin(), v.end(), std::make_pair(k, 0u));
    if (it != v.end() && it->first == k)
      it->second = std::max(it->second, c);
    else
      v.insert(it, {k, c});
  }
  static void merge(V& a, V const& b) {
    if (b.empty()) return;
    if (a.empty()) {
      a = b;
      return;
    }
    if (b.size() == 1) {
      put(a, b[0].first, b[0].second);
      return;
    }
    V o;
    o.reserve(a.size() + b.size());
    auto i = a.begin();
    auto j = b.begin();
    while (i != a.end() && j != b.end())
      if (i->first < j->first)
        o.push_back(*i++);
      else if (j->first < i->first)
        o.push_back(*j++);
      else {
        o.push_back({i->first, std::max(i->second, j->second)});
        ++i, ++j;
      }
    o.insert(o.end(), i, a.end());
    o.insert(o.end(), j, b.end());
    a.swap(o);
  }
  void prune() {
    one.erase(std::remove_if(one.begin(), one.end(), [&](auto& p) { return in(all, p.first >> 10, p.second); }),
              one.end());
  }
};

struct VCp {
  VC* p = nullptr;
  VCp() {}
  VCp(VC* q) : p(q) {
    if (p) ++p->rc;
  }
  VCp(VCp const& o) : VCp(o.p) {}
  VCp(VCp&& o) : p(o.p) { o.p = nullptr; }
  VCp& operator=(VCp o) {
    std::swap(p, o.p);
    return *this;
  }
  ~VCp() {
    if (p && --p->rc == 0) delete p;
  }
  VC* operator->() const { return p; }
  explicit operator bool() const { return p; }
  bool operator==(VCp const& o) const { return p == o.p; }
};

// a = a joined with b
static void vc_join(VCp& a, VCp const& b) {
  if (!b || a == b) return;
  if (!a) {
    a = b;
    return;
  }
  if (b->owner != ~0u && a->has(b->owner, b->oclk)) return;
  if (a->owner != ~0u && b->has(a->owner, a->oclk)) {
    a = b;
    return;
  }
  if (a->rc > 1) {
    VC* n = new VC;
    n->all = a->all;
    n->one = a->one;
    a = VCp(n);
  }
  VC* n = a.p;
  n->owner = ~0u;
  VC::merge(n->all, b->all);
  VC::merge(n->one, b->one);
  n->prune();
}

struct Fenced {
  bool any = false, fresh = false;
  u32 base = 0, own = 0;
  u32 owner = ~0u, oclk = 0;  // as in VC; what a barrier of the block has put together has an id of its own
  u32 wl[32];
  VCp v, m;  // m: as it is published, made when needed
};

struct RThread {
  u32 gid, clk, warp;
  u32 wl[32];
  VCp v;
  Fenced F[2];  // 0 .cta, 1 .gpu
  VCp Q[2];
};

struct RaceBlock {
  u32 g0, base;
  u64 tag;
  vector<RThread> r;
  VCp bar[17];
};

struct Cell {
  u32 wgid, wclk, wsite, rgid, rclk, rsite, ncgid, ncsite;  // ids are 1 + thread, 0: none
};

struct Page {
  u64 tag = 0;
  u32 shift = 2, sets = 0;
  vector<Cell> c;
};

struct Rec {
  u32 gid, clk, site;
};

struct RSet {
  u32 n;
  Rec r[8];
};

struct Msg {
  VCp g, c;
  u32 cblk;
};

static u32 const MANY = ~0u;

struct Stat {
  u64 launches = 0, coop = 0, early = 0, first = 0, threads = 0, grid = 0, ld = 0, st = 0, atom = 0, strong = 0,
      lonce = 0, sonce = 0, bar = 0, most = 0;
};

struct Touched {  // the words of a page that a launch has loaded and stored
  u64 tag = 0, bits[2][16];
};

struct Race {
  std::unordered_map<u64, Page*> pages;
  struct {
    u64 n;
    Page* p;
  } cache[4096] = {};
  vector<RSet> sets;
  vector<u32> freesets;
  std::unordered_map<u64, Msg> msg;
  u64 tags = 0, gtag = 0;
  bool on = true;
  // The last weak write. The next call sees whether it has changed anything; if not, what it overwrote in the
  // cells counts, and where it races that is only a note.
  struct {
    bool on = false, told = false;
    u64 a;
    u32 n, shift;
    Page* p;
    u8 old[16];
    Cell was[16];
    string key, text;
  } last;
  struct Seen {
    u64 n = 0;
    bool note = false;
  };
  std::map<string, Seen> seen;
  u64 found = 0, notes = 0;
  std::unordered_map<u64, Touched> touched;
  struct {
    u64 n;
    Touched* p;
  } tcache[4096] = {};
  std::map<string, Stat> stats;
  Stat cur;
};

static Race& race() {
  static Race* r = new Race;
  return *r;
}

static int RACE() {  // 1 report, 2 also fail
  static int v = [] {
    string s = env("PTXCPU_RACE", "0");
    return s == "0" ? 0 : s == "report" ? 1 : 2;
  }();
  return v;
}

static bool STATS() {
  static bool v = envi("PTXCPU_STATS", 0);
  return v;
}

static bool WATCH() {
  static bool v = RACE() || STATS();
  return v;
}
