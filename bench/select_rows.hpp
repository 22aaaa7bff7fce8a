// The rows of selection alone, from an accumulator in memory.
#pragma once

#include <string>

#include "rows.hpp"

namespace bench {

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
    auto const counted = work.take_threshold_counts();
    if (counted.all() == 0) return;
    auto const thresholds = static_cast<double>(counted.all());
    row.count("estimated_share", static_cast<double>(counted.of(gs::threshold_origin::estimated)) / thresholds);
    row.count("probes", static_cast<double>(counted.probes) / thresholds);
  });
}

}  // namespace bench
