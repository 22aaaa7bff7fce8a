// A compressor whose recipe is read from text. A menu of policies says what is compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_codec.hpp>
#include <gradsieve/run_time/any_communicator.hpp>
#include <gradsieve/run_time/any_exchange.hpp>
#include <gradsieve/run_time/any_partitioner.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_selector.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/run_time/menu.hpp>

namespace gradsieve {

/// A compressor on the host whose recipe is chosen at run time; see compressor for what each call does and throws. It
/// gives the same bits as the recipe written in C++. Gradients are of a format of the menu, in one piece or in
/// `pieces`. Not for concurrent use. Cost: the recipe's, a virtual call per step, and a branch per segment and message.
/// It compiles slowly (see full_menu): include it in one translation unit.
template <class Menu = full_menu>
class any_compressor {
  using base = detail::any_step<typename Menu::formats>;

 public:
  using space_type = host;  ///< where it works

  /// As compressor's constructor. @throws invalid_argument; also where the recipe's policies do not fit together.
  any_compressor(host where, layout layers, any_recipe<Menu> recipe) : recipe_{std::move(recipe)} {
    recipe_.check();
    std::visit([&](auto const& selector, auto const& residual) { choose(where, layers, selector, residual); },
               recipe_.selector, recipe_.residual);
  }

  /// As compressor::exchange(), of a gradient in a format of the menu.
  template <class Gradient>
  step_report exchange(any_communicator const& comm, Gradient&& gradient) {
    return exchange(comm, gradient, skipped_layers{});
  }
  /// As compressor::exchange() with layers that are skipped.
  template <class Gradient>
  step_report exchange(any_communicator const& comm, Gradient&& gradient, skipped_layers const skipped) {
    auto const all = gradient_of(gradient);
    return at_->exchange(comm, all, skipped);
  }
  /// As compressor::fail(): so an overlap can cancel a step.
  template <class Gradient>
  void fail(any_communicator const& comm, Gradient&& gradient) {
    auto const all = gradient_of(gradient);
    at_->fail(comm, all);
  }
  /// As compressor::compress().
  template <class Gradient>
  host_selection compress(Gradient const& gradient, int rank = 0) {
    auto const all = gradient_of(gradient);
    return at_->compress(all, rank);
  }
  /// As compressor::encode().
  [[nodiscard]] std::span<std::byte const> encode(host_selection const& chosen) { return at_->encode(chosen); }
  /// Overwrites the gradient with the mean of messages of such compressors; see averager::apply(). Allocates in the
  /// first call.
  template <class Gradient>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    auto const all = gradient_of(gradient);
    return at_->apply(messages, all);
  }
  [[nodiscard]] std::span<float const> residual() { return at_->residual(); }        ///< as compressor::residual()
  [[nodiscard]] std::uint64_t accumulated() const { return at_->accumulated(); }     ///< as compressor::accumulated()
  [[nodiscard]] host where() const { return at_->where(); }                          ///< as at construction
  [[nodiscard]] step_report report() const { return at_->report(); }                 ///< as compressor::report()
  void discard_step() { at_->discard_step(); }                                       ///< as compressor::discard_step()
  void rescale(float factor) { at_->rescale(factor); }                               ///< as compressor::rescale()
  [[nodiscard]] double residual_norm() { return at_->residual_norm(); }              ///< as compressor::residual_norm()
  [[nodiscard]] std::vector<std::byte> state() { return at_->state(); }              ///< as compressor::state()
  void restore(std::span<std::byte const> bytes) { at_->restore(bytes); }            ///< as compressor::restore()
  void absorb(std::span<std::byte const> bytes) { at_->absorb(bytes); }              ///< as compressor::absorb()
  [[nodiscard]] layout const& layers() const { return at_->layers(); }               ///< as compressor::layers()
  [[nodiscard]] any_recipe<Menu> const& recipe() const noexcept { return recipe_; }  ///< the recipe
  /// The same number as recipe::hash() of the recipe written in C++.
  [[nodiscard]] std::uint64_t hash() const { return at_->hash(); }
  /// As compressor::passing().
  [[nodiscard]] std::vector<layer> passing() const { return gradsieve::passing(layers(), recipe_.passthrough); }
  /// As compressor::describe().
  [[nodiscard]] std::string describe() const { return at_->describe(); }

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
  using late = detail::those_of<needs_norms, typename Menu::partitioners>;
  using early = detail::those_of<needs_none, typename Menu::partitioners>;

