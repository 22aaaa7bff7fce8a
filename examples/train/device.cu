// Gradients compressed on a GPU: the batch stays on the host, gradient and step are on the device.
#include <memory>
#include <span>

#include <gradsieve/run_time.cuh>

#include "recipes.hpp"

namespace example {

exchanger device_exchanger(named_recipe const& recipe, gs::layout const& layers, communicator const& comm) {
  struct worker {
    gs::device where;
    gs::any_compressor<menu, gs::device> reducer;
    gs::any_communicator_of<gs::device> transport;  // the workers' threads or MPI ranks, through page-locked memory
    gs::cuda_buffer<float> gradient;
  };
  cudaStream_t stream = nullptr;  // one a worker, for the life of the program
  gs::throw_on_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  gs::device const where{stream};
  auto const one = std::shared_ptr<worker>(new worker{where,
                                                      {where, layers, *recipe.policies},
                                                      gs::any_communicator_of<gs::device>{gs::staged{comm}},
                                                      gs::cuda_buffer<float>{where, layers.size()}});
  return [one](std::span<float> gradient) {
    auto const on_device = one->gradient.span();
    one->where.copy(std::as_bytes(gradient), std::as_writable_bytes(on_device));
    gs::step_report const report = one->reducer.exchange(one->transport, on_device);
    one->where.copy(std::as_bytes(on_device), std::as_writable_bytes(gradient));
    one->where.synchronize();
    return report;
  };
}

}  // namespace example
