// What a report of a race says, and where it goes.
#pragma once

#include "race.h"

static string demangled(string const& n) {
  int st = 0;
  char* d = abi::__cxa_demangle(n.c_str(), nullptr, nullptr, &st);
  string s = d && !st ? d : n;
  free(d);
  return s;
}

struct PtxText {
  vector<std::pair<char const*, char const*>> line;
  std::map<int, string> file;
};

static PtxText const& ptx_text(string const* ptx) {
  static std::map<string const*, PtxText> all;
  auto it = all.find(ptx);
  if (it != all.end()) return it->second;
  PtxText& p = all[ptx];
  char const *s = ptx->data(), *e = s + ptx->size();
  while (s < e) {
    char const* n = (char const*)memchr(s, '\n', e - s);
    if (!n) n = e;
    p.line.push_back({s, n});
    int k;
    char f[4096];
    string l(s, std::min<size_t>(n - s, 4200));
    if (sscanf(l.c_str(), " .file %d \"%4095[^\"]\"", &k, f) == 2) p.file[k] = f;
    s = n + 1;
  }
  return p;
}

struct Loc {
  int f = 0, l = 0, c = 0, f2 = 0, l2 = 0, c2 = 0;
};

static bool loc_of(PtxText const& p, size_t i, Loc& o) {
  string s(p.line[i].first, p.line[i].second);
  if (s.find(".loc") == string::npos) return false;
  o = Loc();
  if (sscanf(s.c_str(), " .loc %d %d %d", &o.f, &o.l, &o.c) != 3) return false;
  size_t k = s.find("inlined_at");
  if (k != string::npos) sscanf(s.c_str() + k, "inlined_at %d %d %d", &o.f2, &o.l2, &o.c2);
  return true;
}

// "file:line < file:line it is inlined at < ...", empty without -lineinfo
static string source_of(string const* ptx, u32 line) {
  PtxText const& p = ptx_text(ptx);
  string out;
  Loc o;
  size_t i = std::min<size_t>(line, p.line.size());
  auto isfn = [&](size_t k) {
    string s(p.line[k].first, p.line[k].second);
    return s.compare(0, 1, ".") == 0 && (s.find(".entry") != string::npos || s.find(".func") != string::npos);
  };
  bool got = false;
  while (i-- > 0 && !isfn(i))
    if ((got = loc_of(p, i, o))) break;
  string last;
  for (int depth = 0; got && depth < 40; ++depth) {
    auto f = p.file.find(o.f);
    string n = f == p.file.end() ? "?" : f->second;
    size_t k = n.find_last_of('/');
    string at = n.substr(k == string::npos ? 0 : k + 1) + ":" + std::to_string(o.l);
    if (at != last) out += (out.empty() ? "" : " < ") + at;
    last = at;
    if (!o.f2) break;
    Loc up{o.f2, o.l2, o.c2}, q;
    size_t j = i;
    while (j-- > 0 && !isfn(j))
      if (loc_of(p, j, q) && q.f == up.f && q.l == up.l && q.c == up.c) {
        up = q;
        i = j;
        break;
      }
    o = up;
  }
  return out;
}

static string who(Launch* L, u32 gid) {
  u32 id = gid >> 10, i = gid & 1023;
  char s[200];
  snprintf(s, sizeof s, "block (%u,%u,%u) thread (%u,%u,%u)", id % L->g.x, id / L->g.x % L->g.y,
           (u32)(id / ((u64)L->g.x * L->g.y)), i % L->b.x, i / L->b.x % L->b.y, i / (L->b.x * L->b.y));
  return s;
}

static string site_text(Launch* L, u32 site) {
  PtxText const& p = ptx_text(L->ptx);
  u32 line = L->base + (site >> 10);
  string s, src = source_of(L->ptx, line);
  if (line && line <= p.line.size()) s.assign(p.line[line - 1].first, p.line[line - 1].second);
  for (char& c : s)
    if (c == '\t') c = ' ';
  s.erase(0, s.find_first_not_of(' '));
  if (s.size() > 100) s.resize(100);
  return "PTX line " + std::to_string(line) + ": " + s + (src.empty() ? "" : "\n        at " + src);
}

