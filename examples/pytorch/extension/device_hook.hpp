// Exchanges DDP's buckets on a GPU, in the order of a stream of its own.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <memory_resource>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "bucket_exchange.hpp"
#include "bucket_members.hpp"
#include "ddp_passes.hpp"
#include "device_memory.hpp"
#include "end_of_backward.hpp"
#include "process_group.hpp"
#include "profiled.hpp"

namespace example {

/// Torch's own pool of device memory, in the order of one stream.
class torch_memory final : public std::pmr::memory_resource {
 public:
  explicit torch_memory(c10::cuda::CUDAStream const& stream) : stream_{stream} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream_.stream());
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override {
    c10::cuda::CUDACachingAllocator::raw_delete(memory);
  }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }

  c10::cuda::CUDAStream stream_;
};

/// Buckets of one model on one GPU. start() only enqueues: the backward pass goes on in its stream meanwhile, and what
/// follows stream() sees the averaged bucket. Float, half and bfloat16 gradients, in place. Where DDP leaves the
/// gradients of parameters that no rank used, start() waits for the ranks to find out which. What fails in a backward
/// pass is thrown at its end.
/// @pre the process group works in stream order, as NCCL's does. threads: one call at a time.
class device_hook : public std::enable_shared_from_this<device_hook> {
 public:
  /// `reducer`: of the DDP whose hook this is.
  device_hook(std::shared_ptr<c10d::Reducer> const& reducer, peers_of<gs::device> peers,
              std::vector<at::Tensor> const& parameters, names const& parameter_names, compression chosen)
      : passes_{reducer},
        buckets_{parameters, chosen},
        device_{parameters.at(0).device()},
        stream_{c10::cuda::getStreamFromPool(true, device_.index())},
        memory_{stream_},
        exchange_{gs::device{stream_.stream(), &memory_}, std::move(peers), layout_of(parameters, parameter_names),
                  std::move(chosen)} {
    gs::throw_on_error(cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  device_hook(device_hook const&) = delete;
  device_hook& operator=(device_hook const&) = delete;
  ~device_hook() { cudaEventDestroy(ready_); }

  /// @throws outside of a backward pass what bucket_exchange does; std::invalid_argument for a bucket that is not of
  /// this GPU or not float.
  void start(c10d::GradBucket const& bucket) {
    named_range const range{bucket_range(bucket.getIndex())};
    bool const throws_later = at_end_of_backward([self = shared_from_this()] { self->throw_failure(); });
    try {
      exchange(bucket, throws_later);
    } catch (...) {
      if (!throws_later) throw;
      if (!failure_) failure_ = std::current_exception();
    }
  }

  [[nodiscard]] c10::cuda::CUDAStream stream() const noexcept { return stream_; }

  /// body(bucket_exchange); what it reads, it waits for.
  template <class Body>
  decltype(auto) between_steps(Body const& body) {
    c10::cuda::CUDAStreamGuard const guard{stream_};
    return body(exchange_);
  }

  /// See bucket_exchange; in the order of the current stream.
  void copy_residual(std::span<std::span<float> const> to) {
    auto const current = c10::cuda::getCurrentCUDAStream(device_.index());
    follow(current, stream_);
    between_steps([&](auto& exchange) { exchange.copy_residual(to); });
    follow(stream_, current);
  }

 private:
  /// What comes next in the second stream waits for what is in the first one.
  void follow(c10::cuda::CUDAStream const& first, c10::cuda::CUDAStream const& second) {
    gs::throw_on_error(cudaEventRecord(ready_, first.stream()), "cudaEventRecord");
    gs::throw_on_error(cudaStreamWaitEvent(second.stream(), ready_, 0), "cudaStreamWaitEvent");
  }

  void exchange(c10d::GradBucket const& bucket, bool in_backward) {
    switch (bucket.getBuffer().scalar_type()) {
      case at::kFloat:
        return exchange_as<float>(bucket, in_backward);
      case at::kHalf:
        return exchange_as<gs::float16>(bucket, in_backward);
      case at::kBFloat16:
        return exchange_as<gs::bfloat16>(bucket, in_backward);
      default:
        refuse(bucket.getBuffer());
    }
  }

  [[noreturn]] void refuse(at::Tensor const& buffer) const {
    throw std::invalid_argument("gradsieve: a bucket is " + std::string{toString(buffer.scalar_type())} + " on " +
                                buffer.device().str() + ", expected float, half or bfloat16 on " + device_.str());
  }

  template <class T>
  void exchange_as(c10d::GradBucket const& bucket, bool in_backward) {
    auto const& buffer = bucket.getBuffer();
    if (buffer.device() != device_ || !buffer.is_contiguous()) refuse(buffer);
    auto const about = buckets_.of(bucket, passes_, in_backward);
    if (about.begins) failure_ = nullptr;
    follow(c10::cuda::getCurrentCUDAStream(device_.index()), stream_);
    c10::cuda::CUDAStreamGuard const guard{stream_};
    std::span const values{static_cast<T*>(buffer.data_ptr()), static_cast<std::size_t>(buffer.numel())};
    exchange_.exchange(about.begins, values, about.members, about.use);
    c10::cuda::CUDACachingAllocator::recordStream(buffer.storage().data_ptr(), stream_);
  }

  void throw_failure() {
    if (failure_ && !passes_.under_way()) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  ddp_passes passes_;
  ddp_buckets buckets_;
  c10::Device device_;
  c10::cuda::CUDAStream stream_;
  torch_memory memory_;
  cudaEvent_t ready_ = nullptr;
  bucket_exchange<gs::device> exchange_;
  std::exception_ptr failure_;  // of this backward pass, the first
};

}  // namespace example
