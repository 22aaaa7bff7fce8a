// A thread that exchanges DDP's buckets while the backward pass goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "bucket_exchange.hpp"
#include "bucket_members.hpp"
#include "gradient_values.hpp"
#include "process_group.hpp"
#include "profiled.hpp"

namespace example {

/// Buckets of one model, exchanged one after the other in the order of start(), which DDP keeps the same on all ranks.
/// threads: any; calls other than start() wait for the buckets that are under way.
class hook {
 public:
  /// Called once for a bucket, by this object's thread: with null, or with why it failed.
  using done = std::function<void(std::exception_ptr)>;

  /// `parameters`: those with gradients, in the model's order, and their names.
  hook(peers_of<gs::host> peers, std::vector<at::Tensor> const& parameters, names const& parameter_names, int threads,
       compression chosen)
      : members_{parameters},
        exchange_{gs::host{.threads = threads}, std::move(peers), layout_of(parameters, parameter_names),
                  std::move(chosen)} {
    thread_ = std::thread{[this] { communicate(); }};
  }
  hook(hook const&) = delete;
  hook& operator=(hook const&) = delete;

  /// Waits for the bucket that is under way, if there is one, as long as the process group does; others are left.
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
    {
      std::scoped_lock const lock{mutex_};
      queue_.push_back({bucket, std::move(when_done), listeners::here()});
    }
    changed_.notify_all();
  }

  /// body(bucket_exchange) when no bucket is under way.
  template <class Body>
  decltype(auto) between_steps(Body const& body) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
    return body(exchange_);
  }

  /// When a bucket was exchanged, in seconds of the steady clock.
  struct exchange_times {
    std::size_t bytes = 0;
    double begin = 0;
    double end = 0;
  };

  /// From now on times are kept, or no longer; those that were are handed over.
  [[nodiscard]] std::vector<exchange_times> keep_times(bool keep) {
    return between_steps([&](auto&) {
      keeps_times_ = keep;
      return std::exchange(times_, {});
    });
  }

 private:
  struct job {
    c10d::GradBucket bucket;  // shares DDP's memory
    done when_done;
    listeners backward;  // of the pass that the bucket is from
  };

  void communicate() noexcept {
    for (;;) {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (stopped_) return;
      job const next = queue_.front();  // shared, so that nothing of torch's is destroyed under the lock
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      std::exception_ptr failure;
      auto const begin = now();
      try {
        exchange(next);
      } catch (...) {
        failure = std::current_exception();
      }
      auto const end = now();
      lock.lock();
      if (keeps_times_) try_to_keep(next.bucket.getBuffer().nbytes(), begin, end);
      busy_ = false;
      lock.unlock();
      changed_.notify_all();
      next.when_done(failure);
    }
  }

  [[nodiscard]] static double now() noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void try_to_keep(std::size_t bytes, double begin, double end) noexcept {
    try {
      times_.push_back({bytes, begin, end});
    } catch (...) {
      keeps_times_ = false;
    }
  }

  void exchange(job const& next) {
    auto const& bucket = next.bucket;
    listening const heard{next.backward};
    named_range const range{bucket_range(bucket.getIndex())};
    with_values(bucket.getBuffer(),
                [&](auto values) { exchange_.exchange(bucket.getIndex(), values, members_.of(bucket)); });
  }

  bucket_members members_;  // both of the thread while a bucket is under way
  bucket_exchange<gs::host> exchange_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> queue_;
  std::vector<exchange_times> times_;
  bool keeps_times_ = false;
  bool busy_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace example
