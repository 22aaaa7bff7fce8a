// Names such as "radix+deft+momentum" to gradsieve recipes, and a recipe to the function that exchanges.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "communicator.hpp"
#include "options.hpp"

namespace example {

// In the order of selector_names, partitioner_names and residual_names.
using any_selector = std::variant<gs::radix, gs::hierarchical, gs::laplacian>;
using any_partitioner = std::variant<gs::whole, gs::layerwise, gs::deft, gs::cyclic>;
using any_residual = std::variant<gs::none, gs::error_feedback, gs::momentum_correction, gs::filtered>;

/// Whether the program has a compressor of these policies: each is compiled, so that of those by which one rank selects
/// there are a few only, and none where there is a device, which has no exchange for them yet.
template <class Selector, class Partitioner, class Residual>
inline constexpr bool is_built =
    std::is_same_v<Partitioner, gs::cyclic>
        ? cyclic_is_built && ((std::is_same_v<Selector, gs::radix> && !std::is_same_v<Residual, gs::none> &&
                               !std::is_same_v<Residual, gs::momentum_correction>) ||
                              (std::is_same_v<Selector, gs::laplacian> && std::is_same_v<Residual, gs::error_feedback>))
        : !std::is_same_v<Residual, gs::filtered>;

struct named_recipe {
  std::string name;
  bool dense = false;  ///< plain all-reduce: the three policies below are not used
  any_selector selector;
  any_partitioner partitioner;
  any_residual residual;

  /// Momentum correction keeps the momentum in the compressor: the optimiser must not apply it again.
  [[nodiscard]] bool carries_momentum() const {
    return !dense && std::holds_alternative<gs::momentum_correction>(residual);
  }

  [[nodiscard]] bool built() const {
    return std::visit([](auto s, auto p, auto r) { return is_built<decltype(s), decltype(p), decltype(r)>; }, selector,
                      partitioner, residual);
  }
};

/// One of a family of policies by its name, of which a recipe may name one.
template <class Variant>
class family {
 public:
  family(std::string what, names const& choices, std::string const& initial)
      : what_{std::move(what)}, choices_{choices} {
    take(initial, initial);
    named_ = false;
  }

  /// True if the token is of this family.
  bool take(std::string const& token, std::string const& recipe) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i] != token) continue;
      if (std::exchange(named_, true)) throw usage_error("--compare '" + recipe + "' names two " + what_);
      chosen_ = i;
      return true;
    }
    return false;
  }

  [[nodiscard]] Variant policy() const { return make(std::make_index_sequence<std::variant_size_v<Variant>>{}); }

 private:
  template <std::size_t... I>
  [[nodiscard]] Variant make(std::index_sequence<I...>) const {
    return std::array<Variant, sizeof...(I)>{Variant{std::in_place_index<I>}...}[chosen_];
  }

  std::string what_;
  names const& choices_;
  std::size_t chosen_ = 0;
  bool named_ = false;
};

/// Tokens in any order; what a name leaves open comes from --selector, --partitioner and --residual.
[[nodiscard]] inline named_recipe parse_recipe(std::string const& name, options const& chosen) {
  if (name == "dense") return {.name = name, .dense = true, .selector = {}, .partitioner = {}, .residual = {}};
  auto selector = family<any_selector>{"selectors", selector_names, chosen.selector};
  auto partitioner = family<any_partitioner>{"partitioners", partitioner_names, chosen.partitioner};
  auto residual = family<any_residual>{"residuals", residual_names, chosen.residual};
  for (auto const& token : split(name, '+'))
    if (!selector.take(token, name) && !partitioner.take(token, name) && !residual.take(token, name))
      throw usage_error("--compare '" + token + "' in '" + name + "': choose all, dense, or join by '+' from " +
                        joined(selector_names) + "; " + joined(partitioner_names) + "; " + joined(residual_names));
  named_recipe recipe{.name = name,
                      .dense = false,
                      .selector = selector.policy(),
                      .partitioner = partitioner.policy(),
                      .residual = residual.policy()};
  if (auto* const correction = std::get_if<gs::momentum_correction>(&recipe.residual))
    correction->momentum = static_cast<float>(chosen.momentum);
  if (auto* const filter = std::get_if<gs::filtered>(&recipe.residual)) filter->beta = static_cast<float>(chosen.beta);
  if (!recipe.built())
    throw usage_error("--compare '" + name +
                      (cyclic_is_built ? "': cyclic and filtered are in radix+cyclic, laplacian+cyclic and "
                                         "radix+cyclic+filtered only"
                                       : "': cyclic and filtered are not in a build with CUDA"));
  return recipe;
}