  using any_selector_type = detail::any_of<any_selector, detail::those_of<has_none, typename Menu::selectors>>;
  using any_indices_type = detail::any_of<any_indices, typename Menu::indices>;
  using any_values_type = detail::any_of<any_values, typename Menu::values>;
  using any_codec_type =
      any_codec<any_indices_type, any_values_type,
                detail::any_of<any_summed_values, detail::those_of<detail::is_summed, typename Menu::values>>>;
  using any_exchange_type = detail::any_of<any_exchange, typename Menu::exchanges>;
  /// For binned, which does not send values apart.
  using message_exchange_type =
      detail::any_of<any_exchange, detail::those_of<sends_messages, typename Menu::exchanges>>;

  template <class Gradient>
  [[nodiscard]] auto gradient_of(Gradient& gradient) const {
    auto const all = checked_gradient(gradient, layers());
    static_assert(detail::holds<typename decltype(all)::value_type, typename Menu::formats>,
                  "this menu's compressors do not take gradients of this format: name it in the menu's formats");
    return all;
  }

  template <class Selector, class Residual>
  void choose(host where, layout& layers, Selector const& selector, Residual const& residual) {
    if constexpr (bin_selector<Selector>) {
      if (recipe_.codec == codec_kind::binned)
        make(where, layers, selector, early{}, residual, binned{});
      else
        make(where, layers, selector, early{}, residual, codec());
    } else {
      any_selector_type any;
      any.chosen = selector;
      bool const waits = std::visit([](auto const& it) { return it.traits.needs_norms; }, recipe_.partitioner);
      if (waits)
        make(where, layers, any, late{}, residual, codec());
      else
        make(where, layers, any, early{}, residual, codec());
    }
  }

  [[nodiscard]] any_codec_type codec() const {
    if (recipe_.codec == codec_kind::coo) return {};
    packed<any_indices_type, any_values_type> parts;
    parts.indices.chosen = recipe_.indices;
    parts.values.chosen = recipe_.values;
    return any_codec_type{parts};
  }

  /// With a partitioner of this list, which the chosen one is of.
  template <class Selector, class... Partitioners, class Residual, class Codec>
  void make(host where, layout& layers, Selector const& selector, type_list<Partitioners...>, Residual const& residual,
            Codec const& codec) {
    if constexpr (sizeof...(Partitioners) > 0) {
      constexpr bool waits = (Partitioners::traits.needs_norms || ...);
      any_partitioner<waits, Partitioners...> partitioner;
      detail::assign_chosen(partitioner.chosen, recipe_.partitioner);
      using exchange_type = std::conditional_t<bin_codec<Codec>, message_exchange_type, any_exchange_type>;
      exchange_type exchange;
      detail::assign_chosen(exchange.chosen, recipe_.chosen_exchange());
      using made = gradsieve::recipe<Selector, any_partitioner<waits, Partitioners...>, Residual, Codec, exchange_type>;
      made const all{recipe_.density, selector, partitioner,         residual,
                     codec,           exchange, recipe_.passthrough, recipe_.on_non_finite};
      at_ = std::make_unique<detail::any_step_of<made, typename Menu::formats>>(where, std::move(layers), all);
    }
  }

  any_recipe<Menu> recipe_;
  std::unique_ptr<base> at_;
};

}  // namespace gradsieve
