// The function that makes the step of a recipe which is chosen at run time: compiled for a menu by host_steps.hpp and
// device_steps.cuh, and for full_menu on the host also in the library gradsieve::compiled.
#pragma once

#include <memory>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/run_time/menu.hpp>

#if defined(GRADSIEVE_COMPILED)
#include <type_traits>
#include <utility>
#endif

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The step of a checked recipe, for exchanges with `nodes` unless null. host_steps.hpp and device_steps.cuh define it.
template <class Menu>
[[nodiscard]] std::unique_ptr<any_step<host, typename Menu::formats>> make_step(host where, layout layers,
                                                                                any_recipe<Menu> const& recipe,
                                                                                any_nodes<host> const* nodes);
template <class Menu>
[[nodiscard]] std::unique_ptr<any_step<device, typename Menu::formats>> make_step(device where, layout layers,
                                                                                  any_recipe<Menu> const& recipe,
                                                                                  any_nodes<device> const* nodes);

#if defined(GRADSIEVE_COMPILED)

extern template std::unique_ptr<any_step<host, full_menu::formats>> make_step(host, layout, any_recipe<> const&,
                                                                              any_nodes<host> const*);

template <class Part, class Whole>
inline constexpr bool is_part = false;
template <class... Types, class Whole>
inline constexpr bool is_part<type_list<Types...>, Whole> = (holds<Types, Whole> && ...);

/// A menu, other than full_menu, of some of its policies in its formats.
template <class Menu>
concept part_of_full_menu =
    !std::is_same_v<Menu, full_menu> && std::is_same_v<typename Menu::formats, full_menu::formats> &&
    is_part<typename Menu::selectors, full_menu::selectors> &&
    is_part<typename Menu::partitioners, full_menu::partitioners> &&
    is_part<typename Menu::residuals, full_menu::residuals> && is_part<typename Menu::indices, full_menu::indices> &&
    is_part<typename Menu::values, full_menu::values> && is_part<typename Menu::exchanges, full_menu::exchanges>;

template <part_of_full_menu Menu>
[[nodiscard]] std::unique_ptr<any_step<host, full_menu::formats>> make_step(host where, layout layers,
                                                                            any_recipe<Menu> const& recipe,
                                                                            any_nodes<host> const* nodes) {
  any_recipe<> same{.density = recipe.density,
                    .codec = recipe.codec,
                    .passthrough = recipe.passthrough,
                    .on_non_finite = recipe.on_non_finite};
  assign_chosen(same.selector, recipe.selector);
  assign_chosen(same.partitioner, recipe.partitioner);
  assign_chosen(same.residual, recipe.residual);
  assign_chosen(same.indices, recipe.indices);
  assign_chosen(same.values, recipe.values);
  assign_chosen(same.exchange, recipe.exchange);
  return make_step(where, std::move(layers), same, nodes);
}

#endif

}  // namespace gradsieve::detail
