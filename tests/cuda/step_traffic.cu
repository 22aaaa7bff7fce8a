// Warm steps of one recipe, for a launcher that counts what kernels do: check_traffic.cmake.
//   step_traffic ELEMENTS_LOG2 DENSITY STEPS compress|coo|elias_fano
//   step_traffic ELEMENTS_LOG2 DENSITY STEPS compress_nodes|coo_nodes   says after them what a graph of one more has
//   step_traffic ELEMENTS_LOG2 DENSITY SENDERS average|crowded   one average of the messages of so many senders; all
//                                                                of their entries in the first 4096 elements
//   step_traffic ELEMENTS_LOG2 SHARE STEPS delta   messages of weight deltas, encoded and applied
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>
#include <gradsieve/delta.cuh>

namespace gs = gradsieve;

namespace {

void print_nodes(cudaGraph_t graph) {
  std::size_t count = 0;
  gs::throw_on_error(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  gs::throw_on_error(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  int kernels = 0;
  int memsets = 0;
  for (auto const node : nodes) {
    cudaGraphNodeType type{};
    gs::throw_on_error(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    kernels += type == cudaGraphNodeTypeKernel;
    memsets += type == cudaGraphNodeTypeMemset;
  }
  std::printf("%d kernels, %d memsets, %d others\n", kernels, memsets, static_cast<int>(count) - kernels - memsets);
}

struct what {
  bool exchange = false;
  bool nodes = false;
};

std::vector<float> laplace_values(std::uint64_t n, int step) {
  std::vector<float> values(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const bits = gs::mix(gs::mix(static_cast<std::uint64_t>(step)) + i);
    float const size = -std::log(static_cast<float>((bits >> 40) + 1) * 0x1p-24f);
    values[i] = (bits & 1) != 0 ? size : -size;
  }
  return values;
}

/// Of messages whose entries lie in the first `inside` elements.
void average(std::uint64_t n, double density, int senders, std::uint64_t inside) {
  gs::device const where{};
  auto const layers = gs::layout::flat(n);
  std::vector<gs::cuda_buffer<std::byte>> memory;
  std::vector<std::span<std::byte const>> messages;
  for (int r = 0; r < senders; ++r) {
    gs::compressor sender{gs::host{}, layers, gs::recipe{.density = density}};
    auto values = laplace_values(n, r);
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(inside), values.end(), 0.0f);
    auto const bytes = sender.encode(sender.compress(std::span<float const>{values}));
    memory.emplace_back(where, bytes.size());
    where.copy(bytes, memory.back().span());
    where.synchronize();
    messages.push_back(memory.back().span());
  }
  gs::cuda_buffer<float> const gradient{where, n};
  gs::averager server{where, layers};
  server.apply(messages, gradient.span());
}

template <class Codec>
void run(std::uint64_t n, double density, int steps, what const does, Codec const& codec) {
  cudaStream_t stream{};
  gs::throw_on_error(cudaStreamCreate(&stream), "cudaStreamCreate");
  gs::device const where{stream};
  gs::compressor compressor{where, gs::layout::flat(n), gs::recipe{.density = density, .codec = codec}};
  gs::cuda_buffer<float> const gradient{where, n};
  auto const enqueue = [&] {
    if (does.exchange)
      compressor.exchange(gs::self{}, gradient.span());
    else
      (void)compressor.compress(gradient.span());
  };
  for (int step = 0; step < steps; ++step) {
    auto const values = laplace_values(n, step);
    where.copy(std::as_bytes(std::span{values}), std::as_writable_bytes(gradient.span()));
    enqueue();
    where.synchronize();
  }
  if (!does.nodes) return;
  gs::throw_on_error(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue();
  cudaGraph_t graph{};
  gs::throw_on_error(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  print_nodes(graph);
}

/// Of bfloat16 weights this share changes in each step: a message from a copy, and applied.
void delta(std::uint64_t n, double share, int steps) {
  gs::device const where{};
  auto const layers = gs::layout::flat(n);
  std::vector<gs::bfloat16> trained(n);
  gs::cuda_buffer<gs::bfloat16> const here{where, n}, weights{where, n};
  auto const put = [&](gs::cuda_buffer<gs::bfloat16> const& to) {
    where.copy(std::as_bytes(std::span{trained}), std::as_writable_bytes(to.span()));
    where.synchronize();
  };
  put(here);
  put(weights);
  gs::delta_encoder encoder{where, layers};
  gs::delta_decoder decoder{where, layers};
  encoder.keep(here.span());
  for (int step = 0; step < steps; ++step) {
    for (std::uint64_t i = 0; i < n; ++i)
      if (static_cast<double>(gs::mix(gs::mix(static_cast<std::uint64_t>(step)) + i) >> 32) < share * 0x1p32)
        trained[i].bits ^= 1;
    put(here);
    decoder.apply(encoder.encode(here.span()), weights.span());
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  std::uint64_t const n = std::uint64_t{1} << std::atoi(arguments[1]);
  double const density = std::atof(arguments[2]);
  int const steps = std::atoi(arguments[3]);
  std::string const chosen = arguments[4];
  what const does{!chosen.starts_with("compress"), chosen.ends_with("nodes")};
  if (chosen == "average")
    average(n, density, steps, n);
  else if (chosen == "crowded")
    average(n, density, steps, 4096);
  else if (chosen == "delta")
    delta(n, density, steps);
  else if (chosen == "elias_fano")
    run(n, density, steps, does, gs::packed<gs::elias_fano, gs::fp16>{});
  else
    run(n, density, steps, does, gs::coo{});
}
