// Selection alone, from an accumulator in memory.
#include "rows.hpp"

namespace bench {
namespace {

/// Without what earlier steps have left (select/), or with it (select_warm/).
template <class Selector>
void add_select(std::string const& selector_name, Selector selector, setting const& at, bool warm) {
  add((warm ? "select_warm/" : "select/") + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    gs::host_workspace work{gs::host{at.threads}, at.n};
    auto const capacity = gs::selection_capacity(selector, at.k());
    gs::segment const all{0, at.n, at.k()};
    work.plan(std::span{&all, 1}, {}, capacity);
    gs::host_buffer<gs::index_type> indices(capacity);
    gs::host_buffer<float> values(capacity);
    gs::warm_threshold remembered;
    std::uint64_t step = 0;
    gs::index_type selected = 0;
    row<float> row{state, at};
    row.measure(4 * at.n, [&](std::span<float const> accumulator) {
      if (!warm) remembered = {};
      return seconds([&] {
        gs::accumulator_ref const acc{accumulator, 0, 0, step++, &remembered};
        gs::key_type const candidate_threshold = gs::predict_candidate_threshold(selector, work, acc, at.k());
        work.collect(accumulator, std::span{&candidate_threshold, 1});
        selected = gs::select(selector, work, acc, at.k(), {indices.span(), values.span(), {}});
      });
    });
    row.count("selected_per_k", static_cast<double>(selected) / at.k());
  });
}

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
