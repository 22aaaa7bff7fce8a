// What device tests share: memory that is poisoned and counted, copies both ways, and a compressor on each side.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>

#include "steps.hpp"

namespace gpu {

namespace gs = gradsieve;

/// Device memory that is full of NaNs at first; counts what is taken.
class poisoned_memory final : public std::pmr::memory_resource {
 public:
  std::uint64_t allocations = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++allocations;
    void* const memory = gs::cuda_memory_resource::instance()->allocate(bytes, alignment);
    gs::throw_on_error(cudaMemset(memory, 0xFF, bytes), "cudaMemset");
    gs::throw_on_error(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other streams do not wait for this one
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    gs::cuda_memory_resource::instance()->deallocate(memory, bytes, alignment);
  }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
};

/// A stream of its own.
class stream {
 public:
  stream() { gs::throw_on_error(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { cudaStreamDestroy(handle_); }
  operator cudaStream_t() const noexcept { return handle_; }  // NOLINT

 private:
  cudaStream_t handle_ = nullptr;
};

/// A captured graph, launched as often as wanted.
class graph {
 public:
  template <class Body>
  graph(cudaStream_t stream, Body const& body) : stream_{stream} {
    gs::throw_on_error(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    body();
    gs::throw_on_error(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    gs::throw_on_error(cudaGraphInstantiate(&ready_, graph_, 0), "cudaGraphInstantiate");
  }
  graph(graph const&) = delete;
  graph& operator=(graph const&) = delete;
  ~graph() {
    cudaGraphExecDestroy(ready_);
    cudaGraphDestroy(graph_);
  }
  void launch() const { gs::throw_on_error(cudaGraphLaunch(ready_, stream_), "cudaGraphLaunch"); }
  [[nodiscard]] std::size_t nodes() const {
    std::size_t count = 0;
    gs::throw_on_error(cudaGraphGetNodes(graph_, nullptr, &count), "cudaGraphGetNodes");
    return count;
  }
  [[nodiscard]] std::size_t kernels() const {
    std::size_t count = nodes();
    std::vector<cudaGraphNode_t> all(count);
    gs::throw_on_error(cudaGraphGetNodes(graph_, all.data(), &count), "cudaGraphGetNodes");
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](cudaGraphNode_t node) {
      cudaGraphNodeType type{};
      gs::throw_on_error(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
      return type == cudaGraphNodeTypeKernel;
    }));
  }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
};

/// Device memory on a stream; `offset` elements of slack in front put it on a worse alignment.
template <class T>
class array {
 public:
  array(gs::device where, std::uint64_t size, std::uint64_t offset = 0)
      : where_{where}, offset_{offset}, memory_(where, size + offset) {}
  array(gs::device where, std::vector<T> const& values, std::uint64_t offset = 0)
      : array(where, values.size(), offset) {
    put(values);
  }

  [[nodiscard]] std::span<T> span() const { return memory_.span().subspan(offset_); }
  operator std::span<T>() const { return span(); }  // NOLINT

  void put(std::vector<T> const& values) const {
    where_.copy(std::as_bytes(std::span{values}), std::as_writable_bytes(span()));
    where_.synchronize();
  }
  [[nodiscard]] std::vector<T> get() const {
    std::vector<T> values(span().size());
    where_.copy(std::as_bytes(span()), std::as_writable_bytes(std::span{values}));
    where_.synchronize();
    return values;
  }

 private:
  gs::device where_;
  std::uint64_t offset_;
  gs::cuda_buffer<T> memory_;
};

template <class T>
std::vector<T> fetched(gs::device where, T const* from, std::uint64_t count) {
  std::vector<T> values(count);
  where.copy(std::as_bytes(std::span{from, count}), std::as_writable_bytes(std::span{values}));
  where.synchronize();
  return values;
}

/// What a device selection holds, on the host.
struct entries {
  std::vector<gs::index_type> indices;
  std::vector<float> values;
  std::vector<float> passthrough;

  entries(gs::device where, gs::device_selection const& from) {
    auto const count = fetched(where, from.count, 1)[0];
    REQUIRE(count <= from.capacity);
    indices = fetched(where, from.indices, count);
    values = fetched(where, from.values, count);
    passthrough = fetched(where, from.passthrough.data(), from.passthrough.size());
  }
  explicit entries(gs::selection_view from)
      : indices{from.indices.begin(), from.indices.end()},
        values{from.values.begin(), from.values.end()},
        passthrough{from.passthrough.begin(), from.passthrough.end()} {}

  friend bool operator==(entries const& a, entries const& b) {
    return a.indices == b.indices && steps::same_bits(a.values, b.values) &&
           steps::same_bits(a.passthrough, b.passthrough);
  }
};

/// Blocks of a search, GRADSIEVE_TEST_BLOCKS; else as many as the size asks for, which for small ones is one.
inline std::uint32_t search_blocks() {
  char const* const given = std::getenv("GRADSIEVE_TEST_BLOCKS");
  return given == nullptr ? 0u : static_cast<std::uint32_t>(std::atoi(given));
}

/// Runs both spaces over the same gradients; true if every entry, and the states in the end, have the same bits.
/// `make(step)` gives the gradient of a step as floats.
template <class T = float, class Recipe, class Make>
bool same_as_host(Recipe const& recipe, gs::layout const& layers, std::uint64_t count, Make const& make,
                  std::uint64_t misalign = 0) {
  stream const own;
  poisoned_memory memory;
  gs::device const where{own, &memory, search_blocks()};
  gs::compressor host{gs::host{}, layers, recipe};
  gs::compressor device{where, layers, recipe};
  array<T> const gradient{where, layers.size(), misalign};
  bool same = true;
  for (std::uint64_t step = 0; step < count; ++step) {
    auto const values = data::as<T>(make(step));
    gradient.put(values);
    entries const expected{host.compress(values)};
    entries const got{where, device.compress(gradient.span())};
    same = same && got == expected;
    CHECK(got.indices.size() == expected.indices.size());
    auto const report = device.report().get();
    same = same && report.selected == got.indices.size() && report.budget == host.report().budget &&
           report.non_finite == host.report().non_finite && report.saturated == host.report().saturated &&
           report.passthrough_elements == host.report().passthrough_elements &&
           (gs::detail::uses_candidates<decltype(recipe.selector)> || report.thresholds == host.report().thresholds);
  }
  return same && steps::same_bits(steps::states_of(device), steps::states_of(host)) &&
         device.residual_norm() == doctest::Approx(host.residual_norm()).epsilon(1e-12);
}

inline std::vector<unsigned char> no_layers(std::uint64_t) { return {}; }

/// Some steps on both sides, on ranks that are threads, staged through the host: every update, all states and what
/// reports agree on have the same bits. `make(rank, step)` gives the gradient of a rank and step as floats,
/// `skip(step)` the layers that it skips.
template <class T = float, class Recipe, class Make, class Skip = decltype(&no_layers)>
void same_on_ranks(Recipe const& recipe, gs::layout const& layers, int ranks, std::uint64_t count, Make const& make,
                   Skip const& skip = &no_layers) {
  auto const said = steps::on_ranks(ranks, [&](steps::communicator comm) {
    steps::findings found;
    stream const own;
    poisoned_memory memory;
    gs::device const where{own, &memory, search_blocks()};
    gs::staged const transport{comm};
    gs::compressor host{gs::host{.threads = 1}, layers, recipe};
    gs::compressor device{where, layers, recipe};
    array<T> const gradient{where, layers.size()};
    for (std::uint64_t step = 0; step < count; ++step) {
      auto expected = data::as<T>(make(comm.rank(), step));
      gradient.put(expected);
      auto const skipped = skip(step);
      auto const of_host = host.exchange(comm, std::span{expected}, skipped);
      gs::step_report const report = device.exchange(transport, gradient.span(), skipped);
      found.expect(steps::same_bits(gradient.get(), expected), "update of step " + std::to_string(step));
      found.expect(report.union_size == of_host.union_size, "union size");
      found.expect(report.passthrough_elements == of_host.passthrough_elements, "passthrough elements");
      found.expect(report.skipped_elements == of_host.skipped_elements, "skipped elements");
      found.expect(report.selected == of_host.selected, "selected");
      found.expect(report.saturated == of_host.saturated, "saturated");
      found.expect(report.budget == of_host.budget && report.world == ranks && report.staged, "report");
    }
    found.expect(steps::same_bits(steps::states_of(device), steps::states_of(host)), "states");
    return found.text();
  });
  for (auto const& each : said) CHECK(each == "");
}

/// The largest size of a test, as a power of two: GRADSIEVE_TEST_MOST, else 20.
inline unsigned most_bits() {
  char const* const given = std::getenv("GRADSIEVE_TEST_MOST");
  return given == nullptr ? 20u : static_cast<unsigned>(std::atoi(given));
}

}  // namespace gpu
