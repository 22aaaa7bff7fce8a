// Ends a test program that hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

/// Ends the program if a test hangs: a deadlock must not look like a slow machine.
class watchdog {
 public:
  explicit watchdog(char const* what)
      : thread_{[this, what] {
          std::unique_lock lock{mutex_};
          if (over_.wait_for(lock, std::chrono::seconds{120}, [this] { return done_; })) return;
          std::fprintf(stderr, "deadlock: %s did not end in 120 seconds\n", what);
          std::abort();
        }} {}
  ~watchdog() {
    {
      std::scoped_lock const lock{mutex_};
      done_ = true;
    }
    over_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};
