// What stands behind any_step: the compressor of a recipe, or of a recipe's nodes.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_compressor.hpp>
#include <gradsieve/run_time/any_recipe.hpp>
#include <gradsieve/run_time/any_step.hpp>
#include <gradsieve/two_level.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The compressor of a recipe. The first apply() makes an averager of its messages.
template <class Space, class Recipe, class Formats>
class step_of_recipe final : public any_step<Space, Formats>, around_steps<Space> {
 public:
  using base = any_step<Space, Formats>;
  using gradient = typename base::gradient;

  step_of_recipe(Space where, layout about, Recipe const& recipe) : reducer_{where, std::move(about), recipe} {}

  using base::exchange;
  using base::fail;
  void exchange(typename base::ranks const& comm, gradient const& all, skipped_layers skipped) override {
    std::visit([&](auto values) { reducer_.exchange(comm, values, skipped); }, all);
  }
  void fail(typename base::ranks const& comm, gradient const& all) override {
    std::visit([&](auto values) { reducer_.fail(comm, values); }, all);
  }
  void connect(typename base::ranks const& comm) override { reducer_.connect(comm); }
  typename base::selection compress(typename base::constant_gradient const& all, int rank) override {
    return std::visit([&](auto values) { return reducer_.compress(values, rank); }, all);
  }
  applied_update apply(std::span<std::span<std::byte const> const> messages, gradient const& all) override {
    if (!mean_) mean_ = std::make_unique<mean_type>(where(), reducer_.layers(), reducer_.recipe());
    return std::visit([&](auto values) { return mean_->apply(messages, values); }, all);
  }
  std::span<std::byte const> encode(typename base::selection const& chosen) override { return reducer_.encode(chosen); }
  around_steps<Space>& around() override { return *this; }
  around_steps<Space> const& around() const override { return *this; }
  step_report read_report() const override { return reducer_.report(); }
  layout const& layers() const override { return reducer_.layers(); }

 private:
  using mean_type = averager<Space, decltype(Recipe::codec)>;

  std::span<float const> residual() override { return reducer_.residual(); }
  std::uint64_t step() const override { return reducer_.step(); }
  std::uint64_t accumulated() const override { return reducer_.accumulated(); }
  Space where() const override { return reducer_.where(); }
  typename step_results<Space>::report report() const override { return reducer_.report(); }
  void discard_step() override { reducer_.discard_step(); }
  void rescale(float factor) override { reducer_.rescale(factor); }
  double residual_norm() override { return reducer_.residual_norm(); }
  std::vector<std::byte> state() override { return reducer_.state(); }
  void restore(std::span<std::byte const> bytes) override { reducer_.restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { reducer_.absorb(bytes); }

  compressor<Space, Recipe> reducer_;
  std::unique_ptr<mean_type> mean_;
};

/// A two_level_compressor around an any_compressor of this rank's part, so that it is compiled once for all recipes.
template <class Space, class Menu>
class step_of_nodes final : public any_step<Space, typename Menu::formats> {
 public:
  using base = any_step<Space, typename Menu::formats>;
  using gradient = typename base::gradient;

  step_of_nodes(Space where, layout about, any_recipe<Menu> const& recipe, any_nodes<Space> const& nodes)
      : reducer_{where, std::move(about), recipe, nodes} {}

  using base::exchange;
  using base::fail;
  void exchange(any_nodes<Space> const& nodes, gradient const& all, skipped_layers skipped) override {
    std::visit([&](auto values) { reducer_.exchange(nodes, values, skipped); }, all);
  }
  void fail([[maybe_unused]] any_nodes<Space> const& nodes, [[maybe_unused]] gradient const& all) override {
    if constexpr (std::same_as<Space, host>)
      std::visit([&](auto values) { reducer_.fail(nodes, values); }, all);
    else
      throw invalid_argument("gradsieve: fail() with nodes is for the host");
  }
  around_steps<Space>& around() override { return reducer_.part_compressor().around(); }
  around_steps<Space> const& around() const override { return reducer_.part_compressor().around(); }
  step_report read_report() const override { return reducer_.report(); }
  layout const& layers() const override { return reducer_.layers(); }

 private:
  two_level_compressor<Space, any_recipe<Menu>> reducer_;
};

/// True if a menu offers one of these partitioners with a selector and a residual store.
template <class Menu, class Selector, class Residual, class... Partitioners>
constexpr bool offers_one(type_list<Partitioners...>) {
  return (offers<Menu, Selector, Partitioners, Residual>() || ...);
}
template <class Menu, class Residual, class Partitioners, class... Selectors>
constexpr bool offers_any(type_list<Selectors...>) {
  return (offers_one<Menu, Selectors, Residual>(Partitioners{}) || ...);
}

/// The step of a recipe with this selector, residual store and codec. `Partitioner` and `Exchange` hold the chosen
/// ones.
template <class Partitioner, class Exchange, class Space, class Menu, class Selector, class Residual, class Codec>
[[nodiscard]] std::unique_ptr<any_step<Space, typename Menu::formats>> make_step_of(
    Space where, layout&& layers, any_recipe<Menu> const& from, Selector const& selector, Residual const& residual,
    Codec const& codec) {
  Partitioner partitioner;
  assign_chosen(partitioner.chosen, from.partitioner);
  Exchange exchange;
  assign_chosen(exchange.chosen, from.chosen_exchange());
  using made = recipe<Selector, Partitioner, Residual, Codec, Exchange>;
  return std::make_unique<step_of_recipe<Space, made, typename Menu::formats>>(
      where, std::move(layers),
      made{from.density, selector, partitioner, residual, codec, exchange, from.passthrough, from.on_non_finite});
}

}  // namespace gradsieve::detail
