// The last accesses to every word, races among them, and the statistics of a launch.
#pragma once

#include "race_clocks.h"
#include "race_reports.h"

static void page_wipe(Page* p) {
  Race& R = race();
  if (p->sets)
    for (auto& c : p->c)
      if (c.rgid == MANY) R.freesets.push_back(c.rclk);
  p->sets = 0;
  memset(p->c.data(), 0, p->c.size() * sizeof(Cell));
}

static Page* page_of(u64 a, u64 tag) {
  Race& R = race();
  u64 n = a >> 12;
  auto& e = R.cache[n & 4095];
  if (__builtin_expect(e.n != n, 0)) {
    Page*& p = R.pages[n];
    if (!p) {
      p = new Page;
      p->c.resize(1024);
    }
    e.n = n;
    e.p = p;
  }
  Page* p = e.p;
  if (__builtin_expect(p->tag != tag, 0)) {
    if (p->tag < R.gtag) p->sets = 0;  // sets of earlier launches are gone
    page_wipe(p);
    p->tag = tag;
  }
  return p;
}

static u32 new_set() {
  Race& R = race();
  if (!R.freesets.empty()) {
    u32 i = R.freesets.back();
    R.freesets.pop_back();
    return i;
  }
  R.sets.emplace_back();
  return R.sets.size() - 1;
}

static void page_refine(Page* p, u32 shift) {
  Race& R = race();
  u32 d = p->shift - shift;
  vector<Cell> c((size_t)4096 >> shift);
  for (size_t i = 0; i < c.size(); ++i) {
    c[i] = p->c[i >> d];
    if (c[i].rgid == MANY && i & ((1u << d) - 1)) {
      u32 s = new_set();
      R.sets[s] = R.sets[c[i].rclk];
      c[i].rclk = s;
      ++p->sets;
    }
  }
  p->c.swap(c);
  p->shift = shift;
}

// two strong accesses that reach each other
static inline bool strong_pair(u32 a, u32 b, bool same_block) {
  return (a & b & W_STRONG) && (same_block || (a & b & W_GPU)) && !((a ^ b) & W_SIZE);
}

static void add_read(Page* p, Cell& c, RaceBlock const& B, RThread const& r, u32 site) {
  Race& R = race();
  u32 me = r.gid + 1;
  auto over = [&](u32 gid, u32 clk, u32 s) {  // this read says all that the other did
    return (gid == me || known(B, r, gid - 1, clk)) && !((site & W_STRONG) && !(s & W_STRONG));
  };
  if (c.rgid != MANY) {
    if (c.rgid == 0 || over(c.rgid, c.rclk, c.rsite)) {
      c.rgid = me;
      c.rclk = r.clk;
      c.rsite = site;
      return;
    }
    if (c.rgid == me && c.rclk == r.clk) return;
    u32 s = new_set();
    R.sets[s] = {2, {{c.rgid, c.rclk, c.rsite}, {me, r.clk, site}}};
    c.rgid = MANY;
    c.rclk = s;
    ++p->sets;
    return;
  }
  RSet& s = R.sets[c.rclk];
  u32 k = 0, warp = ~0u, nwarp = 0, blk = ~0u, nblk = 0;
  for (u32 i = 0; i < s.n; ++i) {
    Rec x = s.r[i];
    if (x.gid == me && x.clk == r.clk && (!(x.site & W_STRONG) || (site & W_STRONG))) return;
    if (over(x.gid, x.clk, x.site)) continue;
    s.r[k] = x;
    if ((x.gid - 1) >> 5 == r.gid >> 5) {
      warp = k;
      ++nwarp;
    } else if ((x.gid - 1) >> 10 == r.gid >> 10) {
      blk = k;
      ++nblk;
    }
    ++k;
  }
  s.n = k;
  // keep readers of different blocks, warps and lanes
  if (nwarp >= 2)
    k = warp;
  else if (nblk >= 3)
    k = blk;
  else if (k == 8)
    k = (r.gid >> 10) & 7;
  else
    ++s.n;
  s.r[k] = {me, r.clk, site};
}

