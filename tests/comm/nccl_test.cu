// comm/nccl.cuh with NCCL itself: one rank a GPU of this machine, one thread a rank. Skipped where NCCL finds no GPU.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gradsieve/comm/nccl.cuh>

#include "on_device.cuh"

namespace gs = gradsieve;
using comm_conformance::at;

TEST_CASE("nccl does what every communicator must, on the GPUs of this machine") {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) gpus = 0;
  std::vector<ncclComm_t> handles(at(gpus));
  if (auto const code = gpus == 0 ? ncclSystemError : ncclCommInitAll(handles.data(), gpus, nullptr);
      code != ncclSuccess) {
    std::printf("skipped: NCCL has no GPU here (%s: %s)\n", ncclGetErrorString(code), ncclGetLastError(nullptr));
    std::exit(77);
  }
  std::vector<std::string> said(at(gpus));
  std::vector<std::thread> ranks;
  for (int r = 0; r < gpus; ++r)
    ranks.emplace_back([&, r] {
      cudaStream_t stream = nullptr;
      gs::throw_on_error(cudaSetDevice(r), "cudaSetDevice");
      gs::throw_on_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      gs::nccl::communicator_ref const comm{handles[at(r)]};
      said[at(r)] = comm.rank() != r || comm.size() != gpus
                        ? "another rank or size"
                        : comm_conformance::run(on_device{comm, gs::device{stream}});
      cudaStreamDestroy(stream);
    });
  for (auto& each : ranks) each.join();
  for (auto const& each : said) CHECK(each == "");
  for (auto const each : handles) CHECK(ncclCommDestroy(each) == ncclSuccess);
}
