// A compressor behind any_compressor, and the recipe of a choice by name.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "any_compressor.hpp"

namespace example {

/// `Peers`: the alternative of peers_of<Space> that this compressor exchanges with.
template <class Space, class Compressor, class Peers>
class erased final : public any_compressor<Space> {
 public:
  template <class... Arguments>
  explicit erased(Space where, gs::layout const& layers, Arguments const&... arguments)
      : compressor_{where, layers, arguments...} {}

  void exchange(peers_of<Space> const& peers, std::span<float> gradient, gs::skipped_layers skipped) override {
    run(peers, gradient, skipped);
  }
  void exchange(peers_of<Space> const& peers, std::span<gs::float16> gradient, gs::skipped_layers skipped) override {
    run(peers, gradient, skipped);
  }
  void exchange(peers_of<Space> const& peers, std::span<gs::bfloat16> gradient, gs::skipped_layers skipped) override {
    run(peers, gradient, skipped);
  }
  gs::step_report report() override {
    if constexpr (std::is_same_v<Space, gs::host>)
      return report_;
    else
      return compressor_.report().get();
  }
  void discard_step() override { compressor_.discard_step(); }
  void rescale(float factor) override { compressor_.rescale(factor); }
  double residual_norm() override { return own().residual_norm(); }
  std::span<float const> residual() override { return own().residual(); }
  std::vector<std::byte> state() override { return compressor_.state(); }
  void restore(std::span<std::byte const> bytes) override { compressor_.restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { own().absorb(bytes); }
  [[nodiscard]] gs::layout const& layers() const override { return compressor_.layers(); }

 private:
  /// What has this rank's residual.
  [[nodiscard]] auto& own() {
    if constexpr (requires { compressor_.part_compressor(); })
      return compressor_.part_compressor();
    else
      return compressor_;
  }

  template <class T>
  void run(peers_of<Space> const& peers, std::span<T> gradient, gs::skipped_layers skipped) {
    report_ = {};  // of a failed exchange there is none
    if constexpr (std::is_same_v<Space, gs::host>)
      report_ = compressor_.exchange(std::get<Peers>(peers), gradient, skipped);
    else if constexpr (std::is_same_v<T, float>)  // nvcc takes its time for each
      static_cast<void>(compressor_.exchange(std::get<Peers>(peers), gradient, skipped));
    else
      throw usage_error("on a device gradients are float");
  }

  Compressor compressor_;
  gs::step_report report_;
};

/// The compressor of a recipe for exchanges with all ranks alike.
template <class Space, class Recipe>
[[nodiscard]] std::unique_ptr<any_compressor<Space>> make_plain(Space where, gs::layout const& layers,
                                                                Recipe const& recipe) {
  using plain = erased<Space, gs::compressor<Space, Recipe>, communicator_of<Space>>;
  return std::make_unique<plain>(where, layers, recipe);
}

/// The compressor of a recipe for exchanges with such peers.
template <class Space, class Recipe>
[[nodiscard]] std::unique_ptr<any_compressor<Space>> make_erased(Space where, gs::layout const& layers,
                                                                 Recipe const& recipe, peers_of<Space> const& peers) {
  using of_nodes = erased<Space, gs::two_level_compressor<Space, Recipe>, nodes_of<Space>>;
  if (auto const* const nodes = std::get_if<nodes_of<Space>>(&peers))
    return std::make_unique<of_nodes>(where, layers, recipe, *nodes);
  return make_plain(where, layers, recipe);
}

/// The recipe of these policies, with what else is chosen.
template <class Selector, class Partitioner, class Residual, class Codec, class Exchange>
[[nodiscard]] gs::recipe<Selector, Partitioner, Residual, Codec, Exchange> recipe_of(
    compression const& chosen, Selector const& selector, Partitioner const& partitioner, Residual const& residual,
    Codec const& codec, Exchange const& exchange) {
  return {.density = chosen.policies.adapts() ? gs::warm_up{.initial = 0.5, .final = 0.5} : chosen.density,
          .selector = selector,
          .partitioner = partitioner,
          .residual = residual,
          .codec = codec,
          .exchange = exchange,
          .passthrough = gs::passthrough_layers{.patterns = chosen.passthrough, .up_to = chosen.up_to},
          .on_non_finite = chosen.on_non_finite == bad_values::skip ? gs::non_finite::skip : gs::non_finite::fail};
}

}  // namespace example
