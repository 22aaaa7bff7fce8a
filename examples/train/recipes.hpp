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

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/parameters.hpp>
#include <gradsieve/run_time.hpp>

#include "../communicator.hpp"
#include "options.hpp"

namespace example {

// On the host selectors without bins and both parts of a codec are chosen at run time, by the library's own types for
// that: so a compressor is compiled for each partitioner and residual, and not for every recipe and codec too.
#if defined(GRADSIEVE_EXAMPLE_CUDA)
inline constexpr bool chosen_at_run_time = false;
#else
inline constexpr bool chosen_at_run_time = true;
#endif
using run_time_selector =
    gs::any_selector<gs::radix, gs::hierarchical, gs::laplacian, gs::trimmed, gs::threshold_search, gs::ldte, gs::sidco,
                     gs::one_sign, gs::random_k, gs::fixed_threshold>;
using run_time_indices =
    gs::any_indices<gs::automatic, gs::raw32, gs::delta, gs::elias_fano, gs::bitmap, gs::fixed_width>;
using run_time_values = gs::any_values<gs::fp32, gs::fp16, gs::bf16, gs::int8, gs::int4, gs::int2, gs::ternary,
                                       gs::sign, gs::sbc, gs::qsgd, gs::automatic_values>;

/// Whether it has that with other codecs than coo, too: with those that fit. A device has them for selectors with bins.
template <class Selector, class Partitioner, class Residual>
constexpr bool has_codecs() {
  return std::is_same_v<Residual, gs::error_feedback> && (gs::bin_selector<Selector> || chosen_at_run_time);
}

/// Without policies: plain all-reduce.
struct named_recipe {
  std::string name;
  std::optional<named_policies> policies;
  std::string codec = "coo";

