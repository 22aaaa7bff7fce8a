// Every recipe of a menu, compiled for the host: include it in one translation unit of a program.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_compressor.hpp>
#include <gradsieve/run_time/any_exchange.hpp>
#include <gradsieve/run_time/any_partitioner.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_selector.hpp>
#include <gradsieve/run_time/step_of_recipe.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Selectors without bins, parts of codecs and exchanges are chosen in a step, so that it is compiled for each residual
/// store, twice with both kinds of partitioners, and for each selector with bins.
template <class Menu>
class host_steps {
  using result = std::unique_ptr<any_step<host, typename Menu::formats>>;

 public:
  host_steps(host where, layout layers, any_recipe<Menu> const& from)
      : where_{where}, layers_{std::move(layers)}, from_{from} {}

  [[nodiscard]] result make() && {
    return std::visit(
        [&](auto const& selector, auto const& residual) -> result { return make_with(selector, residual); },
        from_.selector, from_.residual);
  }

 private:
  template <class S>
  struct has_bins : std::bool_constant<bin_selector<S>> {};
  template <class S>
  struct has_none : std::bool_constant<!bin_selector<S>> {};
  template <class P>
  struct needs_norms : std::bool_constant<P::traits.needs_norms> {};
  template <class P>
  struct needs_none : std::bool_constant<!P::traits.needs_norms> {};
  template <class E>
  struct sends_messages : std::bool_constant<!E::traits.sums_values> {};
  using late = those_of<needs_norms, typename Menu::partitioners>;
  using early = those_of<needs_none, typename Menu::partitioners>;
  using plain_selectors = those_of<has_none, typename Menu::selectors>;
  using any_exchange_type = any_of<any_exchange, typename Menu::exchanges>;
  /// For binned, which does not send values apart.
  using message_exchange_type = any_of<any_exchange, those_of<sends_messages, typename Menu::exchanges>>;

  template <class Selector, class Residual>
  [[nodiscard]] result make_with(Selector const& selector, Residual const& residual) {
    if constexpr (bin_selector<Selector>) {
      return from_.with_codec([&](auto const& codec) -> result {
        return make_if<offers_one<Menu, Selector, Residual>(early{})>(selector, residual, early{}, codec);
      });
    } else {
      return make_plain(residual);
    }
  }

  template <class Residual>
  [[nodiscard]] result make_plain(Residual const& residual) {
    any_of<any_selector, plain_selectors> selector;
    assign_chosen(selector.chosen, from_.selector);
    auto const codec = from_.coded();
    bool const waits = std::visit([](auto const& it) { return it.traits.needs_norms; }, from_.partitioner);
    if (waits)
      return make_if<offers_any<Menu, Residual, late>(plain_selectors{})>(selector, residual, late{}, codec);
    return make_if<offers_any<Menu, Residual, early>(plain_selectors{})>(selector, residual, early{}, codec);
  }

  template <bool Offered, class Selector, class Residual, class... Partitioners, class Codec>
  [[nodiscard]] result make_if(Selector const& selector, Residual const& residual, type_list<Partitioners...>,
                               Codec const& codec) {
    if constexpr (Offered && sizeof...(Partitioners) > 0) {
      constexpr bool waits = (Partitioners::traits.needs_norms || ...);
      using exchange = std::conditional_t<bin_codec<Codec>, message_exchange_type, any_exchange_type>;
      return make_step_of<any_partitioner<waits, Partitioners...>, exchange>(where_, std::move(layers_), from_,
                                                                             selector, residual, codec);
    } else {
      throw invalid_argument("gradsieve: recipe: the menu does not offer this");  // check() has said so
    }
  }

  host where_;
  layout layers_;
  any_recipe<Menu> const& from_;
};

template <class Menu>
std::unique_ptr<any_step<host, typename Menu::formats>> make_step(host where, layout layers,
                                                                  any_recipe<Menu> const& recipe,
                                                                  any_nodes<host> const* nodes) {
  if (nodes != nullptr) return std::make_unique<step_of_nodes<host, Menu>>(where, std::move(layers), recipe, *nodes);
  return host_steps<Menu>{where, std::move(layers), recipe}.make();
}

}  // namespace gradsieve::detail
