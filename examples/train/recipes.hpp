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
#include <vector>

#include <gradsieve/gradsieve.hpp>

#include "../communicator.hpp"
#include "options.hpp"

namespace example {

/// Whether it has that with other codecs than coo, too: with those that fit.
template <class Selector, class Partitioner, class Residual>
constexpr bool has_codecs() {
#if defined(GRADSIEVE_EXAMPLE_CUDA)
  constexpr bool with_radix = false;
#else
  constexpr bool with_radix = (std::is_same_v<Selector, gs::radix> && !std::is_same_v<Partitioner, gs::layerwise>) ||
                              std::is_same_v<Selector, gs::one_sign>;
#endif
  return std::is_same_v<Residual, gs::error_feedback> && (gs::bin_selector<Selector> || with_radix);
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

/// The codecs by their names, of those that go with the selector and the exchange. A device has no `binned`.
template <class Space, class Selector, class Exchange, class Body>
[[nodiscard]] auto with_codec(std::string const& name, Body const& body) {
#if !defined(GRADSIEVE_EXAMPLE_CUDA)
  if (name == "packed") return body(gs::packed<>{});
  if (name == "fp16") return body(gs::packed<gs::automatic, gs::fp16>{});
  if (name == "bf16") return body(gs::packed<gs::automatic, gs::bf16>{});
  if constexpr (Exchange::encodes) {
    if (name == "raw32") return body(gs::packed<gs::raw32>{});
    if (name == "delta") return body(gs::packed<gs::delta>{});
    if (name == "elias_fano") return body(gs::packed<gs::elias_fano>{});
    if (name == "bitmap") return body(gs::packed<gs::bitmap>{});
    if (name == "int8") return body(gs::packed<gs::automatic, gs::int8>{});
    if (name == "int4") return body(gs::packed<gs::automatic, gs::int4>{});
    if (name == "int2") return body(gs::packed<gs::automatic, gs::int2>{});
    if (name == "ternary") return body(gs::packed<gs::automatic, gs::ternary>{});
    if (name == "sign") return body(gs::packed<gs::automatic, gs::sign>{});
    if (name == "sbc") return body(gs::packed<gs::automatic, gs::sbc>{});
    if (name == "qsgd") return body(gs::packed<gs::automatic, gs::qsgd>{});
    if (name == "automatic_values") return body(gs::packed<gs::automatic, gs::automatic_values>{});
  }
#endif
  if constexpr (Exchange::encodes) {
    if (name == "fixed_width") return body(gs::packed<gs::fixed_width, gs::fp32>{});
    if constexpr (std::is_same_v<Space, gs::host> && gs::bin_selector<Selector>)
      if (name == "binned") return body(gs::binned{});
  }
  return body(gs::coo{});
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
    throw usage_error(
        "--codec '" + recipe.codec +
        "': goes with chunked and adacomp, and but for a build with CUDA with one_sign, radix, radix+deft, "
        "radix+cyclic and radix+micro; '" +
        name + "' has coo");
  if (recipe.codec == "binned" && !recipe.has_bins())
    throw usage_error("--codec 'binned': goes with chunked and adacomp, whose bins it writes; not with '" + name + "'");
  if (recipe.policies->sums_values() && std::ranges::count(separable_codec_names, recipe.codec) == 0)
    throw usage_error("--codec '" + recipe.codec + "': '" + name + "' has " + joined(separable_codec_names));
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
/// Where there is one, `residual` gives what has not been sent.
struct exchanger : std::function<gs::step_report(std::span<float>)> {
  using function::function;
  std::function<std::span<float const>()> residual;
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

/// Calls body(recipe) with the library's recipe of these names, for a compressor in that space.
template <class Space, class Body>
[[nodiscard]] exchanger with_recipe(named_recipe const& recipe, options const& chosen, Body const& body) {
  auto const density = gs::warm_up{.initial = std::max(0.25, chosen.density),
                                   .final = chosen.density,
                                   .steps = static_cast<std::uint64_t>(chosen.warmup)};
  return recipe.policies->visit([&](auto selector, auto partitioner, auto residual) -> exchanger {
    auto const with = [&](auto codec) -> exchanger {
      auto full = gs::recipe{.density = density,
                             .selector = selector,
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

}  // namespace example
