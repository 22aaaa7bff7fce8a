// The time of a stage.
#pragma once

#include <chrono>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Adds the time since the last call to a stage's.
class stopwatch {
 public:
  void charge(double& stage) noexcept {
    auto const now = std::chrono::steady_clock::now();
    stage += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace gradsieve::detail
