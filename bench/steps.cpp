// The whole step: accumulate, select, emit, residual.
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