/// What to train: dense first, then in the order given.
[[nodiscard]] inline std::vector<named_recipe> parse_recipes(options const& chosen) {
  names wanted = chosen.compare;
  if (wanted.empty()) wanted = {"dense", joined({chosen.selector, chosen.partitioner, chosen.residual}, "+")};
  std::vector<named_recipe> recipes;
  for (auto const& name : wanted) {
    for (auto const& earlier : recipes)
      if (earlier.name == name) throw usage_error("--compare names '" + name + "' twice");
    recipes.insert(name == "dense" ? recipes.begin() : recipes.end(), parse_recipe(name, chosen));
  }
  return recipes;
}

/// Turns this rank's gradient into the mean over all ranks, in place. Hides the recipe's type, so that the
/// training loop is compiled once and only the compressor for every combination of policies.
using exchanger = std::function<gs::step_report(std::span<float>)>;

[[nodiscard]] inline exchanger dense_exchanger(communicator const& comm) {
  return [comm](std::span<float> gradient) {
    comm.all_reduce(gs::host{}, gradient, gs::reduction::sum);
    for (float& value : gradient) value /= static_cast<float>(comm.size());
    gs::step_report report;
    report.bytes_sent = report.bytes_received = report.bytes_dense = gradient.size_bytes();
    return report;
  };
}

/// Calls body(recipe) with the library's recipe of these names.
template <class Body>
[[nodiscard]] exchanger with_recipe(named_recipe const& recipe, options const& chosen, Body const& body) {
  auto const density = gs::warm_up{.initial = std::max(0.25, chosen.density),
                                   .final = chosen.density,
                                   .steps = static_cast<std::uint64_t>(chosen.warmup)};
  return std::visit(
      [&](auto selector, auto partitioner, auto residual) -> exchanger {
        if constexpr (!is_built<decltype(selector), decltype(partitioner), decltype(residual)>) {
          throw std::logic_error("train: parse_recipe() lets no such recipe pass");
        } else {
          auto full = gs::recipe{.density = density,
                                 .selector = selector,
                                 .partitioner = partitioner,
                                 .residual = residual,
                                 .dense = gs::dense_layers{.patterns = chosen.dense_layers, .up_to = 0}};
          return body(full);
        }
      },
      recipe.selector, recipe.partitioner, recipe.residual);
}

/// The same on a GPU: train/device.cu.
[[nodiscard]] exchanger device_exchanger(named_recipe const& recipe, options const& chosen, gs::layout const& layers,
                                         communicator const& comm);

[[nodiscard]] inline exchanger make_exchanger(named_recipe const& recipe, options const& chosen,
                                              gs::layout const& layers, communicator const& comm) {
  if (recipe.dense) return dense_exchanger(comm);
#if defined(GRADSIEVE_EXAMPLE_CUDA)
  if (chosen.space == "device") return device_exchanger(recipe, chosen, layers, comm);
#endif
  return with_recipe(recipe, chosen, [&](auto const& full) -> exchanger {
    using owner = decltype(gs::compressor{gs::host{}, layers, full});
    // std::function copies what it holds; a compressor is not for copying.
    auto reducer = std::make_shared<owner>(gs::host{.threads = chosen.threads}, layers, full);
    return [reducer, comm](std::span<float> gradient) { return reducer->exchange(comm, gradient); };
  });
}

}  // namespace example
