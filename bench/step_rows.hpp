// The rows of a whole step: accumulate, select, emit, residual.
#pragma once

#include <string>

#include "rows.hpp"

namespace bench {

template <class Compressor, class T>
double compress(Compressor& reducer, std::span<T const> gradient) {
  return seconds([&] { benchmark::DoNotOptimize(reducer.compress(gradient).indices.data()); });
}

/// Steps as training sees them, from a settled residual.
template <class T, class Recipe>
void add_recipe(std::string const& name, Recipe const& recipe, setting const& at) {
  add("step/" + name + "/" + at.name(), [=](benchmark::State& state) {
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
    row<T> row{state, at};
    auto const step = [&](std::span<T const> gradient) { return compress(reducer, gradient); };
    settle(at, row.gradients, step);
    row.measure((8 + sizeof(T)) * at.n, step);
    row.count("selected_per_k", static_cast<double>(reducer.report().selected) / at.k());
  });
}

template <class T, class Selector>
void add_step(std::string const& selector_name, Selector selector, setting const& at) {
  gs::recipe<Selector> recipe{};
  recipe.density = at.density;
  recipe.selector = selector;
  add_recipe<T>(selector_name, recipe, at);
}

}  // namespace bench
