// What a compressor holds beside its residual, as the system counts it.
#include <cstdio>
#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__unix__)
#include <unistd.h>
#endif

#include "rows.hpp"

namespace bench {
namespace {

/// Bytes of this process that are in memory; 0 where the system does not tell. What was freed before is given back
/// first, so that its use anew counts.
std::int64_t resident_bytes() {
  long pages = 0;
  long page_size = 1;
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
#if defined(__unix__)
  page_size = sysconf(_SC_PAGESIZE);
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
#endif
  return std::int64_t{pages} * page_size;
}

/// extra_bytes: growth over construction and 20 steps, less the residual's 4 n.
template <class Selector>
void add_row(std::string const& selector_name, Selector selector, setting const& at) {
  add("memory/" + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    row<float> row{state, at};
    gs::detail::host_team const team{at.threads};
    accumulate(team, zeros(team, at.n).data(), row.gradients.next());  // the team's own memory is there now
    auto const before = resident_bytes();
    if (before == 0) return state.SkipWithError("/proc/self/statm does not tell");
    gs::recipe const recipe{.density = at.density, .selector = selector};
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
    auto const step = [&](std::span<float const> gradient) {
      return seconds([&] { benchmark::DoNotOptimize(reducer.compress(gradient).indices.data()); });
    };
    for (int i = 0; i < 20; ++i) step(row.gradients.next());
    auto const extra = static_cast<double>(resident_bytes() - before) - 4 * static_cast<double>(at.n);
    row.measure(12 * at.n, step);
    row.count("extra_bytes", extra);
    row.count("extra_bytes_per_k", extra / at.k());
  });
}

}  // namespace

void add_memory(options const& chosen) {
  for (double const density : {0.001, 0.01}) add_row("radix", gs::radix{}, usual(chosen, density));
  if (!chosen.full) return;
  for (double const density : {0.0001, 0.001, 0.01, 0.1})
    for_each_selector([&](std::string const& name, auto selector) { add_row(name, selector, usual(chosen, density)); });
}

}  // namespace bench
