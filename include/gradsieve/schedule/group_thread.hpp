// The thread that takes the groups of a plan, one after the other and step after step.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>

#include <gradsieve/error.hpp>
#include <gradsieve/process.hpp>

namespace gradsieve {

/// Calls body(group) for every group of a step in order, each as soon as it may go, on a thread of its own.
/// A child of fork() has no such thread: there a call that would wait for it throws, and the destructor does nothing.
/// memory: what a thread takes. threads: announce() from any; all else from one at a time.
class group_thread {
 public:
  group_thread() = default;
  group_thread(group_thread const&) = delete;
  group_thread& operator=(group_thread const&) = delete;

  /// Waits for the group that the thread is at, if there is one; others of a step are left.
  ~group_thread() {
    if (is_child()) {
      static_cast<void>(shared_.release());  // its mutex may be locked, and its thread is not there to join
      return;
    }
    {
      std::scoped_lock const lock{shared_->mutex};
      shared_->stopped = true;
    }
    shared_->work.notify_one();
    if (shared_->thread.joinable()) shared_->thread.join();
  }

  /// Once, before all else. `may(group)` says whether a group whose turn it is may go; neither it nor `body` may throw,
  /// and what they refer to outlives this object. @throws std::system_error if there is no thread.
  template <class May, class Body>
  void start(std::size_t groups, May may, Body body) {
    shared_->thread = std::thread{[&all = *shared_, groups, may, body] { work(all, groups, may, body); }};
  }

  [[nodiscard]] bool is_child() const noexcept { return process_ != process_id(); }

  /// @throws communication_error in a child of fork().
  void require_own_process() const {
    if (is_child())
      throw communication_error(
          "gradsieve: this process was forked from the one that made this overlap: the thread that exchanges groups is "
          "in that one");
  }

  /// Begins a step. What was written before is visible to the body. @pre no group may go; the last step is over
  void begin() {
    {
      std::scoped_lock const lock{shared_->mutex};
      ++shared_->begun;
    }
    shared_->work.notify_one();
  }

  /// Groups may go that could not before. @throws as require_own_process()
  void announce() {
    require_own_process();
    {
      std::scoped_lock const lock{shared_->mutex};  // orders this after the check of a thread that is about to wait
    }
    shared_->work.notify_one();
  }

  /// Waits until the step's groups are done. What the body wrote is visible then. @pre all may go and are announced
  void wait() {
    std::unique_lock lock{shared_->mutex};
    shared_->done.wait(lock, [&] { return shared_->ended == shared_->begun; });
  }

 private:
  struct state {
    std::mutex mutex;
    std::condition_variable work;
    std::condition_variable done;
    std::uint64_t begun = 0;  // steps
    std::uint64_t ended = 0;
    bool stopped = false;
    std::thread thread;
  };

  template <class May, class Body>
  static void work(state& all, std::size_t groups, May const& may, Body const& body) noexcept {
    for (std::uint64_t step = 1;; ++step) {
      for (std::size_t g = 0; g <= groups; ++g) {  // once more for the end, and where there is no group
        std::unique_lock lock{all.mutex};
        all.work.wait(lock, [&] { return all.stopped || (all.begun >= step && (g == groups || may(g))); });
        if (all.stopped) return;
        if (g < groups) {
          lock.unlock();
          body(g);
        } else {
          all.ended = step;
          all.done.notify_one();
        }
      }
    }
  }

  std::int64_t process_ = process_id();
  std::unique_ptr<state> shared_ = std::make_unique<state>();
};

}  // namespace gradsieve
