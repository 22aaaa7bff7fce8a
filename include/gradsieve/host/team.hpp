// Threads of the host space.
#pragma once

#include <cstdint>
#include <utility>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/process.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The calling thread's OpenMP team, or the calling thread alone where the build has no OpenMP.
/// In a child of fork() the thread that forked runs all workers itself if it had a team before, with the same results:
/// GCC's libgomp would wait forever for threads of the parent. LLVM's libomp, which
/// clang links, starts new threads in the child.
class host_team {
 public:
  /// `threads` 0: as many as OpenMP gives.
  explicit host_team(int threads) noexcept : size_{threads} {
#if defined(_OPENMP)
    if (size_ <= 0) size_ = omp_get_max_threads();
#else
    size_ = 1;
#endif
  }

  [[nodiscard]] int size() const noexcept { return size_; }

  /// Calls body(worker) once for each worker in [0, size()); returns when all have ended. `work` is about the number
  /// of elements that all of them touch: below a few ten thousand, waking the team would take longer.
  /// Which thread runs which worker never changes a result: workers own fixed parts of the data.
  template <class Body>
  void run(std::uint64_t work, Body const& body) const {
#if defined(_OPENMP)
    if (size_ > 1 && work >= host_kernels::least_team_work && may_start()) {
#pragma omp parallel for num_threads(size_) schedule(static, 1)
      for (int worker = 0; worker < size_; ++worker) {
        float_environment const standard;
        body(worker);
      }
      return;
    }
#endif
    static_cast<void>(work);
    float_environment const standard;
    for (int worker = 0; worker < size_; ++worker) body(worker);
  }

  /// The part [begin, end) of `count` items that a worker owns: contiguous, in worker order.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> part(std::uint64_t count, int worker) const noexcept {
    auto const team = static_cast<std::uint64_t>(size_);
    auto const at = static_cast<std::uint64_t>(worker);
    return {count * at / team, count * (at + 1) / team};
  }

 private:
#if defined(_OPENMP)
  /// Whether the calling thread may enter a parallel region: it has not entered one before in the process that forked
  /// this one. What the caller's own code did there is not known.
  [[nodiscard]] static bool may_start() noexcept {
#if defined(__clang__)
    return true;
#else
    static thread_local std::int64_t started_in = 0;
    auto const now = process_id();
    if (started_in == 0) started_in = now;
    return started_in == now;
#endif
  }
#endif

  int size_;
};

}  // namespace gradsieve::detail