static string where(Block* b, u64 a) {
  char s[200];
  u64 lo, hi;
  if (a - (u64)b->sh < b->th[0].totsm)
    snprintf(s, sizeof s, "shared memory + %llu", (unsigned long long)(a - (u64)b->sh));
  else if (find_alloc(a, lo, hi))
    snprintf(s, sizeof s, "0x%llx, allocation of %llu bytes + %llu", (unsigned long long)a,
             (unsigned long long)(hi - lo), (unsigned long long)(a - lo));
  else
    snprintf(s, sizeof s, "0x%llx", (unsigned long long)a);
  return s;
}

static void race_tell(string const& key, string const& text, bool note) {
  Race& R = race();
  static vector<string> ignore = [] {
    vector<string> v;
    string s = env("PTXCPU_RACE_IGNORE", ""), w;
    for (char c : s + ";")
      if (c == ';') {
        if (!w.empty()) v.push_back(w);
        w.clear();
      } else
        w += c;
    return v;
  }();
  for (auto& w : ignore)
    if (text.find(w) != string::npos) return;
  auto& s = R.seen[key];
  bool first = s.n++ == 0;
  if (!first && (note || !s.note)) return;
  if (!first) --R.notes;
  s.note = note;
  ++(note ? R.notes : R.found);
  fprintf(stderr, "[ptxcpu] %s%s\n", note ? "note: " : "", text.c_str());
}

static void race_settle() {
  Race& R = race();
  auto& w = R.last;
  if (!w.on) return;
  w.on = false;
  bool same = !memcmp(w.old, (void*)w.a, w.n);
  if (same)
    for (u32 i = 0, k = w.n >> w.shift; i < k; ++i) {
      Cell &c = w.p->c[((w.a & 4095) >> w.shift) + i], &o = w.was[i];
      if (o.wgid && !((o.wsite & W_KIND) == 1 && (o.wsite & W_SILENT))) {
        c.wgid = o.wgid;
        c.wclk = o.wclk;
        c.wsite = o.wsite;
      } else
        c.wsite |= W_SILENT;
    }
  if (w.told) race_tell(w.key, w.text + (same ? "    the write leaves the value as it was\n" : ""), same);
}

static void race_report(Block* b, char const* what, u64 a, u32 gid, u32 site, u32 ogid, u32 osite) {
  Race& R = race();
  Launch* L = b->L;
  static std::map<std::tuple<string const*, u32, u64>, string> keys;
  bool const silent = (osite & W_KIND) == 1 && (osite & W_SILENT);
  if (silent) osite &= ~W_SILENT;
  auto& key = keys[{L->ptx, L->base, (u64)site << 32 | osite}];
  if (key.empty()) {
    string x = source_of(L->ptx, L->base + (site >> 10)), y = source_of(L->ptx, L->base + (osite >> 10));
    if (x.empty() || y.empty()) {
      x = L->name + std::to_string(site >> 10);
      y = std::to_string(osite >> 10);
    }
    key = string(what) + "|" + std::to_string(site & 1023) + x + "|" + std::to_string(osite & 1023) + y;
  }
  auto s = R.seen.find(key);
  if (s != R.seen.end() && (!s->second.note || s->second.n > 200)) {
    ++s->second.n;
    return;
  }
  static char const* kn[] = {"read", "write", "atomic"};
  string t = string(what) + " in kernel " + demangled(L->name).substr(0, 300) + "\n    " + kn[site & W_KIND] + " by " +
             who(L, gid) + ", " + site_text(L, site) + "\n    " + kn[osite & W_KIND] + " before it by " + who(L, ogid) +
             ", " + site_text(L, osite) + "\n    of " + where(b, a) + "\n";
  if (site & osite & W_STRONG) {
    if ((site ^ osite) & W_SIZE)
      t += "    both are strong, but of different size\n";
    else
      t += "    both are strong, but one's scope is its own block\n";
  }
  if (R.last.on) {
    R.last.told = true;
    R.last.key = key;
    R.last.text = t;
  } else {
    race_tell(key, t + (silent ? "    the write left the value as it was\n" : ""), silent);
  }
}
