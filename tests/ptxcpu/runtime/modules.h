// PTX out of the binary, kernels translated and compiled into the cache, their registration.
#pragma once

#include "fibers.h"
#include "race.h"
#include "warps.h"

struct Module;

struct Func {
  Module* m;
  string name;
  void const* host;
  bool loaded = false;
  bool known = false;  // a GPU with lazy loading has it by now
  KFn fn = nullptr;
  u32 stat = 0, dynoff = 0, psize = 0, maxnt = 1024, base = 0;  // base: its line in the module's PTX
  vector<std::pair<u32, u32>> lay;
  bool meta = false;
  int maxdyn = 49152;
};

struct Module {
  string ptx, tag, dir;
  void* gso = nullptr;
  bool loaded = false;
  int target = 0;
  std::map<string, std::pair<size_t, string>> globals;
  std::map<string, u8*> gaddr;
  void* fatdata;
  void** list = nullptr;
};

struct Var {
  Module* m;
  string name;
  size_t size;
};

static std::map<void const*, Func*> funcs;
static std::map<void const*, Var> vars;
static vector<Module*> modules;
static std::map<void*, bool> isfunc;

struct MVar {
  Module* m;
  void** host;
  string name;
  size_t size;
};

static vector<MVar> mvars;

// The library lives in a directory of its own, with ptxrt.h, the translator and "version" beside it.
static string root() {
  static string r = [] {
    char const* e = getenv("PTXCPU_HOME");
    if (e && *e) return string(e);
    Dl_info i;
    if (!dladdr((void*)&ptxcpu_boot, &i) || !i.dli_fname) return string(".");
    string f = i.dli_fname;
    char b[4096];
    if (realpath(f.c_str(), b)) f = b;
    return f.substr(0, f.find_last_of('/'));
  }();
  return r;
}

// Compiled kernels; run.sh sets PTXCPU_CACHE.
static string cache() {
  static string r = [] {
    string c = env("PTXCPU_CACHE", "");
    if (c.empty()) c = string(env("XDG_CACHE_HOME", (string(env("HOME", "/tmp")) + "/.cache").c_str())) + "/ptxcpu";
    c += "/kernels";
    for (size_t i = 1; i <= c.size(); ++i)
      if (i == c.size() || c[i] == '/') mkdir(c.substr(0, i).c_str(), 0755);
    return c;
  }();
  return r;
}

static string quote(string const& s) {
  string o = "'";
  for (char c : s) o += c == '\'' ? string("'\\''") : string(1, c);
  return o + "'";
}

static u64 fnv(string const& s, u64 h = 1469598103934665603ull) {
  for (unsigned char c : s) {
    h ^= c;
    h *= 1099511628211ull;
  }
  return h;
}

static bool sh(string const& c) {
  if (VERB()) fprintf(stderr, "[ptxcpu] %s\n", c.c_str());
  string ld = env("LD_PRELOAD", "");
  int r = system(("env -u LD_PRELOAD -u LD_LIBRARY_PATH " + c).c_str());
  return r == 0;
}

static string slurp(string const& p) {
  string s;
  FILE* f = fopen(p.c_str(), "rb");
  if (!f) return s;
  char b[65536];
  size_t n;
  while ((n = fread(b, 1, sizeof b, f)) > 0) s.append(b, n);
  fclose(f);
  return s;
}

static bool extract1(Module* M) {  // pick the PTX entry with the highest arch (or PTXCPU_ARCH)
  u8 const* d = (u8 const*)M->fatdata;
  if (*(u32*)d != 0xBA55ED50u) {
    fprintf(stderr, "[ptxcpu] bad fatbin magic\n");
    return false;
  }
  u16 hs = *(u16*)(d + 6);
  u64 sz = *(u64*)(d + 8);
  u8 const *p = d + hs, *e = p + sz;
  int best = -1;
  long want = envi("PTXCPU_ARCH", 0);
  while (p < e) {
    u16 kind = *(u16*)p;
    u32 h = *(u32*)(p + 4);
    u64 n = *(u64*)(p + 8);
    u32 cs = *(u32*)(p + 16);
    u32 arch = *(u32*)(p + 28);
    u64 fl = *(u64*)(p + 40);
    u64 un = *(u64*)(p + 56);
    if (kind == 1 && ((want == 0 && (int)arch > best) || want == (long)arch)) {
      best = arch;
      u8 const* b = p + h;
      string s;
      if (cs && *(u32*)b == 0xFD2FB528u) {
        s.resize(un);
        size_t r = ZSTD_decompress(&s[0], un, b, cs);
        if (ZSTD_isError(r)) {
          fprintf(stderr, "[ptxcpu] zstd error\n");
          return false;
        }
        s.resize(r);
      } else if (fl & 0x2000) {  // lz4 block
        s.reserve(un);
        u8 const *q = b, *qe = b + cs;
        while (q < qe) {
          u8 tk = *q++;
          size_t l = tk >> 4;
          if (l == 15) {
            u8 c;
            do {
              c = *q++;
              l += c;
            } while (c == 255);
          }
          s.append((char const*)q, l);
          q += l;
          if (q >= qe) break;
          size_t o = q[0] | (q[1] << 8);
          q += 2;
          size_t ml = (tk & 15);
          if (ml == 15) {
            u8 c;
            do {
              c = *q++;
              ml += c;
            } while (c == 255);
          }
          ml += 4;
          size_t from = s.size() - o;
          for (size_t i = 0; i < ml; ++i) s.push_back(s[from + i]);
        }
      } else
        s.assign((char const*)b, n);
      s.resize(strnlen(s.c_str(), s.size()));
      M->ptx = s;
    }
    p += h + n;
  }
  if (best < 0) {
    fprintf(stderr, "[ptxcpu] no PTX in fatbin: build with -gencode arch=compute_XX,code=compute_XX\n");
    return false;
  }
  return true;
}

