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
using any_selector = std::variant<gs::radix, gs::hierarchical, gs::laplacian, gs::adacomp, gs::chunked>;
using any_partitioner = std::variant<gs::whole, gs::layerwise, gs::deft, gs::cyclic>;
using any_residual = std::variant<gs::none, gs::error_feedback, gs::momentum_correction, gs::filtered>;

/// Whether the program has a compressor of these policies. Each is compiled, so that there are all of the first three
/// selectors with the first three partitioners and residuals, and a few of the others.
template <class Selector, class Partitioner, class Residual>
constexpr bool is_built() {
  using namespace gs;
  constexpr bool plain = std::is_same_v<Residual, error_feedback>;
  if constexpr (std::is_same_v<Selector, adacomp>) return std::is_same_v<Partitioner, layerwise> && plain;
  if constexpr (std::is_same_v<Selector, chunked>) return std::is_same_v<Partitioner, whole> && plain;
  if constexpr (std::is_same_v<Partitioner, cyclic>)
    return (std::is_same_v<Selector, radix> && (plain || std::is_same_v<Residual, filtered>)) ||
           (std::is_same_v<Selector, laplacian> && plain);
  return !std::is_same_v<Residual, filtered>;
}

/// Whether it has that with every codec, too; else with coo alone.
template <class Selector, class Partitioner, class Residual>
constexpr bool has_codecs() {
#if defined(GRADSIEVE_EXAMPLE_CUDA)
  constexpr bool with_radix = false;
#else
  constexpr bool with_radix = std::is_same_v<Selector, gs::radix> && std::is_same_v<Partitioner, gs::whole>;
#endif
  return std::is_same_v<Residual, gs::error_feedback> && (gs::bin_selector<Selector> || with_radix);
}

struct named_recipe {
  std::string name;
  bool dense = false;  ///< plain all-reduce: the three policies below are not used
  any_selector selector;
  any_partitioner partitioner;
  any_residual residual;
  std::string codec = "coo";

  /// Momentum correction keeps the momentum in the compressor: the optimiser must not apply it again.
  [[nodiscard]] bool carries_momentum() const {
    return !dense && std::holds_alternative<gs::momentum_correction>(residual);
  }

  [[nodiscard]] bool coded() const {
    return std::visit([](auto s, auto p, auto r) { return has_codecs<decltype(s), decltype(p), decltype(r)>(); },
                      selector, partitioner, residual);
  }

  [[nodiscard]] bool built() const {
    return std::visit([](auto s, auto p, auto r) { return is_built<decltype(s), decltype(p), decltype(r)>(); },
                      selector, partitioner, residual);
  }
};

/// The codecs by their names. Those that need more than a name get it from the recipe.
template <class Body>
[[nodiscard]] auto with_codec(std::string const& name, gs::bin_lengths const& bins, Body const& body) {
#if !defined(GRADSIEVE_EXAMPLE_CUDA)
  if (name == "packed") return body(gs::packed<>{});
  if (name == "fp16") return body(gs::packed<gs::automatic, gs::fp16>{});
  if (name == "bf16") return body(gs::packed<gs::automatic, gs::bf16>{});
  if (name == "ternary") return body(gs::packed<gs::automatic, gs::ternary>{});
#endif
  if (name == "fixed_width") return body(gs::packed<gs::fixed_width, gs::fp32>{});
  if (name == "binned") return body(gs::binned{bins});
  return body(gs::coo{});
}

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
  bool const adaptive = std::holds_alternative<gs::adacomp>(recipe.selector);
  if (auto* const bins = std::get_if<gs::adacomp>(&recipe.selector)) {
    if (chosen.bins > 0) bins->bins = {.rules = {}, .otherwise = static_cast<std::uint32_t>(chosen.bins)};
    if (std::holds_alternative<gs::whole>(recipe.partitioner)) recipe.partitioner = gs::layerwise{};
  }
  if (!recipe.built())
    throw usage_error("--compare '" + name +
                      "': cyclic and filtered are in radix+cyclic, laplacian+cyclic and radix+cyclic+filtered only; "
                      "adacomp and chunked stand alone");
  recipe.codec = !chosen.codec.empty() ? chosen.codec : adaptive && recipe.coded() ? "binned" : "coo";
  if (recipe.codec != "coo" && !recipe.coded())
    throw usage_error("--codec '" + recipe.codec +
                      "': goes with chunked and adacomp, and but for a build with CUDA with " + "radix; '" + name +
                      "' has coo");
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
        if constexpr (!is_built<decltype(selector), decltype(partitioner), decltype(residual)>()) {
          throw std::logic_error("train: parse_recipe() lets no such recipe pass");
        } else {
          auto const with = [&](auto codec) -> exchanger {
            auto full = gs::recipe{.density = density,
                                   .selector = selector,
                                   .partitioner = partitioner,
                                   .residual = residual,
                                   .codec = codec,
                                   .dense = gs::dense_layers{.patterns = chosen.dense_layers, .up_to = 0}};
            if constexpr (std::is_same_v<decltype(selector), gs::adacomp>)
              full.density = gs::warm_up{.initial = 0.5, .final = 0.5};
            return body(full);
          };
          gs::bin_lengths bins;
          if constexpr (std::is_same_v<decltype(selector), gs::adacomp>) bins = selector.bins;
          if constexpr (has_codecs<decltype(selector), decltype(partitioner), decltype(residual)>())
            return with_codec(recipe.codec, bins, with);
          else
            return with(gs::coo{});
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
