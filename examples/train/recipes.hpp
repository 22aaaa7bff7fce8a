// What to train with, and a recipe to the function that exchanges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <gradsieve/parameters.hpp>
#include <gradsieve/run_time.hpp>

#include "../recipes.hpp"
#include "communicator.hpp"
#include "options.hpp"

namespace example {

/// Without policies: plain all-reduce.
struct named_recipe {
  std::string name;
  std::optional<any_recipe> policies;

  /// The share of what was not sent that the memory takes over in a step: 1 with error feedback; 0 where accumulators
  /// are not memory + gradient.
  [[nodiscard]] double memory_share() const {
    if (!policies) return 0;
    if (auto const* const filter = std::get_if<gs::filtered>(&policies->residual))
      return static_cast<double>(filter->beta);
    return std::holds_alternative<gs::error_feedback>(policies->residual) ? 1 : 0;
  }
  [[nodiscard]] bool carries_momentum() const { return policies && example::carries_momentum(*policies); }
};

/// Sets the codec: coo, binned, or packed with an index or a value codec of this name, where the other part is the
/// default. @throws usage_error where it does not go with the other policies.
inline void set_codec(any_recipe& recipe, std::string const& codec, std::string const& name, bool on_device) {
  if (codec == "binned" && on_device)
    throw usage_error(
        "--codec 'binned': on a device messages have a fixed size, so that it saves nothing: choose coo or "
        "elias_fano");
  bool const has_bins =
      std::visit([]<class S>(S const&) { return gs::bin_selector<S>; }, recipe.selector);
  if (codec == "binned" && !has_bins)
    throw usage_error("--codec 'binned': goes with chunked and adacomp, whose bins it writes; not with '" + name + "'");
  recipe.codec = codec == "coo"      ? gs::codec_kind::coo
                 : codec == "binned" ? gs::codec_kind::binned
                                     : gs::codec_kind::packed;
  if (on_device) recipe.indices = gs::elias_fano{};
  if (recipe.codec == gs::codec_kind::packed && codec != "packed" &&
      !gs::recipe_text::read_one_of(menu::indices{}, {codec, {}}, recipe.indices))
    static_cast<void>(gs::recipe_text::read_one_of(menu::values{}, {codec, {}}, recipe.values));
  if (sums_values(recipe) && !recipe.coded().sends_apart())
    throw usage_error("--codec '" + codec + "': '" + name +
                      "' sums up values, so that its codec is coo, or has fp32, fp16 or bf16");
}

/// Sets the numbers of policies that have any.
inline void set_options(any_recipe& recipe, options const& chosen) {
  if (auto* const correction = std::get_if<gs::momentum_correction>(&recipe.residual))
    correction->momentum = static_cast<float>(chosen.momentum);
  if (auto* const filter = std::get_if<gs::filtered>(&recipe.residual)) filter->beta = static_cast<float>(chosen.beta);
  if (auto* const shares = std::get_if<gs::deft>(&recipe.partitioner)) {
    shares->sharing = chosen.sharing == "by_layer" ? gs::deft_sharing::by_layer : gs::deft_sharing::by_fragment;
    shares->rotate_every = static_cast<std::uint64_t>(chosen.rotate_every);
  }
  if (auto* const hard = std::get_if<gs::fixed_threshold>(&recipe.selector))
    *hard = {.magnitude = static_cast<float>(chosen.threshold), .most = static_cast<float>(chosen.most)};
  auto* const bins = std::get_if<gs::adacomp>(&recipe.selector);
  if (bins && chosen.bins > 0) bins->bins = {.rules = {}, .otherwise = static_cast<std::uint32_t>(chosen.bins)};
  recipe.passthrough = {.patterns = chosen.passthrough_layers, .up_to = 0};
  recipe.density = gs::warm_up{.initial = std::max(0.25, chosen.density),
                               .final = chosen.density,
                               .steps = static_cast<std::uint64_t>(chosen.warmup)};
  if (adapts(recipe)) recipe.density = 0.5;
}

/// What a name leaves open comes from --selector, --partitioner, --residual and --codec.
[[nodiscard]] inline named_recipe parse_recipe(std::string const& name, options const& chosen) {
  if (name == "dense") return {.name = name, .policies = {}};
  auto const open = parse_policies(joined({chosen.selector, chosen.partitioner, chosen.residual}, "+"), {}, false);
  auto recipe = parse_policies(name, open);
  set_options(recipe, chosen);
  bool const on_device = chosen.space == "device";
  auto const usual = !adapts(recipe) ? "coo" : on_device ? "elias_fano" : "binned";
  set_codec(recipe, chosen.codec.empty() ? usual : chosen.codec, name, on_device);
  return {.name = name, .policies = recipe};
}

/// @throws usage_error for an option of a policy that no recipe has.
inline void check_given(options const& chosen, std::vector<named_recipe> const& recipes) {
  auto const any = [&](auto const& has) {
    return std::ranges::any_of(recipes, [&](auto const& each) { return each.policies && has(*each.policies); });
  };
  auto const require = [&](names const& of_policy, char const* policy, auto const& has) {
    for (auto const& option : of_policy)
      if (std::ranges::count(chosen.given, option) > 0 && !any(has))
        throw usage_error(option + " is of " + policy + ", which no recipe here has");
  };
  require({"--bins"}, "adacomp", [](auto const& it) { return adapts(it); });
  require({"--threshold", "--most"}, "fixed_threshold",
          [](auto const& it) { return std::holds_alternative<gs::fixed_threshold>(it.selector); });
  require({"--sharing", "--rotate-every"}, "deft",
          [](auto const& it) { return std::holds_alternative<gs::deft>(it.partitioner); });
  require({"--beta"}, "filtered", [](auto const& it) { return std::holds_alternative<gs::filtered>(it.residual); });
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
  check_given(chosen, recipes);
  return recipes;
}

/// Turns this rank's gradient into the mean over all ranks, in place. Hides the recipe's type, so that the
/// training loop is compiled once and only the compressor for every combination of policies.
/// Where there is one, `residual` gives what has not been sent. One that has `common` takes a rank's own parameters,
/// and exchanges what has changed in them.
struct exchanger : std::function<gs::step_report(std::span<float>)> {
  using function::function;
  std::function<std::span<float const>()> residual;
  std::function<std::span<float const>()> common;
};

[[nodiscard]] inline exchanger dense_exchanger(communicator const& comm) {
  return [comm](std::span<float> gradient) {
    comm.all_reduce(gs::host{}, gradient, gs::reduction::sum);
    for (float& value : gradient) value /= static_cast<float>(comm.size());
    gs::step_report report;
    report.bytes_sent = report.bytes_received = report.baseline_bytes = gradient.size_bytes();
    return report;
  };
}

/// The same on a GPU: train/device.cu.
[[nodiscard]] exchanger device_exchanger(named_recipe const& recipe, gs::layout const& layers,
                                         communicator const& comm);

[[nodiscard]] inline exchanger make_exchanger(named_recipe const& recipe, options const& chosen,
                                              gs::layout const& layers, communicator const& comm) {
  if (!recipe.policies) return dense_exchanger(comm);
#if defined(GRADSIEVE_EXAMPLE_CUDA)
  if (chosen.space == "device") return device_exchanger(recipe, layers, comm);
#endif
  // std::function copies what it holds; a compressor is not for copying.
  auto reducer =
      std::make_shared<gs::any_compressor<menu>>(gs::host{.threads = chosen.threads}, layers, *recipe.policies);
  exchanger made = [reducer, comm](std::span<float> gradient) { return reducer->exchange(comm, gradient); };
  made.residual = [reducer]() -> std::span<float const> { return reducer->residual(); };
  return made;
}

/// For optimisers that normalise: of parameters that each rank steps for itself, at first these.
[[nodiscard]] inline exchanger parameter_exchanger(named_recipe const& recipe, options const& chosen,
                                                   gs::layout const& layers, std::span<float const> own,
                                                   communicator const& comm) {
  if (!std::holds_alternative<gs::error_feedback>(recipe.policies->residual))
    throw usage_error("--optimiser 'adamw': goes with error_feedback; not with '" + recipe.name + "'");
  auto all = std::make_shared<gs::parameter_exchange<gs::any_compressor<menu>>>(
      gs::any_compressor{gs::host{.threads = chosen.threads}, layers, *recipe.policies}, own,
      gs::parameter_options{
          .momentum = gs::parameter_options::of_beta(static_cast<float>(chosen.momentum),
                                                     comm.size() > 1 ? chosen.density : 1.0)});
  exchanger made = [all, comm](std::span<float> parameters) { return all->exchange_parameters(comm, parameters); };
  made.common = [all] { return all->common(); };
  return made;
}

}  // namespace example