static bool extract(Module* M) {
  if (!M->list) return extract1(M);
  // -rdc: merge the PTX of every pre-linked object (libcudadevrt's own image is left out)
  string all;
  void* keep = M->fatdata;
  for (void** p = M->list; *p; ++p) {
    void* d = *p;
    if (*(u32*)d == 0x466243B1u) d = *(void**)((char*)d + 8);
    if (*(u32*)d != 0xBA55ED50u) continue;
    u8 const* h = (u8 const*)d;
    u8 const *q = h + *(u16*)(h + 6), *e = q + *(u64*)(h + 8);
    int elf = 0;
    while (q < e) {
      elf += *(u16*)q == 2;
      q += *(u32*)(q + 4) + *(u64*)(q + 8);
    }
    M->ptx.clear();
    M->fatdata = d;
    if (elf >= 6) continue;
    if (extract1(M)) all += M->ptx + "\n";
  }
  M->fatdata = keep;
  M->ptx = all;
  return !all.empty();
}

static bool load_module(Module* M) {
  if (M->loaded) return true;
  if (M->ptx.empty() && !extract(M)) return false;
  char tag[40];
  string version = slurp(root() + "/version") + env("PTXCPU_OPT", "");
  snprintf(tag, 40, "%016llx", (unsigned long long)fnv(M->ptx, fnv(version)));
  M->tag = tag;
  M->dir = cache() + "/" + tag;
  mkdir(M->dir.c_str(), 0755);
  string px = M->dir + "/module.ptx";
  struct stat st;
  if (stat(px.c_str(), &st)) {
    string tmp = px + "." + std::to_string(getpid());
    FILE* f = fopen(tmp.c_str(), "wb");
    if (!f) {
      fprintf(stderr, "[ptxcpu] cannot write %s (set PTXCPU_CACHE)\n", tmp.c_str());
      return false;
    }
    fwrite(M->ptx.data(), 1, M->ptx.size(), f);
    fclose(f);
    rename(tmp.c_str(), px.c_str());
  }
  string gs = M->dir + "/globals.so";
  if (stat(gs.c_str(), &st)) {
    if (!sh("python3 " + quote(root() + "/ptx2cpp.py") + " " + quote(px) + " " + quote(M->dir) + " " + tag))
      return false;
    string tmp = gs + "." + std::to_string(getpid());
    if (!sh("g++ -std=c++17 -O0 -w -mf16c -march=native -fPIC -shared -I" + quote(root()) + " " +
            quote(M->dir + "/globals.cpp") + " -o " + quote(tmp)))
      return false;
    rename(tmp.c_str(), gs.c_str());
  }
  M->gso = dlopen(gs.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!M->gso) {
    fprintf(stderr, "[ptxcpu] %s\n", dlerror());
    return false;
  }
  FILE* f = fopen((M->dir + "/manifest.txt").c_str(), "r");
  char k[64], a[8192], c[8192];
  while (fscanf(f, "%63s", k) == 1) {
    if (!strcmp(k, "target"))
      fscanf(f, "%d", &M->target);
    else if (!strcmp(k, "global")) {
      size_t n;
      fscanf(f, "%8191s %zu %8191s", a, &n, c);
      u8* p = (u8*)dlsym(M->gso, c);
      if (p) {
        M->gaddr[a] = p;
        std::unique_lock l(am);
        allocs[(u64)p] = {n, KGLOB, 0, nullptr};
      }
    } else {
      int x;
      fscanf(f, "%8191s %d", a, &x);
    }
  }
  fclose(f);
  ((void (*)())dlsym(M->gso, ("ptxg_" + M->tag + "_init").c_str()))();
  M->loaded = true;
  for (auto& v : mvars)
    if (v.m == M && M->gaddr.count(v.name)) *v.host = M->gaddr[v.name];
  return true;
}

