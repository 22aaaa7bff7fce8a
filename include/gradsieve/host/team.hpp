// Threads of the host space.
#pragma once

#include <cstdint>
#include <utility>

#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/host/openmp.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The calling thread's OpenMP team, or that thread alone in builds without OpenMP; in gradsieve::compiled the OpenMP
/// that the program lends (lend_openmp()). In a child of fork(), a thread that had a team before runs all workers
/// itself, with the same results: GCC's libgomp would wait forever for the parent's threads. LLVM's libomp, with clang,
/// starts new threads in the child.
class host_team {
 public:
  /// `threads` 0: as many as OpenMP gives.
  explicit host_team(int threads) noexcept : size_{threads} {
#if defined(_OPENMP)
    if (size_ <= 0) size_ = openmp_threads();
#elif defined(GRADSIEVE_COMPILED)
    auto const* const lent = openmp_of_program();
    if (lent == nullptr)
      size_ = 1;
    else if (size_ <= 0)
      size_ = lent->threads();
#else
    size_ = 1;
#endif
  }

  [[nodiscard]] int size() const noexcept { return size_; }

  /// Calls body(worker) once for each worker in [0, size()); returns when all have ended. `work`: about the number of
  /// elements touched; below some ten thousand, waking the team takes longer. Results do not depend on which thread
  /// runs a worker: workers own fixed parts of the data.
  template <class Body>
  void run(std::uint64_t work, Body const& body) const {
#if defined(_OPENMP)
    if (size_ > 1 && work >= host_kernels::least_team_work && may_start_openmp()) {
#pragma omp parallel for num_threads(size_) schedule(static, 1)
      for (int worker = 0; worker < size_; ++worker) {
        float_environment const standard;
        body(worker);
      }
      return;
    }
#elif defined(GRADSIEVE_COMPILED)
    if (size_ > 1 && work >= host_kernels::least_team_work)
      if (auto const* const lent = openmp_of_program();
          lent != nullptr && lent->run(size_, &body, [](void const* with, int worker) {
            float_environment const standard;
            (*static_cast<Body const*>(with))(worker);
          }))
        return;
#endif
    static_cast<void>(work);
    float_environment const standard;
    for (int worker = 0; worker < size_; ++worker) body(worker);
  }

  /// The contiguous part [begin, end) of `count` items that a worker owns, in worker order.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> part(std::uint64_t count, int worker) const noexcept {
    auto const team = static_cast<std::uint64_t>(size_);
    auto const at = static_cast<std::uint64_t>(worker);
    return {count * at / team, count * (at + 1) / team};
  }

 private:
  int size_;
};

}  // namespace gradsieve::detail
