// A thread that exchanges DDP's buckets while the backward pass goes on.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "bucket_exchange.hpp"
#include "process_group.hpp"

namespace example {

/// Buckets of one model, exchanged one after the other in the order of start(), which DDP keeps the same on all ranks.
/// threads: any; calls other than start() wait for the buckets that are under way.
class hook {
 public:
  /// Called once for a bucket, by this object's thread: with null, or with why it failed.
  using done = std::function<void(std::exception_ptr)>;

  /// `parameters`: those with gradients, in the model's order, and their names.
  hook(process_group group, std::vector<at::Tensor> const& parameters, names const& parameter_names, compression chosen)
      : exchange_{communicator{std::move(group)}, layout_of(parameters, parameter_names), std::move(chosen)} {
    for (std::size_t i = 0; i < parameters.size(); ++i) place_of_.emplace(parameters[i].unsafeGetTensorImpl(), i);
    thread_ = std::thread{[this] { communicate(); }};
  }
  hook(hook const&) = delete;
  hook& operator=(hook const&) = delete;

  /// Ends the bucket that is under way, if there is one; others are left.
  ~hook() {
    {
      std::scoped_lock const lock{mutex_};
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Begins to replace the bucket's buffer by the ranks' mean. Takes no time.
  void start(c10d::GradBucket const& bucket, done when_done) {
    auto const parameters = const_cast<c10d::GradBucket&>(bucket).getParameters();
    {
      std::scoped_lock const lock{mutex_};
      queue_.push_back({bucket.getIndex(), bucket.getBuffer(), parameters, std::move(when_done)});
    }
    changed_.notify_all();
  }

  /// body(bucket_exchange) when no bucket is under way.
  template <class Body>
  decltype(auto) between_steps(Body const& body) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return queue_.empty(); });
    return body(exchange_);
  }

 private:
  struct job {
    std::size_t index;
    at::Tensor buffer;
    std::vector<at::Tensor> parameters;
    done when_done;
  };

  [[nodiscard]] static gs::layout layout_of(std::vector<at::Tensor> const& parameters, names const& parameter_names) {
    std::vector<gs::layer> layers;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      layers.push_back({parameter_names.at(i), static_cast<std::uint64_t>(parameters[i].numel())});
    return gs::layout{std::move(layers)};
  }

  void communicate() noexcept {
    for (;;) {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (stopped_) return;
      job& next = queue_.front();  // stays where it is while others are added
      lock.unlock();
      std::exception_ptr failure;
      try {
        exchange(next);
      } catch (...) {
        failure = std::current_exception();
      }
      auto const when_done = std::move(next.when_done);
      lock.lock();
      queue_.pop_front();
      lock.unlock();
      changed_.notify_all();
      when_done(failure);
    }
  }

  void exchange(job const& next) {
    members_.clear();
    for (auto const& each : next.parameters) {
      auto const found = place_of_.find(each.unsafeGetTensorImpl());
      if (found == place_of_.end())
        throw std::invalid_argument("gradsieve: a bucket has a parameter that the model did not have at first");
      members_.push_back(found->second);
    }
    auto const& buffer = next.buffer;
    if (!buffer.device().is_cpu() || !buffer.is_contiguous())
      throw std::invalid_argument("gradsieve: a bucket lies on device " + buffer.device().str() +
                                  ", this extension was built for the CPU");
    auto const size = static_cast<std::size_t>(buffer.numel());
    switch (buffer.scalar_type()) {
      case at::kFloat:
        return run(next.index, std::span{static_cast<float*>(buffer.data_ptr()), size});
      case at::kHalf:
        return run(next.index, std::span{static_cast<gs::float16*>(buffer.data_ptr()), size});
      case at::kBFloat16:
        return run(next.index, std::span{static_cast<gs::bfloat16*>(buffer.data_ptr()), size});
      case at::kDouble:
        return run(next.index, std::span{static_cast<double*>(buffer.data_ptr()), size});
      default:
        throw std::invalid_argument("gradsieve: a bucket holds " + std::string{toString(buffer.scalar_type())} +
                                    ", expected float, half, bfloat16 or double");
    }
  }

  template <class T>
  void run(std::size_t index, std::span<T> bucket) {
    exchange_.exchange(index, bucket, members_);
  }

  bucket_exchange exchange_;  // of the thread while the queue holds anything
  std::unordered_map<c10::TensorImpl const*, std::size_t> place_of_;
  std::vector<std::size_t> members_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> queue_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace example
