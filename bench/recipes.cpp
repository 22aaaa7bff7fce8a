// Recipes that the user names as text: whole exchanges of one rank, with its messages.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/run_time/any_compressor.hpp>

#include <vector>

#include "rows.hpp"

namespace bench {

void add_recipes(options const& chosen) {
  gs::any_communicator const alone{gs::self{}};
  for (auto const& text : chosen.recipes)
    for (auto const& at : settings_of(chosen, {})) {
      auto recipe = gs::any_recipe<>::parse(text);
      recipe.density = at.density;
      auto name = text;
      std::ranges::replace(name, ':', '=');  // a colon stands between an axis and its value
      add("exchange/" + name + "/" + at.name(), [=](benchmark::State& state) {
        gs::any_compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
        row<float> row{state, at};
        std::vector<float> update(at.n);
        auto const step = [&](std::span<float const> gradient) {
          std::ranges::copy(gradient, update.begin());
          return seconds([&] { reducer.exchange(alone, update); });
        };
        settle(at, row.gradients, step);
        row.measure(16 * at.n, step);
        row.count("bytes_sent", static_cast<double>(reducer.report().bytes_sent));
      });
    }
}

}  // namespace bench
