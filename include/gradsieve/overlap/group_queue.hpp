// Runs the groups of a plan during the backward pass, in order, step after step.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/overlap/group_exchange.hpp>
#include <gradsieve/overlap/overlapped_group.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The part of an overlap that depends on the space: runs body(group) for every group in order, each as soon as
/// may(group) is true. Neither may throw. In a step begin(writer) comes first, then written() and announce(), then
/// finish(). `body` calls hold(), start_group() and finish_group().
template <class Space>
class group_queue {
  static_assert(sizeof(Space) == 0, "there is no overlap for this space; that of a device is in <gradsieve/cuda.cuh>");
};

/// On the host: a thread of its own. In a child of fork(), which lacks it, usable() is false, a call that would wait
/// for the thread throws, and the destructor does nothing. Memory: a thread's. Threads: announce() from any thread; all
/// else from one at a time.
template <>
class group_queue<host> {
 public:
  /// The writer of gradients: any thread, which calls ready() afterwards.
  struct writer {};
  template <class T>
  using buffer = host_buffer<T>;

  explicit group_queue(host const&) {}
  group_queue(group_queue const&) = delete;
  group_queue& operator=(group_queue const&) = delete;

  /// Waits for the group that is being exchanged, if any; the step's other groups are not exchanged.
  ~group_queue() {
    if (!usable()) return;
    tell([&] { shared_->stopped = true; });
    if (shared_->thread.joinable()) shared_->thread.join();
  }

  /// The communicator for data that ranks compare before the first step.
  template <class Comm>
  [[nodiscard]] static Comm const& setup_communicator(host const&, Comm const& comm) noexcept {
    return comm;
  }

  /// Called once, before the first step. The functions' references must outlive this object. @throws std::system_error
  template <class May, class Body>
  void start(std::size_t groups, std::size_t /*layers*/, May may, Body body) {
    times_.resize(groups);
    shared_->thread = std::thread{[&all = *shared_, groups, may, body] { work(all, groups, may, body); }};
  }

  [[nodiscard]] bool usable() const noexcept { return process_ == process_id(); }

  /// @throws communication_error in a child of fork().
  void require_usable() const {
    if (!usable())
      throw communication_error(
          "gradsieve: this process was forked from the one that made this overlap: the thread that exchanges groups is "
          "in that one");
  }

  /// Begins a step. Earlier writes are visible to the body. @pre no group may go yet; the last step has ended
  void begin(writer) {
    began_ = clock::now();
    tell([&] { ++shared_->begun; });
  }
  [[nodiscard]] writer step_writer() const noexcept { return {}; }

  /// Marks a layer's gradient as written; announce() makes it visible.
  void written(std::size_t /*layer*/, writer) const noexcept {}
  void fill_zero(std::span<std::byte> memory) const noexcept { std::ranges::fill(memory, std::byte{}); }

  /// Announces that groups may go that could not before. @throws as require_usable()
  void announce() {
    require_usable();
    tell([] {});
  }

  /// Waits until the step's groups are done. Writes of the body are then visible. @pre all may go and are announced
  void finish() {
    auto const start = clock::now();
    std::unique_lock lock{shared_->mutex};
    shared_->done.wait(lock, [&] { return shared_->ended == shared_->begun; });
    exposed_ = seconds(clock::now() - start);
  }

  void hold(std::size_t /*layer*/) const noexcept {}
  void start_group(std::size_t group) noexcept { times_[group].start = seconds(clock::now() - began_); }
  void finish_group(std::size_t group) noexcept { times_[group].finish = seconds(clock::now() - began_); }

  template <class T>
  [[nodiscard]] buffer<T> allocate(std::size_t size) const {
    return buffer<T>(size);
  }
  void copy(std::span<std::byte const> from, std::span<std::byte> to) const noexcept {
    std::ranges::copy(from, to.begin());
  }

  void drain() const noexcept {}

  [[nodiscard]] std::span<group_times const> times() const noexcept { return times_; }

  template <class Groups>
  [[nodiscard]] overlap_report report(Groups const& groups, std::size_t not_ready) const {
    return report_of(groups, times_, exposed_, not_ready);
  }

 private:
  using clock = std::chrono::steady_clock;

  struct state {
    std::mutex mutex;
    std::condition_variable work;
    std::condition_variable done;
    std::uint64_t begun = 0;  // steps
    std::uint64_t ended = 0;
    bool stopped = false;
    std::thread thread;
  };

  /// Changes the state, and wakes the thread. The lock orders this after the check of a thread that is about to wait.
  template <class Change>
  void tell(Change const& change) {
    {
      std::scoped_lock const lock{shared_->mutex};
      change();
    }
    shared_->work.notify_one();
  }

  template <class May, class Body>
  static void work(state& all, std::size_t groups, May const& may, Body const& body) noexcept {
    for (std::uint64_t step = 1;; ++step) {
      for (std::size_t g = 0; g <= groups; ++g) {  // once more for the end, also without groups
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

  [[nodiscard]] static double seconds(clock::duration time) noexcept {
    return std::chrono::duration<double>(time).count();
  }

  std::int64_t process_ = process_id();
  std::unique_ptr<state, delete_in_own_process> shared_{new state};
  std::vector<group_times> times_;  // like began_, for the caller's thread before begin() and after finish()
  clock::time_point began_;
  double exposed_ = 0;
};

}  // namespace gradsieve::detail
