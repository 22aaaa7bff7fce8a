// A compressor behind any_compressor, and the recipe of a choice by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "any_compressor.hpp"

namespace example {

template <class Space, class Compressor>
class erased final : public any_compressor<Space> {
 public:
  template <class Recipe>
  erased(Space where, gs::layout const& layers, Recipe const& recipe) : compressor_{where, layers, recipe} {}

  void exchange(communicator_of<Space> const& comm, std::span<float> gradient) override { run(comm, gradient); }
  void exchange(communicator_of<Space> const& comm, std::span<gs::float16> gradient) override { run(comm, gradient); }
  void exchange(communicator_of<Space> const& comm, std::span<gs::bfloat16> gradient) override { run(comm, gradient); }
  gs::step_report report() override {
    if constexpr (std::is_same_v<Space, gs::host>)
      return report_;
    else
      return compressor_.report().get();
  }
  void discard_step() override { compressor_.discard_step(); }
  void rescale(float factor) override { compressor_.rescale(factor); }
  double residual_norm() override { return compressor_.residual_norm(); }
  std::vector<std::byte> state() override { return compressor_.state(); }
  void restore(std::span<std::byte const> bytes) override { compressor_.restore(bytes); }
  void absorb(std::span<std::byte const> bytes) override { compressor_.absorb(bytes); }
  [[nodiscard]] gs::layout const& layers() const override { return compressor_.layers(); }

 private:
  template <class T>
  void run(communicator_of<Space> const& comm, std::span<T> gradient) {
    report_ = {};  // of a failed exchange there is none
    if constexpr (std::is_same_v<Space, gs::host>)
      report_ = compressor_.exchange(comm, gradient);
    else if constexpr (std::is_same_v<T, float>)  // nvcc takes its time for each
      static_cast<void>(compressor_.exchange(comm, gradient));
    else
      throw usage_error("on a device gradients are float");
  }

  Compressor compressor_;
  gs::step_report report_;
};

/// body(gs::recipe) of what is chosen, with codec_for(partitioner).
template <class CodecFor, class Body>
auto with_recipe(compression const& chosen, CodecFor const& codec_for, Body const& body) {
  return chosen.policies.visit([&](auto selector, auto partitioner, auto residual) {
    auto recipe = gs::recipe{
        .density =
            gs::warm_up{.initial = std::max(0.25, chosen.density), .final = chosen.density, .steps = chosen.warmup},
        .selector = selector,
        .partitioner = partitioner,
        .residual = residual,
        .codec = codec_for(partitioner),
        .passthrough = gs::passthrough_layers{.patterns = chosen.passthrough, .up_to = 0},
        .on_non_finite = chosen.on_non_finite == bad_values::skip ? gs::non_finite::skip : gs::non_finite::fail};
    if constexpr (std::is_same_v<decltype(selector), gs::adacomp>)
      recipe.density = gs::warm_up{.initial = 0.5, .final = 0.5};
    return body(recipe);
  });
}

}  // namespace example