  /// The share of what was not sent that the memory takes over in a step: 1 with error feedback; 0 where accumulators
  /// are not memory + gradient.
  [[nodiscard]] double memory_share() const {
    if (!policies) return 0;
    if (auto const* const filter = std::get_if<gs::filtered>(&policies->residual))
      return static_cast<double>(filter->beta);
    return std::holds_alternative<gs::error_feedback>(policies->residual) ? 1 : 0;
  }
  [[nodiscard]] bool carries_momentum() const { return policies && policies->carries_momentum(); }
  [[nodiscard]] bool has_bins() const {
    return policies && policies->visit([](auto s, auto, auto) { return gs::bin_selector<decltype(s)>; });
  }
  [[nodiscard]] bool coded() const {
    return policies &&
           policies->visit([](auto s, auto p, auto r) { return has_codecs<decltype(s), decltype(p), decltype(r)>(); });
  }
};

/// Codecs that deft, cyclic and micro are built with: they send indices and values apart.
inline names const separable_codec_names{"coo", "packed", "fp16", "bf16"};

/// packed with an index or a value codec of this name, where the other part is the default.
[[nodiscard]] inline gs::packed<run_time_indices, run_time_values> run_time_codec(std::string const& name) {
  gs::packed<run_time_indices, run_time_values> made;
  auto const take = [&](auto& part, auto codec) {
    if (name == codec.name) part.chosen = codec;
  };
  [&]<class... Types>(std::variant<Types...> const&) { (take(made.indices, Types{}), ...); }(made.indices.chosen);
  [&]<class... Types>(std::variant<Types...> const&) { (take(made.values, Types{}), ...); }(made.values.chosen);
  return made;
}

/// The codecs by their names, of those that go with the selector and the exchange. A device has no `binned`.
template <class Space, class Selector, class Exchange, class Body>
[[nodiscard]] auto with_codec(std::string const& name, Body const& body) {
  if constexpr (std::is_same_v<Space, gs::host> && gs::bin_selector<Selector>)
    if (name == "binned") return body(gs::binned{});
  if (name == "coo") return body(gs::coo{});
  if constexpr (!chosen_at_run_time) {
    return body(gs::packed<gs::fixed_width, gs::fp32>{});
  } else if constexpr (Exchange::traits.encodes) {
    return body(run_time_codec(name));
  } else {  // it sums values, so that their codec is compiled
    if (name == "fp16") return body(gs::packed<gs::automatic, gs::fp16>{});
    if (name == "bf16") return body(gs::packed<gs::automatic, gs::bf16>{});
    return body(gs::packed<>{});
  }
}

/// What a name leaves open comes from --selector, --partitioner, --residual and --codec.
[[nodiscard]] inline named_recipe parse_recipe(std::string const& name, options const& chosen) {
  if (name == "dense") return {.name = name, .policies = {}};
  gs::deft const shares{
      .sharing = chosen.sharing == "by_layer" ? gs::deft_sharing::by_layer : gs::deft_sharing::by_fragment,
      .rotate_every = static_cast<std::uint64_t>(chosen.rotate_every)};
  named_recipe recipe{.name = name,
                      .policies = parse_policies(name, {.selector = chosen.selector,
                                                        .partitioner = chosen.partitioner,
                                                        .residual = chosen.residual,
                                                        .momentum = chosen.momentum,
                                                        .beta = chosen.beta,
                                                        .bins = static_cast<std::uint32_t>(chosen.bins),
                                                        .threshold = {.magnitude = static_cast<float>(chosen.threshold),
                                                                      .most = static_cast<float>(chosen.most)},
                                                        .deft = shares})};
  bool const on_device = chosen.space == "device";
  recipe.codec = "coo";
  if (recipe.policies->adapts() && recipe.coded()) recipe.codec = on_device ? "fixed_width" : "binned";
  if (!chosen.codec.empty()) recipe.codec = chosen.codec;
  if (recipe.codec == "binned" && on_device)
    throw usage_error(
        "--codec 'binned': on a device messages have a fixed size, so that it saves nothing: choose coo or "
        "fixed_width");
  if (recipe.codec != "coo" && !recipe.coded())
    throw usage_error("--codec '" + recipe.codec +
                      "': goes with error_feedback, in a build with CUDA with chunked and adacomp only; '" + name +
                      "' has coo");
  if (recipe.codec == "binned" && !recipe.has_bins())
    throw usage_error("--codec 'binned': goes with chunked and adacomp, whose bins it writes; not with '" + name + "'");
  if (recipe.policies->sums_values() && std::ranges::count(separable_codec_names, recipe.codec) == 0)
    throw usage_error("--codec '" + recipe.codec + "': '" + name + "' has " + joined(separable_codec_names));
  return recipe;
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
  require({"--bins"}, "adacomp", [](auto const& it) { return it.adapts(); });
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

template <class Selector>
[[nodiscard]] auto at_run_time(Selector const& selector) {
  if constexpr (gs::bin_selector<Selector> || !chosen_at_run_time) {
    return selector;
  } else {
    run_time_selector any;
    any.chosen = selector;
    return any;
  }
}

/// Calls body(recipe) with the library's recipe of these names, for a compressor in that space.
template <class Space, class Body>
[[nodiscard]] exchanger with_recipe(named_recipe const& recipe, options const& chosen, Body const& body) {
  auto const density = gs::warm_up{.initial = std::max(0.25, chosen.density),
                                   .final = chosen.density,
                                   .steps = static_cast<std::uint64_t>(chosen.warmup)};
  return recipe.policies->visit([&](auto selector, auto partitioner, auto residual) -> exchanger {
    auto const with = [&](auto codec) -> exchanger {
      auto full = gs::recipe{.density = density,
                             .selector = at_run_time(selector),
                             .partitioner = partitioner,
                             .residual = residual,
                             .codec = codec,
                             .passthrough = gs::passthrough_layers{.patterns = chosen.passthrough_layers, .up_to = 0}};
      if constexpr (std::is_same_v<decltype(selector), gs::adacomp>)
        full.density = gs::warm_up{.initial = 0.5, .final = 0.5};
      return body(full);
    };
    if constexpr (has_codecs<decltype(selector), decltype(partitioner), decltype(residual)>())
      return with_codec<Space, decltype(selector), typename decltype(partitioner)::default_exchange>(recipe.codec,
                                                                                                     with);
    else
      return with(gs::coo{});
  });
}

/// The same on a GPU: train/device.cu.
[[nodiscard]] exchanger device_exchanger(named_recipe const& recipe, options const& chosen, gs::layout const& layers,
                                         communicator const& comm);

[[nodiscard]] inline exchanger make_exchanger(named_recipe const& recipe, options const& chosen,
                                              gs::layout const& layers, communicator const& comm) {
  if (!recipe.policies) return dense_exchanger(comm);
#if defined(GRADSIEVE_EXAMPLE_CUDA)
  if (chosen.space == "device") return device_exchanger(recipe, chosen, layers, comm);
#endif
  return with_recipe<gs::host>(recipe, chosen, [&](auto const& full) -> exchanger {
    using owner = decltype(gs::compressor{gs::host{}, layers, full});
    // std::function copies what it holds; a compressor is not for copying.
    auto reducer = std::make_shared<owner>(gs::host{.threads = chosen.threads}, layers, full);
    exchanger made = [reducer, comm](std::span<float> gradient) { return reducer->exchange(comm, gradient); };
    if constexpr (owner::residual_type::states > 0)
      made.residual = [reducer]() -> std::span<float const> { return reducer->residual(); };
    return made;
  });
}

/// For optimisers that normalise: of parameters that each rank steps for itself, at first these.
[[nodiscard]] inline exchanger parameter_exchanger(named_recipe const& recipe, options const& chosen,
                                                   gs::layout const& layers, std::span<float const> own,
                                                   communicator const& comm) {
  return with_recipe<gs::host>(recipe, chosen, [&](auto const& full) -> exchanger {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(full.residual)>, gs::error_feedback>) {
      using owner = gs::parameter_exchange<decltype(gs::compressor{gs::host{}, layers, full})>;
      auto all = std::make_shared<owner>(gs::compressor{gs::host{.threads = chosen.threads}, layers, full}, own);
      exchanger made = [all, comm](std::span<float> parameters) { return all->exchange_parameters(comm, parameters); };
      made.common = [all] { return all->common(); };
      return made;
    } else {
      throw usage_error("--optimiser 'adamw': goes with error_feedback; not with '" + recipe.name + "'");
    }
  });
}

}  // namespace example
