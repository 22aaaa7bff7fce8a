// What patterns of names are about: the parameters of a whole model, of which compressors have parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>

#include "compression.hpp"

namespace example {

/// The layers of a layout with what the model knows of the parameters of these names, or whose pieces they are, as
/// "0.weight[1]" is one of "0.weight". With an empty model they are the model themselves.
[[nodiscard]] inline gs::layout part_of_model(gs::layout const& model, gs::layout layers) {
  if (model.count() == 0) return layers;
  std::map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < model.count(); ++i) place.emplace(model[i].name, i);
  std::vector<gs::layer> parts(layers.begin(), layers.end());
  for (auto& each : parts) {
    auto const bracket = each.name.rfind('[');
    auto found = place.find(each.name);
    bool const piece = found == place.end() && bracket != std::string::npos;
    if (piece) found = place.find(std::string_view{each.name}.substr(0, bracket));
    if (found == place.end()) continue;
    auto const& whole = model[found->second];
    each.dimensions = whole.dimensions;
    each.other_names = whole.other_names;
    if (piece) each.other_names.push_back(whole.name);
  }
  return model.part(std::move(parts));
}

/// The layers of a model that pass through. @throws gs::invalid_argument for a pattern, of adacomp's bins too, that
/// fits none of the model's layers.
[[nodiscard]] inline std::vector<gs::layer> passing(compression const& chosen, gs::layout const& model) {
  gs::check_names(chosen.recipe, model);
  return gs::passing(model, chosen.recipe.passthrough);
}

}  // namespace example