static void race_access(T* t, u64 a, u32 n, u32 line, u32 fl, bool shared) {
  Race& R = race();
  Block* b = t->blk;
  RaceBlock& B = *b->rb;
  RThread& r = B.r[t->lin];
  race_settle();
  u32 site = std::min(line, (1u << 22) - 1) << 10 | (fl & 1023), me = r.gid + 1, kind = fl & W_KIND;
  u64 tag = shared ? B.tag : R.gtag;
  bool told = false, sync = false;
  auto conflict = [&](u64 at, u32 gid, u32 clk, u32 s) {
    if (gid == me) return;
    if ((s & W_STRONG) && (fl & W_STRONG) && strong_pair(s, fl, (gid - 1) >> 10 == r.gid >> 10)) return;
    if (known(B, r, gid - 1, clk)) return;
    if (told) return;
    told = true;
    race_report(b, "RACE", at, r.gid, site, gid - 1, s);
  };
  u64 e = a + n;
  for (u64 x = a; x < e;) {
    Page* p = page_of(x, tag);
    u64 pe = std::min(e, (x | 4095) + 1);
    while (((x | pe) & ((1u << p->shift) - 1)) != 0) page_refine(p, p->shift - 1);
    if (kind == 1 && !(fl & W_STRONG) && n <= 16 && x == a && pe == e) {
      auto& w = R.last;
      w.on = true;
      w.told = false;
      w.a = a;
      w.n = n;
      w.shift = p->shift;
      w.p = p;
      memcpy(w.old, (void*)a, n);
      memcpy(w.was, &p->c[(a & 4095) >> p->shift], (n >> p->shift) * sizeof(Cell));
    }
    for (; x < pe; x += (u64)1 << p->shift) {
      Cell& c = p->c[(x & 4095) >> p->shift];
      if (fl & W_NC) {
        if (c.wgid && !told) {
          told = true;
          race_report(b, "NON-COHERENT LOAD of what this launch writes", x, r.gid, site, c.wgid - 1, c.wsite);
        }
        c.ncgid = me;
        c.ncsite = site;
        continue;
      }
      if (c.wgid) conflict(x, c.wgid, c.wclk, c.wsite);
      if (kind == 0) {
        if (c.rgid == me && c.rclk == r.clk && c.rsite == site) continue;
        add_read(p, c, B, r, site);
        continue;
      }
      if (c.ncgid && !told) {
        told = true;
        race_report(b, "NON-COHERENT LOAD of what this launch writes", x, r.gid, site, c.ncgid - 1, c.ncsite);
      }
      if (c.rgid == MANY) {
        RSet& s = R.sets[c.rclk];
        for (u32 i = 0; i < s.n; ++i) conflict(x, s.r[i].gid, s.r[i].clk, s.r[i].site);
        R.freesets.push_back(c.rclk);
        --p->sets;
      } else if (c.rgid)
        conflict(x, c.rgid, c.rclk, c.rsite);
      sync |= (c.wsite & W_STRONG) != 0;
      c.rgid = 0;
      c.wgid = me;
      c.wclk = r.clk;
      c.wsite = site;
    }
  }
  if (fl & W_STRONG)
    race_sync_op(b, r, a, fl);
  else if (sync && !R.msg.empty())  // a weak write ends what a release had published here
    for (u64 x = a; x < e; ++x) R.msg.erase(x);
}

static void race_count(u64 a, u32 n, bool st) {
  Race& R = race();
  Stat& s = R.cur;
  (st ? s.st : s.ld) += n;
  for (u64 x = a & ~3ull; x < a + n; x += 4) {
    auto& e = R.tcache[(x >> 12) & 4095];
    if (__builtin_expect(e.n != x >> 12, 0)) {
      e.n = x >> 12;
      e.p = &R.touched[x >> 12];
    }
    if (__builtin_expect(e.p->tag != R.gtag, 0)) {
      memset(e.p->bits, 0, sizeof e.p->bits);
      e.p->tag = R.gtag;
    }
    u64 &w = e.p->bits[st][(x >> 8) & 15], m = 1ull << ((x >> 2) & 63);
    if (!(w & m)) {
      w |= m;
      (st ? s.sonce : s.lonce) += 4;
    }
  }
}

void rt_mem(T* t, u64 a, u32 n, u32 line, u32 fl) {
  Race& R = race();
  Block* b = t->blk;
  Launch* L = b->L;
  bool shared = a - (u64)t->sh < t->totsm;
  if (!shared) {
    if (a - (u64)b->stk < b->nstk || a - (u64)L->params.data() < L->params.size()) return;  // its own memory
    Stat& s = R.cur;
    if ((fl & W_KIND) == 2) {
      s.atom++;
      if (L->gridws && a - (u64)L->gridws < 64) s.grid++;
    } else if (fl & W_STRONG)
      s.strong++;
    else if (STATS()) {
      race_count(a, n, fl & W_KIND);
      if ((fl & W_KIND) == 1) s.most = std::max<u64>(s.most, ++b->stores[t - b->th.data()]);
    }
  }
  if (RACE() && !shared && L->early && !t->waited)
    race_tell("early|" + L->name + std::to_string(line),
              "EARLY ACCESS before griddepcontrol.wait in kernel " + demangled(L->name).substr(0, 300) + ", " +
                  site_text(L, line << 10 | (fl & 1023)) + "\n", false);
  if (RACE() && n && R.on) race_access(t, a, n, line, fl, shared);
}

