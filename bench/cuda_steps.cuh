// A row of a whole step on a device: accumulate, select, emit, residual.
//
//   step/   as training sees it: after steps of error feedback, with what the step before has left as a hint
//   cold/   the same, but the hints are forgotten before each step, with rescale(1), which is not timed; it also takes
//           what was sent out of the residual, so that the pass, which does that almost for nothing, has less to do
#pragma once

#include <gradsieve/cuda.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_bench.cuh"

namespace bench {

/// Device memory that counts what it is asked for.
class counted final : public std::pmr::memory_resource {
 public:
  std::uint64_t allocations = 0;
  std::uint64_t bytes = 0;

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    ++allocations;
    bytes += size;
    return gs::cuda_memory_resource::instance()->allocate(size, alignment);
  }
  void do_deallocate(void* memory, std::size_t size, std::size_t alignment) override {
    gs::cuda_memory_resource::instance()->deallocate(memory, size, alignment);
  }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
};

/// What body() puts into the stream, as a CUDA graph.
class captured {
 public:
  template <class Body>
  void record(Body const& body) {
    cudaGraph_t graph = nullptr;
    gs::throw_on_error(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    body();
    gs::throw_on_error(cudaStreamEndCapture(stream(), &graph), "cudaStreamEndCapture");
    gs::throw_on_error(cudaGraphInstantiate(&ready_, graph, 0), "cudaGraphInstantiate");
    cudaGraphDestroy(graph);
  }
  captured() = default;
  captured(captured&&) = delete;
  ~captured() {
    if (ready_ != nullptr) cudaGraphExecDestroy(ready_);
  }
  void launch() const { gs::throw_on_error(cudaGraphLaunch(ready_, stream()), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t ready_ = nullptr;
};

/// How many entries there may be, in units of k, and whether nothing larger is left anywhere.
struct promise {
  double least = 1, most = 1;
  bool largest = true;
};

inline gs::layout layers_of(std::uint64_t n, std::uint64_t count) {
  std::vector<gs::layer> layers;
  for (std::uint64_t i = 0; i < count; ++i) layers.push_back({"layer", n * (i + 1) / count - n * i / count});
  return gs::layout{layers};
}

/// A row of compress().
template <class T, class Recipe>
void add_step(std::string const& family, std::string const& who, Recipe const& recipe, promise const& limits,
              setting const& at) {
  using stored = gs::stored_t<decltype(Recipe::residual)>;
  constexpr bool wide = std::is_same_v<stored, float>;
  add(family + "/" + who + "/" + at.name(), [=](benchmark::State& state) {
    bool const graph = at.run == "graph";
    bool const doubling = at.law == "doubling";
    counted memory;
    std::uint64_t const layers = std::is_same_v<decltype(Recipe::partitioner), gs::whole> ? 1 : 64;
    gs::compressor reducer{gs::device{stream(), &memory}, layers_of(at.n, layers), recipe};
    row<T> row{state, at};
    gs::cuda_buffer<T> fixed{gs::device{stream()}, graph || doubling ? at.n : 0};
    entries sent{};
    float gain = 1;
    auto const eager = [&](std::span<T const> gradient) {
      auto const selected = reducer.compress(gradient);
      sent = {selected.indices, selected.values, selected.count};
    };
    // Not timed. Hints that are wrong: the accumulator becomes twice as large in one step, half as large in the next.
    auto const prepare = [&](std::span<T const> gradient) -> std::span<T const> {
      if (family == "cold") reducer.rescale(1.0f);
      if constexpr (wide && std::is_same_v<T, float>)
        if (doubling) amplify(gradient, reducer.residual(), gain = gain == 1 ? -0.5f : 1.0f, fixed.span());
      if (graph) gs::device{stream()}.copy(std::as_bytes(gradient), std::as_writable_bytes(fixed.span()));
      return graph || doubling ? std::span<T const>{fixed.span()} : gradient;
    };
    row.settle([&](std::span<T const> gradient) { eager(prepare(gradient)); });
    captured replay;
    if (graph) replay.record([&] { eager(std::span<T const>{fixed.span()}); });
    auto const step = [&](std::span<T const> gradient) {
      if (graph) return replay.launch();
      eager(doubling ? std::span<T const>{fixed.span()} : gradient);
    };
    auto const before = memory.allocations;
    row.measure((2 * sizeof(stored) + sizeof(T)) * at.n, step, prepare, doubling ? 2 : 1);
    row.count("allocations", static_cast<double>(memory.allocations - before));
    row.count("memory_bytes", static_cast<double>(memory.bytes));

    auto const k = static_cast<double>(at.k());
    if constexpr (!wide) {  // the tests hold such a residual against a reference; here its count is looked at
      auto const selected = static_cast<double>(reducer.report().get().selected);
      if (selected < limits.least * k || selected > limits.most * k) row.fail_if("selected is not k");
      row.count("selected_per_k", selected / k);
      return;
    } else {
      audit check{at.n};
      auto const gradient = row.gradients.next();
      auto const effective = prepare(gradient);
      check.before(reducer.residual().data(), effective);
      auto const nonzero = static_cast<double>(check.nonzero());
      step(gradient);
      row.fail_if(check.after(
          sent, reducer.residual().data(), static_cast<std::uint64_t>(std::min(nonzero, std::floor(limits.least * k))),
          static_cast<std::uint64_t>(std::ceil(limits.most * k)) + (layers == 1 ? 0 : layers), limits.largest));
      row.count("selected_per_k", static_cast<double>(check.count()) / k);
    }
  });
}

}  // namespace bench
