// Names such as "radix+deft+momentum" to a recipe that is chosen at run time, for programs that take recipes by name.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/menu.hpp>

#include "command_line.hpp"

namespace example {

namespace gs = gradsieve;

/// What programs offer: all policies, but not all together, so that they compile in a minute.
struct menu : gs::full_menu {
  using exchanges = gs::type_list<gs::gather, gs::index_union, gs::leader, gs::reduce_scatter, gs::coded_all_reduce>;

  /// Selectors to compare with: with `whole` and `error_feedback` only.
  template <class Selector>
  static constexpr bool stands_alone =
      !(std::is_same_v<Selector, gs::radix> || std::is_same_v<Selector, gs::hierarchical> ||
        std::is_same_v<Selector, gs::laplacian> || std::is_same_v<Selector, gs::adacomp>);

  /// All of the first three selectors with the first three partitioners and residuals, and a few of the others.
  template <class Selector, class Partitioner, class Residual>
  static constexpr bool offers() {
    using namespace gs;
    constexpr bool plain = std::is_same_v<Residual, error_feedback>;
    if constexpr (std::is_same_v<Selector, adacomp>) return std::is_same_v<Partitioner, layerwise> && plain;
    if constexpr (stands_alone<Selector>) return std::is_same_v<Partitioner, whole> && plain;
    if constexpr (std::is_same_v<Partitioner, micro>)
      return (std::is_same_v<Selector, radix> || std::is_same_v<Selector, laplacian>) && plain;
    if constexpr (std::is_same_v<Partitioner, cyclic>)
      return (std::is_same_v<Selector, radix> && !std::is_same_v<Residual, none>) ||
             (std::is_same_v<Selector, laplacian> && plain);
    return !std::is_same_v<Residual, filtered>;
  }
};
using any_recipe = gs::any_recipe<menu>;

template <class... Policies>
[[nodiscard]] names names_in(gs::type_list<Policies...>) {
  return {std::string{gs::recipe_text::short_name<Policies>()}...};
}
inline names const selector_names = names_in(menu::selectors{});
inline names const partitioner_names = names_in(menu::partitioners{});
inline names const residual_names = names_in(menu::residuals{});
/// Exchanges that a recipe may name: all that leave the same mean on every rank.
using named_exchanges = gs::type_list<gs::gather, gs::index_union, gs::leader, gs::coded_all_reduce>;
inline names const exchange_names = names_in(named_exchanges{});

/// body(selector, partitioner, residual) for each combination that is offered.
template <class Body>
void for_each_offer(Body const& body) {
  auto const each = []<class... Types>(gs::type_list<Types...>, auto const& with) { (with(Types{}), ...); };
  each(menu::selectors{}, [&]<class S>(S const& selector) {
    each(menu::partitioners{}, [&]<class P>(P const& partitioner) {
      each(menu::residuals{}, [&]<class R>(R const& residual) {
        if constexpr (menu::offers<S, P, R>()) body(selector, partitioner, residual);
      });
    });
  });
}

/// Whether a recipe's selector, partitioner and residual are offered together.
[[nodiscard]] inline bool is_offered(any_recipe const& recipe) {
  return std::visit([]<class S, class P, class R>(S const&, P const&, R const&) { return menu::offers<S, P, R>(); },
                    recipe.selector, recipe.partitioner, recipe.residual);
}

/// Momentum correction keeps the momentum in the compressor: the optimiser must not apply it again.
[[nodiscard]] inline bool carries_momentum(any_recipe const& recipe) {
  return std::holds_alternative<gs::momentum_correction>(recipe.residual);
}

/// AdaComp's bins say how much is sent, and the density is no more than a limit.
[[nodiscard]] inline bool adapts(any_recipe const& recipe) {
  return std::holds_alternative<gs::adacomp>(recipe.selector);
}

/// Whether ranks send indices and values apart, and values are summed on their way: see gs::separable_codec.
[[nodiscard]] inline bool sums_values(any_recipe const& recipe) {
  return std::visit([](auto const& it) { return it.traits.sums_values; }, recipe.chosen_exchange());
}

/// The policies that a recipe names, by '+' and in any order; of a family that is not named, that of `open`.
/// @throws usage_error for a name that there is not, two of one family, and, where `whole`, what is not offered.
[[nodiscard]] inline any_recipe parse_policies(std::string const& recipe, any_recipe const& open = {},
                                               bool whole = true) {
  auto made = open;
  auto const family = [&recipe](char const* what, auto list, auto& to) {
    return [&recipe, what, list, &to, named = false](std::string const& token) mutable {
      if (std::ranges::count(names_in(list), token) == 0) return false;  // by its short name only
      static_cast<void>(gs::recipe_text::read_one_of(list, {token, {}}, to));
      if (std::exchange(named, true)) throw usage_error("recipe '" + recipe + "' names two " + what);
      return true;
    };
  };
  auto selector = family("selectors", menu::selectors{}, made.selector);
  auto partitioner = family("partitioners", menu::partitioners{}, made.partitioner);
  auto residual = family("residuals", menu::residuals{}, made.residual);
  auto exchange = family("exchanges", named_exchanges{}, made.exchange);
  for (auto const& token : split(recipe, '+'))
    if (!selector(token) && !partitioner(token) && !residual(token) && !exchange(token))
      throw usage_error("recipe '" + recipe + "': '" + token + "' is none of " + joined(selector_names) + "; " +
                        joined(partitioner_names) + "; " + joined(residual_names) + "; " + joined(exchange_names));
  if (!whole) return made;
  if (adapts(made) && std::holds_alternative<gs::whole>(made.partitioner)) made.partitioner = gs::layerwise{};
  if (!is_offered(made))
    throw usage_error("recipe '" + recipe +
                      "': cyclic and filtered are in radix+cyclic, laplacian+cyclic, radix+cyclic+momentum and "
                      "radix+cyclic+filtered only; micro is in radix+micro and laplacian+micro; adacomp and chunked "
                      "stand alone, as trimmed, threshold_search, ldte, sidco, random_k and fixed_threshold do");
  return made;
}

}  // namespace example
