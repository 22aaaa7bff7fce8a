// The light door: compressors of the library's own policies, compiled in gradsieve::compiled. A unit parses
// declarations and compiles no step. The policies are those of the full headers: include those that a recipe names.
#pragma once

#if !defined(GRADSIEVE_COMPILED)
#error "gradsieve: light.hpp needs the library: link gradsieve::compiled, which defines GRADSIEVE_COMPILED"
#endif
#if defined(GRADSIEVE_FULL_COMPRESSOR)
#error "gradsieve: light.hpp and compressor.hpp, or gradsieve.hpp, have a compressor each: include one in a unit"
#endif
/// @cond internal
#define GRADSIEVE_LIGHT_COMPRESSOR
/// @endcond

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/concepts/communicator.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/openmp.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/compiled_recipe.hpp>
#include <gradsieve/run_time/step_owner.hpp>
#include <gradsieve/step/recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {
inline namespace light {

/// A compressor of the same use, results and exceptions as compressor of compressor.hpp, bit for bit. Recipes have
/// policies of full_menu; the constructor checks which of them fit together. On the host. Cost: the recipe's, a virtual
/// call per step and per collective, and a branch per segment and message.
template <class Space, class Recipe>
class compressor : public step_owner<host, detail::compiled_menu::formats> {
  static_assert(std::same_as<Space, host>, "light.hpp has compressors for the host: for a GPU include cuda.cuh");
  using base = step_owner<host, detail::compiled_menu::formats>;

 public:
  using selector_type = decltype(Recipe::selector);        ///< of the recipe
  using partitioner_type = decltype(Recipe::partitioner);  ///< of the recipe
  using residual_type = decltype(Recipe::residual);        ///< of the recipe
  using codec_type = decltype(Recipe::codec);              ///< of the recipe
  using exchange_type = decltype(Recipe::exchange);        ///< of the recipe

  /// As compressor's of compressor.hpp. @throws invalid_argument; also if policies do not fit together
  compressor(Space where, layout layers, Recipe recipe) : recipe_{std::move(recipe)} {
    detail::compiled_recipe same;
    same.set(recipe_);
    detail::lend_openmp();
    at_ = same.make_step(where, std::move(layers));
  }

  /// As compressor::exchange() of compressor.hpp, with any communicator.
  template <communicator Comm, class Gradient>
  step_report exchange(Comm const& comm, Gradient&& gradient, skipped_layers const skipped = {}) {
    over<Comm> const ranks{comm};
    return base::exchange(ranks.any(), std::forward<Gradient>(gradient), skipped);
  }
  /// As compressor::fail() of compressor.hpp.
  template <communicator Comm, class Gradient>
  void fail(Comm const& comm, Gradient&& gradient) {
    over<Comm> const ranks{comm};
    base::fail(ranks.any(), std::forward<Gradient>(gradient));
  }
  /// As compressor::connect() of compressor.hpp.
  template <communicator Comm>
  void connect(Comm const& comm) {
    over<Comm> const ranks{comm};
    base::connect(ranks.any());
  }

  [[nodiscard]] Recipe const& recipe() const { return alive(), recipe_; }  ///< as at construction
  /// As compressor::passing() of compressor.hpp.
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe().passthrough); }
  /// As compressor::describe() of compressor.hpp.
  [[nodiscard]] std::string describe() const { return detail::describe_recipe(recipe(), layers()); }

 private:
  /// A caller's communicator during one call. Does not allocate.
  template <class Comm>
  using over = any_communicator::borrowed<Comm>;

  Recipe recipe_;
};
/// Deduces space and recipe.
template <class Space, class Recipe>
compressor(Space, layout, Recipe) -> compressor<Space, Recipe>;

}  // namespace light
}  // namespace gradsieve