static bool meta(Func* F) {
  if (F->meta) return true;
  if (!load_module(F->m)) return false;
  char h[40];
  snprintf(h, 40, "/k%016llx", (unsigned long long)fnv(F->name));
  string stem = F->m->dir + h;
  struct stat st;
  if (stat((stem + ".meta").c_str(), &st)) {
    if (!sh("python3 " + quote(root() + "/ptx2cpp.py") + " " + quote(F->m->dir + "/module.ptx") + " " +
            quote(F->m->dir) + " " + F->m->tag + " '" + F->name + "'")) {
      fprintf(stderr, "[ptxcpu] translation failed for %s\n", F->name.c_str());
      return false;
    }
  }
  FILE* f = fopen((stem + ".meta").c_str(), "r");
  u32 n;
  fscanf(f, "%u %u %u %u %u %u", &F->stat, &F->dynoff, &F->psize, &n, &F->maxnt, &F->base);
  F->lay.resize(n);
  for (auto& p : F->lay) fscanf(f, "%u %u", &p.first, &p.second);
  fclose(f);
  F->meta = true;
  return true;
}

static bool load(Func* F) {
  if (F->loaded) return true;
  if (!meta(F)) return false;
  char h[40];
  snprintf(h, 40, "/k%016llx", (unsigned long long)fnv(F->name));
  string stem = F->m->dir + h;
  struct stat st;
  // Programs have many kernels in common: one is kept by its text, for all modules that have it.
  string text = slurp(stem + ".cpp"), version = slurp(root() + "/version") + env("PTXCPU_OPT", "");
  u64 const a = fnv(text, fnv(version)), b = fnv(version, fnv(text));
  snprintf(h, 40, "/t%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
  string so = cache() + h + (PREEMPT() ? "_pre" : "") + (WATCH() ? "_watch.so" : ".so");
  if (stat(so.c_str(), &st)) {
    string tmp = so + "." + std::to_string(getpid());
    if (!sh(string("g++ -std=c++17 ") + env("PTXCPU_OPT", "-Og") + (PREEMPT() ? " -DPTX_PREEMPT" : "") +
            (WATCH() ? " -DPTX_WATCH" : "") +
            " -w -march=native -fPIC -shared -fno-strict-aliasing -ffp-contract=off -fwrapv "
            "-fno-stack-protector -I" +
            quote(root()) + " " + quote(stem + ".cpp") + " -o " + quote(tmp))) {
      fprintf(stderr, "[ptxcpu] compile failed for %s\n", F->name.c_str());
      return false;
    }
    rename(tmp.c_str(), so.c_str());
  }
  void* d = dlopen(so.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!d) {
    fprintf(stderr, "[ptxcpu] %s\n", dlerror());
    return false;
  }
  F->fn = (KFn)dlsym(d, "KERNEL");
  F->loaded = F->fn;
  return F->loaded;
}

static Func* getf(void const* p) {
  auto it = funcs.find(p);
  if (it != funcs.end()) return it->second;
  if (isfunc.count((void*)p)) return (Func*)p;
  return nullptr;
}

API void** __cudaRegisterFatBinary(void* w) {
  std::lock_guard l(G);
  Module* M = new Module;
  M->fatdata = *(void**)((char*)w + 8);
  if (((int*)w)[1] == 2) M->list = *(void***)((char*)w + 16);
  modules.push_back(M);
  return (void**)M;
}

API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) { return 1; }
API void __cudaRegisterFunction(void** h, char const* hf, char*, char const* dn, int, uint3*, uint3*, dim3*, dim3*,
                                int*) {
  std::lock_guard l(G);
  Func* F = new Func;
  F->m = (Module*)h;
  F->name = dn;
  F->host = hf;
  funcs[hf] = F;
  isfunc[F] = true;
}

API void __cudaRegisterVar(void** h, char* hv, char*, char const* dn, int, size_t sz, int, int) {
  std::lock_guard l(G);
  vars[hv] = {(Module*)h, dn, sz};
}

API void __cudaRegisterManagedVar(void** h, void** hv, char*, char const* dn, int, size_t sz, int, int) {
  std::lock_guard l(G);
  mvars.push_back({(Module*)h, hv, dn, sz});
  load_module((Module*)h);
}

API void __cudaRegisterHostVar(void**, char const*, char*, size_t) {}
struct Cfg {
  dim3 g, b;
  size_t s;
  cudaStream_t st;
};

static thread_local vector<Cfg> cfgs;

API unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t s, cudaStream_t st) {
  cfgs.push_back({g, b, s, st});
  return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* s, void* st) {
  if (cfgs.empty()) return ret(cudaErrorMissingConfiguration);
  Cfg c = cfgs.back();
  cfgs.pop_back();
  *g = c.g;
  *b = c.b;
  *s = c.s;
  *(cudaStream_t*)st = c.st;
  return cudaSuccess;
}

API cudaError_t __cudaGetKernel(cudaKernel_t* k, void const* f) {
  std::lock_guard l(G);
  Func* F = getf(f);
  if (!F) return ret(cudaErrorInvalidDeviceFunction);
  *k = (cudaKernel_t)F;
  return cudaSuccess;
}
