// The state that ranks share if they are threads of one process, and where they wait for each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gradsieve/comm/threads_check.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::threads {

class communicator_ref;

/// Ranks that are threads of one process. Owns their shared state, and must outlive its communicators. With a deadline,
/// a rank that has waited that long in a call leaves the group and throws; its buffers are no longer used. In a child
/// of fork() there are no other ranks: calls throw, and the destructor does not wait. Memory: about 90 bytes per rank,
/// allocated here; a collective allocates only if it throws. Threads: one at a time for each rank.
class group {
 public:
  /// A group of `ranks`. `deadline`: how long a rank waits for the others in a call; 0: without limit.
  /// @throws invalid_argument unless ranks >= 1 and deadline >= 0.
  explicit group(int ranks, std::chrono::milliseconds deadline = {}) : deadline_{deadline} {
    if (ranks < 1) throw invalid_argument("gradsieve: a group of " + std::to_string(ranks) + " ranks; the least is 1");
    if (deadline.count() < 0)
      throw invalid_argument("gradsieve: a deadline of " + std::to_string(deadline.count()) +
                             " milliseconds; the least is 0");
    requests_.resize(static_cast<std::size_t>(ranks));
    saw_departure_.resize(requests_.size());
  }
  group(group const&) = delete;
  group& operator=(group const&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(requests_.size()); }

  /// The communicator of one rank.
  /// @throws invalid_argument unless 0 <= rank < size().
  [[nodiscard]] communicator_ref communicator(int rank);

  /// Ends this rank's calls: ranks that wait for it, or call later, throw a communication_error that names the first
  /// rank that left. `run` calls it; code with threads of its own should. Ranks: local, by the rank itself.
  void leave(int rank) noexcept {
    if (process_ != process_id()) return;  // the mutex may stay locked
    std::scoped_lock const lock{shared_->mutex};
    if (departed_ == nobody) departed_ = rank;
    shared_->all_here.notify_all();
  }

  /// Whether this rank has thrown a communication_error because another rank had left.
  [[nodiscard]] bool was_told(int rank) const {
    std::unique_lock lock{shared_->mutex, std::defer_lock};
    if (process_ == process_id()) lock.lock();  // in a child no other thread writes
    return saw_departure_[static_cast<std::size_t>(rank)] != 0;
  }

 private:
  friend class communicator_ref;
  static constexpr int nobody = -1;

  /// Returns once all ranks are here. The last one compares their requests, while no rank accesses a buffer. The second
  /// barrier of a call has no deadline, as all ranks are about to arrive.
  void barrier(int rank, bool first) {
    if (process_ != process_id() && size() > 1)
      throw communication_error("gradsieve: rank " + std::to_string(rank) +
                                " was forked away from the group's threads, which are in its parent");
    std::unique_lock lock{shared_->mutex};
    if (departed_ == nobody) {
      auto const now = phase_;
      if (++here_ == requests_.size()) {
        if (first) mismatch_ = detail::mismatch_of(requests_);
        here_ = 0;
        ++phase_;
        shared_->all_here.notify_all();
        return;
      }
      auto const over = [&] { return phase_ != now || departed_ != nobody; };
      if (!first || deadline_.count() == 0)
        shared_->all_here.wait(lock, over);
      else if (!shared_->all_here.wait_for(lock, deadline_, over))
        give_up(rank);
      if (phase_ != now) return;
    }
    saw_departure_[static_cast<std::size_t>(rank)] = 1;
    throw communication_error("gradsieve: rank " + std::to_string(departed_) + " has left the group, rank " +
                              std::to_string(rank) + " cannot go on");
  }

  /// @pre the mutex is locked
  [[noreturn]] void give_up(int rank) {
    departed_ = rank;
    shared_->all_here.notify_all();
    throw communication_error("gradsieve: " + std::string{requests_[static_cast<std::size_t>(rank)].call} + ": rank " +
                              std::to_string(rank) + " has waited " + std::to_string(deadline_.count()) + " ms, " +
                              std::to_string(here_) + " of " + std::to_string(size()) +
                              " ranks have come; it has left the group");
  }

  std::vector<detail::request> requests_;  // one per rank; written before a barrier, read after it
  std::vector<char> saw_departure_;
  std::string mismatch_;  // written by the last rank of a first barrier, read by all after it
  struct waiting {
    std::mutex mutex;
    std::condition_variable all_here;
  };
  std::unique_ptr<waiting, gradsieve::detail::delete_in_own_process> shared_{new waiting};
  std::size_t here_ = 0;
  std::uint64_t phase_ = 0;
  int departed_ = nobody;
  std::chrono::milliseconds deadline_;
  std::int64_t process_ = process_id();
};

}  // namespace gradsieve::threads
