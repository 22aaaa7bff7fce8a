// The id of the process, which tells the child of a fork() from its parent.
#pragma once

#include <cstdint>

#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace gradsieve {

/// The id of the calling process, which differs between a parent and its forked child; 0 where there is no fork().
/// Cost: a system call.
[[nodiscard]] inline std::int64_t process_id() noexcept {
#if __has_include(<unistd.h>)
  return ::getpid();
#else
  return 0;
#endif
}

}  // namespace gradsieve