static void race_block(Block* b, u64 id) {  // a block starts
  if (STATS()) b->stores.assign(b->th.size(), 0);
  if (!RACE()) return;
  Race& R = race();
  if (!b->rb) b->rb = new RaceBlock;
  RaceBlock& B = *b->rb;
  B.g0 = (u32)id << 10;
  B.base = 0;
  B.tag = ++R.tags;
  B.r.clear();
  B.r.resize(b->th.size());
  for (auto& v : B.bar) v = VCp();
  for (u32 i = 0; i < B.r.size(); ++i) {
    RThread& r = B.r[i];
    r.gid = B.g0 + i;
    r.clk = 1;
    r.warp = i >> 5;
    memset(r.wl, 0, sizeof r.wl);
    for (auto& F : r.F) memset(F.wl, 0, sizeof F.wl);
  }
}

static void race_begin(Launch* L) {  // a launch starts
  Race& R = race();
  R.on = L->nblk < 1u << 21;
  if (RACE() && !R.on) fprintf(stderr, "[ptxcpu] %s: too many blocks for PTXCPU_RACE\n", L->name.c_str());
  R.msg.clear();
  R.sets.clear();
  R.freesets.clear();
  R.gtag = ++R.tags;
  R.cur = Stat();
}

static void race_end(Launch* L) {
  Race& R = race();
  race_settle();
  if (!STATS()) return;
  Stat& s = R.stats[L->name];
  s.launches++;
  s.coop += L->coop;
  s.first += L->first;
  s.early += L->early;
  s.threads += L->nblk * L->b.x * L->b.y * L->b.z;
  s.grid += R.cur.grid / L->nblk;
  s.ld += R.cur.ld;
  s.st += R.cur.st;
  s.lonce += R.cur.lonce;
  s.sonce += R.cur.sonce;
  s.atom += R.cur.atom - R.cur.grid;
  s.strong += R.cur.strong;
  s.bar += R.cur.bar;
  s.most = std::max(s.most, R.cur.most);
}

static void race_forget(u64 a, u64 n) {  // memory that a kernel allocates
  if (!RACE()) return;
  Race& R = race();
  for (u64 x = a & ~(u64)4095; x < a + n; x += 4096) {
    auto it = R.pages.find(x >> 12);
    if (it != R.pages.end()) it->second->tag = 0;
  }
}

static void race_summary(int status, void*) {
  Race& R = race();
  for (auto& p : R.stats) {
    Stat& s = p.second;
    fprintf(stderr,
            "[ptxcpu] stats %s: launches %llu, cooperative %llu, early %llu, loading %llu, threads %llu, grid barriers "
            "%llu, "
            "global loads %llu B (%llu "
            "distinct), "
            "stores %llu B (%llu distinct), most stores of a thread %llu, atomics %llu, strong accesses %llu, block "
            "barriers %llu\n",
            demangled(p.first).substr(0, 300).c_str(), (unsigned long long)s.launches, (unsigned long long)s.coop,
            (unsigned long long)s.early, (unsigned long long)s.first, (unsigned long long)s.threads,
            (unsigned long long)s.grid, (unsigned long long)s.ld, (unsigned long long)s.lonce, (unsigned long long)s.st,
            (unsigned long long)s.sonce, (unsigned long long)s.most, (unsigned long long)s.atom,
            (unsigned long long)s.strong, (unsigned long long)s.bar);
  }
  if (!RACE()) return;
  if (R.found || R.notes)
    fprintf(stderr, "[ptxcpu] %llu races or non-coherent loads, %llu notes\n", (unsigned long long)R.found,
            (unsigned long long)R.notes);
  if (R.found && RACE() == 2 && status == 0) {
    std::cout.flush();
    fflush(nullptr);
    _exit(66);
  }
}

__attribute__((constructor)) static void race_setup() {
  if (WATCH()) on_exit(race_summary, nullptr);
}
