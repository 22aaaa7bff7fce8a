// OpenMP for teams; a program lends its own to gradsieve::compiled, which is built without.
#pragma once

#include <cstdint>

#if defined(GRADSIEVE_COMPILED)
#include <atomic>
#endif
#if defined(_OPENMP)
#include <omp.h>
#endif

#include <gradsieve/core/config.hpp>
#include <gradsieve/core/process.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

#if defined(GRADSIEVE_COMPILED)

/// A program's OpenMP. run() calls call(body, worker) for each worker in [0, size); false if no team may start.
struct lent_openmp {
  int (*threads)();
  bool (*run)(int size, void const* body, void (*call)(void const* body, int worker));
};

/// Holds the OpenMP that the program has lent.
inline std::atomic<lent_openmp const*>& openmp_place() noexcept {
  static std::atomic<lent_openmp const*> place{nullptr};
  return place;
}
/// The OpenMP that the program has lent, or null.
[[nodiscard]] inline lent_openmp const* openmp_of_program() noexcept { return openmp_place().load(); }

#endif
#if defined(_OPENMP)

[[nodiscard]] inline int openmp_threads() { return omp_get_max_threads(); }

/// False for a thread of GCC's libgomp that called this before, in the process that forked this one. Parallel regions
/// of the caller's own code are not known.
[[nodiscard]] inline bool may_start_openmp() noexcept {
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
#if defined(_OPENMP) && defined(GRADSIEVE_COMPILED)

[[nodiscard]] inline bool run_openmp(int size, void const* body, void (*call)(void const*, int)) {
  if (!may_start_openmp()) return false;
#pragma omp parallel for num_threads(size) schedule(static, 1)
  for (int worker = 0; worker < size; ++worker) call(body, worker);
  return true;
}

/// Lends this unit's OpenMP, if any, to the library that it links.
inline void lend_openmp() noexcept {
  static constexpr lent_openmp own{openmp_threads, run_openmp};
  openmp_place().store(&own);
}

#else

inline void lend_openmp() noexcept {}

#endif

}  // namespace gradsieve::detail
