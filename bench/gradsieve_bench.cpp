// How near a step comes to the speed of memory. Every row times its job and, in turn with it, the floor: the bare
// accumulate loop on arrays of the same size with the same threads. floor_ratio is median over median.
//
//   gradsieve_bench [--full] [--threads=N] [Google Benchmark's options]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

#include "inputs.hpp"

namespace {

namespace gs = gradsieve;

struct setting {
  std::uint64_t n;
  double density;
  std::string law = "laplace";
  std::string dtype = "fp32";
  int threads;

  [[nodiscard]] std::string name() const {
    char text[32];
    std::snprintf(text, sizeof text, "%g", density);
    return "n:" + std::to_string(n) + "/density:" + text + "/law:" + law + "/dtype:" + dtype +
           "/threads:" + std::to_string(threads);
  }
};

/// Times `job` and the floor in turn, and reports medians.
template <class T>
void against_floor(benchmark::State& state, setting const& at, std::uint64_t bytes,
                   std::function<double(std::span<T const>)> const& job) {
  bench::gradient_source<T> gradients{at.law, at.n, at.threads};
  bench::floor_loop<T> floor{at.n, at.threads};
  for (int warm = 0; warm < 6; ++warm) {
    job(gradients.next());
    floor(gradients.next());
  }
  std::vector<double> jobs, floors;
  for (auto _ : state) {
    auto const gradient = gradients.next();
    floors.push_back(bench::seconds([&] { floor(gradient); }));
    jobs.push_back(job(gradients.next()));
    state.SetIterationTime(jobs.back());
  }
  double const time = bench::median(jobs);
  state.counters["median_ms"] = time * 1e3;
  state.counters["floor_ms"] = bench::median(floors) * 1e3;
  state.counters["floor_ratio"] = time / bench::median(floors);
  state.counters["ns_per_element"] = time * 1e9 / static_cast<double>(at.n);
  state.counters["GB_per_s"] = static_cast<double>(bytes) / time * 1e-9;
}

template <class Body>
void add(std::string const& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))->UseManualTime()->Unit(benchmark::kMillisecond);
}

/// The whole step: accumulate, select, emit, residual.
template <class T, class Selector>
void add_step(std::string const& selector_name, Selector selector, setting const& at) {
  add("step/" + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n),
                           gs::recipe{.density = at.density, .selector = selector}};
    against_floor<T>(state, at, (8 + sizeof(T)) * at.n, [&](std::span<T const> gradient) {
      return bench::seconds([&] { benchmark::DoNotOptimize(reducer.compress(gradient).indices.data()); });
    });
    auto const k = static_cast<double>(gs::budget_of(at.density, at.n));
    state.counters["selected_per_k"] = reducer.report().selected / k;
  });
}

/// The first step ever: no residual, no hint.
template <class T, class Selector>
void add_cold(std::string const& selector_name, Selector selector, setting const& at) {
  add("cold/" + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n),
                           gs::recipe{.density = at.density, .selector = selector}};
    against_floor<T>(state, at, (8 + sizeof(T)) * at.n, [&](std::span<T const> gradient) {
      reducer.rescale(0.0f);  // forgets the residual and the hints
      return bench::seconds([&] { benchmark::DoNotOptimize(reducer.compress(gradient).indices.data()); });
    });
  });
}

/// Selection alone, from an accumulator in memory.
template <class Selector>
void add_select(std::string const& selector_name, Selector selector, setting const& at) {
  add("select/" + selector_name + "/" + at.name(), [=](benchmark::State& state) {
    gs::host_workspace work{gs::host{at.threads}, at.n};
    auto const k = gs::budget_of(at.density, at.n);
    gs::segment const all{0, at.n, k};
    auto const capacity = gs::selection_capacity(selector, k);
    work.plan(std::span{&all, 1}, {}, capacity);
    gs::host_buffer<gs::index_type> indices(capacity);
    gs::host_buffer<float> values(capacity);
    std::uint64_t step = 0;
    against_floor<float>(state, at, 4 * at.n, [&](std::span<float const> accumulator) {
      return bench::seconds([&] {
        gs::cut_hint hint;
        gs::accumulator_ref const acc{accumulator, 0, 0, step++, &hint};
        gs::key_type const lower = gs::predicted_key(selector, work, acc, k);
        work.collect(accumulator, std::span{&lower, 1});
        benchmark::DoNotOptimize(gs::select(selector, work, acc, k, {indices.span(), values.span(), {}}));
      });
    });
  });
}

/// Names of selectors to (name, selector) calls.
template <class Body>
void for_each_selector(Body const& body) {
  body("radix", gs::radix{});
  body("laplacian", gs::laplacian{});
  body("laplacian_exact", gs::laplacian{.count = gs::count_mode::exact});
  body("hierarchical", gs::hierarchical{});
}

void add_steps(setting const& at, bool all_selectors) {
  for_each_selector([&](std::string const& name, auto selector) {
    if (!all_selectors && name != "radix" && name != "laplacian") return;
    if (at.dtype == "fp32") add_step<float>(name, selector, at);
    if (at.dtype == "fp16") add_step<gs::float16>(name, selector, at);
    if (at.dtype == "bf16") add_step<gs::bfloat16>(name, selector, at);
  });
}

void register_all(bool full, int threads) {
  auto const large = std::uint64_t{1} << 25;
  for (double const density : {0.001, 0.01, 0.1}) add_steps({large, density, "laplace", "fp32", threads}, true);
  for (auto const* dtype : {"fp16", "bf16"}) add_steps({large, 0.001, "laplace", dtype, threads}, false);
  for (auto const* law : {"gauss", "student3", "equal", "two_values", "alternating"})
    add_steps({large, 0.001, law, "fp32", threads}, false);
  add_cold<float>("radix", gs::radix{}, {large, 0.001, "laplace", "fp32", threads});
  for_each_selector([&](std::string const& name, auto selector) {
    for (double const density : {0.001, 0.01}) add_select(name, selector, {large, density, "laplace", "fp32", threads});
  });
  for (int power = 12; power <= (full ? 27 : 23); power += full ? 1 : 3)
    add_steps({std::uint64_t{1} << power, 0.001, "laplace", "fp32", threads}, full);
  if (!full) return;
  for (double const density : {0.0001, 0.001, 0.01, 0.1})
    for (auto const* law : {"laplace", "gauss", "student3", "equal"})
      for (auto const* dtype : {"fp32", "fp16", "bf16"})
        for (int const count : {1, threads}) add_steps({std::uint64_t{1} << 22, density, law, dtype, count}, true);
}

}  // namespace

int main(int argc, char** argv) {
  bool full = false;
  int threads = gs::host_team{0}.size();
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--full") == 0)
      full = true;
    else if (std::strncmp(argv[i], "--threads=", 10) == 0)
      threads = std::atoi(argv[i] + 10);
    else
      rest.push_back(argv[i]);
  }
  int count = static_cast<int>(rest.size());
  register_all(full, threads);
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
