// A thread that exchanges DDP's buckets while the backward pass goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>

#include "bucket_exchange.hpp"
#include "bucket_members.hpp"
#include "ddp_passes.hpp"
#include "earlier_updates.hpp"
#include "end_of_backward.hpp"
#include "gradient_values.hpp"
#include "process_group.hpp"
#include "profiled.hpp"

namespace example {

/// Buckets of one model, exchanged one after the other in the order of start(), which DDP keeps the same on all ranks.
/// What fails in a backward pass is thrown at its end, when DDP is done with it: so DDP stays usable.
/// threads: any; calls other than start() wait for the buckets that are under way. In a child of fork() a hook of the
/// parent must not be destroyed, which would wait for its thread.
class hook : public std::enable_shared_from_this<hook> {
 public:
  /// Called once for a bucket, by this object's thread: with null, or with why it failed.
  using done = std::function<void(std::exception_ptr)>;

  /// `parameters`: those with gradients, in the model's order, and their names. `reducer`: of the DDP whose hook this
  /// is.
  hook(std::shared_ptr<c10d::Reducer> const& reducer, peers_of<gs::host> peers,
       std::vector<at::Tensor> const& parameters, names const& parameter_names, int threads, compression chosen)
      : passes_{reducer},
        buckets_{parameters, chosen},
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
  /// @throws gs::communication_error in a child of fork(), which has not the thread, and after end_calls().
  void start(c10d::GradBucket const& bucket, done when_done) {
    if (process_ != gs::process_id())
      throw gs::communication_error(
          "gradsieve: this process was forked from the one that registered the hook: the thread that exchanges buckets "
          "is in that one");
    auto next = job{bucket, {}, std::move(when_done), listeners::here(), {}, false};
    next.throws_later = at_end_of_backward([self = shared_from_this()] { self->throw_failure(); });
    try {
      next.about = buckets_.of(bucket, passes_, next.throws_later);
    } catch (...) {
      next.failure = std::current_exception();
    }
    {
      std::scoped_lock const lock{mutex_};
      if (ended_) throw gs::communication_error("gradsieve: the interpreter is about to end: no bucket can start");
      if (next.about.begins) failure_ = nullptr;
      queue_.push_back(std::move(next));
    }
    changed_.notify_all();
  }

  /// For the end of an interpreter that `done` and tensors need: waits until no `done` is being called, and calls none
  /// from then on. Buckets that are under way are exchanged for the other ranks' sake, and their memory is not freed.
  /// In a child of fork() nothing is done.
  void end_calls() {
    if (process_ != gs::process_id()) return;
    std::unique_lock lock{mutex_};
    ended_ = true;
    changed_.wait(lock, [&] { return !calling_; });
  }

  /// body(bucket_exchange) when no bucket is under way.
  /// @throws gs::communication_error in a child that was forked while one was.
  template <class Body>
  decltype(auto) between_steps(Body const& body) {
    auto const over = [&] { return queue_.empty() && !busy_; };
    if (process_ != gs::process_id()) {
      std::unique_lock const lock{mutex_, std::try_to_lock};
      if (!lock || !over())
        throw gs::communication_error("gradsieve: this process was forked while a bucket was under way: the thread "
                                      "that exchanges it is in the other one");
      return body(exchange_);
    }
    std::unique_lock lock{mutex_};
    changed_.wait(lock, over);
    return body(exchange_);
  }

  /// See bucket_exchange.
  void copy_residual(std::span<std::span<float> const> to) {
    between_steps([&](auto& exchange) { exchange.copy_residual(to); });
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
    bucket_facts about;
    done when_done;
    listeners backward;          // of the pass that the bucket is from
    std::exception_ptr failure;  // before the exchange
    bool throws_later;           // not by when_done
  };

  /// As the end of each bucket's backward pass; with activation checkpoints these may end before DDP is done.
  void throw_failure() {
    std::exception_ptr failure;
    {
      std::scoped_lock const lock{mutex_};
      if (passes_.under_way()) return;
      failure = std::exchange(failure_, nullptr);
    }
    if (failure) std::rethrow_exception(failure);
  }

  void communicate() noexcept {
    for (;;) {
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return stopped_ || !queue_.empty(); });
      if (stopped_) return;
      auto next = std::make_unique<job const>(queue_.front());  // a copy: nothing of torch's dies under the lock
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      auto failure = next->failure;
      auto const begin = now();
      try {
        if (!failure) exchange(*next);
      } catch (...) {
        failure = std::current_exception();
      }
      auto const end = now();
      lock.lock();
      if (keeps_times_) try_to_keep(next->bucket.getBuffer().nbytes(), begin, end);
      if (next->throws_later && failure) {
        if (!failure_) failure_ = failure;
        failure = nullptr;
      }
      busy_ = false;
      calling_ = !ended_;
      lock.unlock();
      changed_.notify_all();
      call(std::move(next), failure);
    }
  }

  /// when_done, if it may still be called. The job goes before calling_ does: its tensors may need the interpreter.
  void call(std::unique_ptr<job const> one, std::exception_ptr const& failure) noexcept {
    if (!calling_) {
      static_cast<void>(one.release());
      return;
    }
    one->when_done(failure);
    one.reset();
    {
      std::scoped_lock const lock{mutex_};
      calling_ = false;
    }
    changed_.notify_all();
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

  void exchange(job const& one) {
    listening const heard{one.backward};
    named_range const range{bucket_range(one.bucket.getIndex())};
    with_values(one.bucket.getBuffer(),
                [&](auto values) { exchange_.exchange(one.about.begins, values, one.about.members, one.about.use); });
  }

  ddp_passes passes_;  // both of the backward pass
  ddp_buckets buckets_;
  bucket_exchange<gs::host> exchange_;  // of the thread while a bucket is under way
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> queue_;
  std::vector<exchange_times> times_;
  bool keeps_times_ = false;
  std::exception_ptr failure_;  // of this backward pass, the first
  bool busy_ = false;
  bool calling_ = false;  // written by the thread alone
  bool ended_ = false;
  bool stopped_ = false;
  std::int64_t process_ = gs::process_id();
  std::thread thread_;
};

}  // namespace example
