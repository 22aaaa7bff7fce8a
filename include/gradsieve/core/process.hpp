// The id of the process, which distinguishes the child of a fork() from its parent.
#pragma once

#include <cstdint>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// The id of the calling process, different in a parent and its forked child; 0 without fork(). Cost: a system call.
[[nodiscard]] inline std::int64_t process_id() noexcept {
#if __has_include(<unistd.h>)
  return ::getpid();
#else
  return 0;
#endif
}

namespace detail {

/// A deleter that does nothing in a child of fork(): for mutexes, which other threads may have locked, and for threads
/// and communicators, which are in the parent. What it does not delete is the child's copy.
class delete_in_own_process {
 public:
  template <class T>
  void operator()(T* object) const noexcept {
    if (process_ == process_id()) delete object;
  }

 private:
  std::int64_t process_ = process_id();
};

}  // namespace detail

}  // namespace gradsieve
