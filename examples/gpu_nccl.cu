// The same on GPUs: one rank a GPU of this machine, one thread a rank, over communicators that stay the user's.
#include <gradsieve/comm/nccl.cuh>
#include <gradsieve/cuda/compressor.cuh>

#include <thrust/device_vector.h>

#include <cstdint>
#include <iostream>
#include <thread>
#include <vector>

namespace gs = gradsieve;

// What a backward pass would leave: heavy-tailed, another one on every rank and in every step.
__global__ void backward(float* gradient, std::uint32_t n, std::uint32_t seed) {
  for (std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    std::uint32_t const mixed = (i * 2'654'435'761u) ^ (seed * 40'503u);
    float const x = static_cast<float>(mixed * 2'246'822'519u >> 8) * 0x1p-23f - 1;
    gradient[i] = x * x * x * x * x;
  }
}

void train(int gpu, ncclComm_t handle) {
  gs::throw_on_error(cudaSetDevice(gpu), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  gs::throw_on_error(cudaStreamCreate(&stream), "cudaStreamCreate");
  gs::device const where{stream};
  auto const comm = gs::nccl::communicator_ref{handle};

  auto const layers = gs::layout{{"embedding", 4'000'000}, {"fc.weight", 65'536}, {"fc.bias", 256}};
  auto const recipe = gs::recipe{.density = 0.001, .selector = gs::radix{}, .residual = gs::error_feedback{}};
  auto reducer = gs::compressor{where, layers, recipe};  // residual and scratch: here, once

  auto const n = static_cast<std::uint32_t>(layers.size());
  thrust::device_vector<float> gradient(n);
  for (std::uint32_t step = 0; step < 5; ++step) {
    backward<<<256, 256, 0, stream>>>(gradient.data().get(), n, 5 * static_cast<std::uint32_t>(gpu) + step);
    auto const report = reducer.exchange(comm, gradient);  // enqueued; gradient will be the averaged update
    if (comm.rank() == 0) std::cout << report << '\n';     // reading it waits for the step
  }
  where.synchronize();
  cudaStreamDestroy(stream);
}

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
  std::vector<ncclComm_t> handles(static_cast<std::size_t>(gpus));
  if (gpus == 0 || ncclCommInitAll(handles.data(), gpus, nullptr) != ncclSuccess) {
    std::cout << "NCCL finds no GPU here: nothing to show\n";
    return 77;  // ctest calls that skipped
  }
  std::vector<std::thread> ranks;
  for (int gpu = 0; gpu < gpus; ++gpu) ranks.emplace_back(train, gpu, handles[static_cast<std::size_t>(gpu)]);
  for (auto& each : ranks) each.join();
  for (auto const each : handles) ncclCommDestroy(each);
}
