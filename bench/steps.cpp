// The whole step: accumulate, select, emit, residual.
#include "networks.hpp"
#include "step_rows.hpp"

namespace bench {
namespace {

/// AdaComp at the densities that bins of 50 and 500 have in training; room for all they may ask for.
void add_adacomp(setting const& at, std::string const& name, std::uint32_t length) {
  gs::recipe<gs::adacomp, gs::layerwise> recipe{};
  recipe.density = 0.5;
  recipe.selector.bins = {.rules = {}, .otherwise = length};
  add_recipe<float>(name, recipe, at);
}

/// The first step ever: no residual, no hint.
template <class T, class Selector>
void add_cold(std::string const& selector_name, Selector selector, setting const& at) {
  add("cold/" + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density, .selector = selector};
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
    row<T>{state, at}.measure((8 + sizeof(T)) * at.n, [&](std::span<T const> gradient) {
      reducer.rescale(0.0f);  // forgets the residual and the hints
      return compress(reducer, gradient);
    });
  });
}

/// A step whose gradient lies in a buffer for each of ResNet-50's tensors, in turn with one whose gradient is flat.
void add_pieces(setting at) {
  at.n = std::min(at.n, resnet50_parameters);
  add("pieces/radix/" + at.name(), [=](benchmark::State& state) {
    gs::recipe const recipe{.density = at.density};
    gs::compressor flat{gs::host{at.threads}, resnet50_layout(at.n), recipe};
    gs::compressor split{gs::host{at.threads}, resnet50_layout(at.n), recipe};
    std::vector<std::vector<float>> buffers;
    for (auto const& each : resnet50_layers(at.n)) buffers.emplace_back(each.size);
    gs::pieces<float const> const gradient{buffers};
    row<float> row{state, at};
    std::vector<double> alone;
    auto const step = [&](std::span<float const> values) {
      auto from = values.begin();
      for (auto& each : buffers) {
        std::copy_n(from, each.size(), each.begin());
        from += static_cast<std::ptrdiff_t>(each.size());
      }
      alone.push_back(compress(flat, values));
      return seconds([&] { benchmark::DoNotOptimize(split.compress(gradient).indices.data()); });
    };
    settle(at, row.gradients, step);
    alone.clear();
    auto const time = row.measure(12 * at.n, step);
    row.count("flat_ratio", time / median(alone));
  });
}

/// A network's layers each with a budget of its own, in turn with all of them under one.
void add_layerwise(std::string const& network, std::vector<std::uint64_t> const& sizes, setting at) {
  at.n = std::min(at.n, parameters_of(sizes));
  add("layerwise/" + network + "/" + at.name(), [=](benchmark::State& state) {
    gs::recipe<gs::radix, gs::layerwise> by_layer{};
    gs::recipe<gs::radix> as_whole{};
    by_layer.density = as_whole.density = at.density;
    gs::compressor layered{gs::host{at.threads}, scaled_layout(sizes, at.n), by_layer};
    gs::compressor whole{gs::host{at.threads}, scaled_layout(sizes, at.n), as_whole};
    row<float> row{state, at};
    std::vector<double> alone;
    auto const step = [&](std::span<float const> gradient) {
      alone.push_back(compress(whole, gradient));
      return compress(layered, gradient);
    };
    settle(at, row.gradients, step);
    alone.clear();
    auto const time = row.measure(12 * at.n, step);
    row.count("whole_ratio", time / median(alone));
  });
}

void add_steps_with(setting const& at, bool all_selectors) {
  for_each_selector([&](std::string const& name, auto selector) {
    if (all_selectors || name == "radix" || name == "laplacian")
      with_dtype(at, [&](auto value) { add_step<decltype(value)>(name, selector, at); });
  });
}

}  // namespace

void add_steps(options const& chosen) {
  auto const with = [&](auto const& change, double density = 0.001) {
    auto at = usual(chosen, density);
    change(at);
    return at;
  };
  for (double const density : {0.001, 0.01, 0.1}) add_steps_with(usual(chosen, density), true);
  for (auto const* dtype : {"fp16", "bf16"}) add_steps_with(with([&](setting& at) { at.dtype = dtype; }), false);
  for (auto const* law : {"gauss", "student3", "equal", "two_values", "alternating"})
    add_steps_with(with([&](setting& at) { at.law = law; }), false);
  add_adacomp(usual(chosen, 0.1), "adacomp_50", 50);
  add_adacomp(usual(chosen, 0.01), "adacomp_500", 500);
  for (double const density : {0.001, 0.01}) add_step<float>("chunked", gs::chunked{}, usual(chosen, density));
  add_cold<float>("radix", gs::radix{}, usual(chosen, 0.001));
  add_cold<float>("laplacian", gs::laplacian{}, usual(chosen, 0.001));
  add_step<float>("radix", gs::radix{}, with([](setting& at) { at.threads = 1; }));
  add_pieces(usual(chosen, 0.001));
  for (double const density : {0.001, 0.01}) {
    add_layerwise("resnet50", resnet50(), usual(chosen, density));
    add_layerwise("gpt2", gpt2(), usual(chosen, density));
  }
  for (int power = 12; std::uint64_t{1} << power <= chosen.n; power += 2)
    add_steps_with(with([&](setting& at) { at.n = std::uint64_t{1} << power; }), false);
  add_step<float>("radix", gs::radix{}, with([](setting& at) { at.n *= 4; }));
  for (double const density : {0.001, 0.01}) {  // a bucket of DDP's, and tensors that one thread takes
    for (std::uint64_t const n : {std::uint64_t{6'553'600}, std::uint64_t{1} << 20})
      if (n <= chosen.n) add_step<float>("radix", gs::radix{}, with([&](setting& at) { at.n = n; }, density));
    for (int const power : {12, 16, 18})
      if (std::uint64_t const n = std::uint64_t{1} << power; n <= chosen.n)
        add_step<float>("radix", gs::radix{},
                        with(
                            [&](setting& at) {
                              at.n = n;
                              at.threads = 1;
                            },
                            density));
  }
  if (!chosen.full) return;

  for (double const density : {0.0001, 0.001, 0.01, 0.1}) {
    for (int power = 12; power <= 27; ++power)
      add_steps_with(with([&](setting& at) { at.n = std::uint64_t{1} << power; }, density), true);
    for (auto const* law : {"laplace", "gauss", "student3", "equal", "two_values", "alternating"})
      for (auto const* dtype : {"fp32", "fp16", "bf16"})
        for (int const threads : {1, chosen.threads})
          add_steps_with(with(
                             [&](setting& at) {
                               at.n = std::min(at.n, std::uint64_t{1} << 22);
                               at.law = law;
                               at.dtype = dtype;
                               at.threads = threads;
                             },
                             density),
                         true);
  }
}

}  // namespace bench
