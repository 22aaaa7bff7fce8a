// Every recipe of a menu, compiled for the host: include it in one translation unit of a program.
#pragma once

#include <memory>
#include <utility>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_compressor.hpp>
#include <gradsieve/run_time/any_policies.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/step_of_recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Chooses all policies but the residual store within a step, which is compiled once for each store.
template <class Menu>
std::unique_ptr<any_step<host, typename Menu::formats>> make_step(host where, layout layers,
                                                                  any_recipe<Menu> const& recipe,
                                                                  any_nodes<host> const* nodes) {
  using result = std::unique_ptr<any_step<host, typename Menu::formats>>;
  if (nodes != nullptr) return std::make_unique<step_of_nodes<host, Menu>>(where, std::move(layers), recipe, *nodes);
  return with_chosen(recipe.residual, [&]<class Residual>(Residual const& residual) -> result {
    if constexpr (offers_any<Menu, Residual, typename Menu::partitioners>(typename Menu::selectors{})) {
      any_of<any_selector, typename Menu::selectors> selector;
      assign_chosen(selector.chosen, recipe.selector);
      return make_step_of<any_of<any_partitioner, typename Menu::partitioners>,
                          any_of<any_exchange, typename Menu::exchanges>>(where, std::move(layers), recipe, selector,
                                                                          residual, recipe.coded());
    } else {
      throw invalid_argument("gradsieve: recipe: the menu does not offer this");  // check() has said so
    }
  });
}

}  // namespace gradsieve::detail
