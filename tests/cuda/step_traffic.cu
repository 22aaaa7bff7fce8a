// Warm steps of one recipe, for a launcher that counts what kernels do: check_traffic.cmake.
//   step_traffic ELEMENTS_LOG2 DENSITY STEPS compress|coo|fixed_width
//   step_traffic ELEMENTS_LOG2 DENSITY STEPS compress_nodes|coo_nodes   says after them what a graph of one more has
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/cuda.cuh>

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

template <class Codec>
void run(std::uint64_t n, double density, int steps, what const does, Codec const& codec) {
  cudaStream_t stream{};
  gs::throw_on_error(cudaStreamCreate(&stream), "cudaStreamCreate");
  gs::device const where{stream};
  gs::compressor compressor{where, gs::layout::flat(n), gs::recipe{.density = density, .codec = codec}};
  gs::cuda_buffer<float> const gradient{where, n};
  std::vector<float> values(n);
  auto const enqueue = [&] {
    if (does.exchange)
      compressor.exchange(gs::self{}, gradient.span());
    else
      (void)compressor.compress(gradient.span());
  };
  for (int step = 0; step < steps; ++step) {
    for (std::uint64_t i = 0; i < n; ++i) {  // Laplace
      auto const bits = gs::mix(gs::mix(static_cast<std::uint64_t>(step)) + i);
      float const size = -std::log(static_cast<float>((bits >> 40) + 1) * 0x1p-24f);
      values[i] = (bits & 1) != 0 ? size : -size;
    }
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

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  std::uint64_t const n = std::uint64_t{1} << std::atoi(arguments[1]);
  double const density = std::atof(arguments[2]);
  int const steps = std::atoi(arguments[3]);
  std::string const chosen = arguments[4];
  what const does{!chosen.starts_with("compress"), chosen.ends_with("nodes")};
  if (chosen == "fixed_width")
    run(n, density, steps, does, gs::packed<gs::fixed_width, gs::fp16>{});
  else
    run(n, density, steps, does, gs::coo{});
}
