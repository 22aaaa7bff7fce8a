// Selection alone, from an accumulator in memory.
#include "select_rows.hpp"

namespace bench {
namespace {

void add_selects_with(setting const& at) {
  for_each_selector([&](std::string const& name, auto selector) { add_select(name, selector, at, false); });
}

}  // namespace

void add_selects(options const& chosen) {
  for (double const density : {0.001, 0.01}) {
    auto at = usual(chosen, density);
    add_selects_with(at);
    add_select("radix", gs::radix{}, at, true);
    add_select("laplacian", gs::laplacian{}, at, true);
    at.law = "ef";
    add_select("radix", gs::radix{}, at, false);
    add_select("laplacian", gs::laplacian{}, at, false);
  }
  if (!chosen.full) return;
  for (double const density : {0.0001, 0.001, 0.01, 0.1})
    for (auto const* law : {"laplace", "gauss", "student3", "ef", "equal", "two_values", "alternating"})
      for (int const threads : {1, chosen.threads}) {
        auto at = usual(chosen, density);
        at.n = std::min(at.n, std::uint64_t{1} << 22);
        at.law = law;
        at.threads = threads;
        add_selects_with(at);
      }
}

}  // namespace bench
