// A grid that the user chose: sizes, densities or entries, selectors, threads.
#include <algorithm>
#include <type_traits>

#include "select_rows.hpp"
#include "step_rows.hpp"

namespace bench {

std::vector<setting> settings_of(options const& chosen, std::initializer_list<double> densities) {
  std::vector<setting> grid;
  if (!chosen.is_grid()) {
    for (double const density : densities) grid.push_back(usual(chosen, density));
    return grid;
  }
  for (auto const n : chosen.sizes)
    for (int const threads : chosen.thread_counts) {
      setting at{.n = n, .density = 0.001, .threads = threads, .seconds = chosen.seconds};
      for (auto const k : chosen.ks) {
        at.density = (static_cast<double>(k) - 0.5) / static_cast<double>(n);  // a budget is rounded up
        at.asked_k = k;
        grid.push_back(at);
      }
      at.asked_k = 0;
      for (double const density : chosen.densities) {
        at.density = density;
        grid.push_back(at);
      }
      if (chosen.ks.empty() && chosen.densities.empty()) grid.push_back(at);
    }
  return grid;
}

bool is_selector(std::string_view name) {
  bool found = false;
  for_each_selector_of_grids([&](std::string const& each, auto const&) { found = found || each == name; });
  return found;
}

void add_grid(options const& chosen) {
  auto const wanted = [&](std::string const& name) {
    if (chosen.selectors.empty()) return name == "radix" && chosen.recipes.empty();
    return std::ranges::any_of(chosen.selectors, [&](auto const& each) { return each == name || each == "all"; });
  };
  for (auto const& at : settings_of(chosen, {}))
    for_each_selector_of_grids([&](std::string const& name, auto const& selector) {
      if (!wanted(name)) return;
      add_step<float>(name, selector, at);
      if constexpr (!gs::bin_selector<std::remove_cvref_t<decltype(selector)>>)
        if (chosen.peers) add_select(name, selector, at, false);
    });
  add_recipes(chosen);
  add_own(chosen);
}

}  // namespace bench
