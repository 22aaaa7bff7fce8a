// A compressor whose recipe is chosen at run time, without what is compiled for it: that is in host_steps.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/host/openmp.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/run_time/make_step.hpp>
#include <gradsieve/run_time/menu.hpp>
#include <gradsieve/run_time/step_owner.hpp>
#include <gradsieve/two_level.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A compressor whose recipe is chosen at run time; see compressor for what each call does and throws. Results equal
/// those of the recipe written in C++, bit for bit. Gradients are of a format of the menu, in one piece or in `pieces`.
/// Made with nodes it is a two_level_compressor: it exchanges with these, its residual is that of this rank's part, and
/// it makes no messages. Not for concurrent use. Cost: the recipe's, a virtual call per step, and a branch per segment
/// and message.
/// run_time.hpp, or run_time.cuh for a device, has what is compiled for all recipes of the menu, which takes minutes:
/// include it in one translation unit, which instantiates detail::make_step, and this header in others. A program that
/// links gradsieve::compiled need not for full_menu, nor for menus of some of its policies in its formats.
template <class Menu = full_menu, class Space = host>
class any_compressor : public step_owner<Space, typename Menu::formats> {
  using base = step_owner<Space, typename Menu::formats>;

 public:
  /// As compressor's constructor. @throws invalid_argument; also if the recipe's policies do not fit together, and on a
  /// device for a policy that does not run there, which it names.
  any_compressor(Space where, layout layers, any_recipe<Menu> recipe) : recipe_{std::move(recipe)} {
    recipe_.check();
    detail::lend_openmp();
    base::at_ = detail::make_step(where, std::move(layers), recipe_, static_cast<any_nodes<Space> const*>(nullptr));
  }
  /// As two_level_compressor's constructor.
  any_compressor(Space where, layout layers, any_recipe<Menu> recipe, any_nodes<Space> const& nodes)
      : recipe_{std::move(recipe)} {
    recipe_.check();
    detail::lend_openmp();
    base::at_ = detail::make_step(where, std::move(layers), recipe_, &nodes);
  }

  [[nodiscard]] any_recipe<Menu> const& recipe() const { return base::alive(), recipe_; }   ///< the recipe
  [[nodiscard]] std::uint64_t hash() const { return recipe().hash(); }  ///< as recipe::hash() of the recipe in C++
  /// As compressor::passing().
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(base::layers(), recipe().passthrough); }
  /// As compressor::describe().
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), base::layers()); }

 private:
  any_recipe<Menu> recipe_;
};
/// Deduces menu and space.
template <class Space, class Menu>
any_compressor(Space, layout, any_recipe<Menu>) -> any_compressor<Menu, Space>;
/// Deduces menu and space.
template <class Space, class Menu>
any_compressor(Space, layout, any_recipe<Menu>, any_nodes<Space>) -> any_compressor<Menu, Space>;

namespace detail {

template <class Space, class Menu>
struct compressor_of<Space, any_recipe<Menu>> {
  using type = any_compressor<Menu, Space>;
};

}  // namespace detail
}  // namespace gradsieve
