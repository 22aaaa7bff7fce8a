// MPI's errors, and its beginning and end; the only header that includes <mpi.h>.
#pragma once

// Without the C++ bindings: they left the standard with MPI 3 and would need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <source_location>
#include <string>

#include <gradsieve/core/error.hpp>

namespace gradsieve::mpi {

/// What an MPI call reported: its name, the code and MPI's text for it, and the place of the call.
struct error : communication_error {
  error(char const* call, int code, std::source_location const& place)
      : communication_error("gradsieve: " + std::string{call} + " failed with code " + std::to_string(code) + " (" +
                            text(code) + ") at " + place.file_name() + ":" + std::to_string(place.line())),
        code_{code} {}

  /// MPI's code, for MPI_Error_class.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  static std::string text(int code) {
    std::array<char, MPI_MAX_ERROR_STRING> buffer{};
    int length = 0;
    if (MPI_Error_string(code, buffer.data(), &length) != MPI_SUCCESS) return "no text";
    return {buffer.data(), static_cast<std::size_t>(length)};
  }

  int code_;
};

namespace detail {

/// Every MPI call passes here.
inline void check(int code, char const* call, std::source_location place = std::source_location::current()) {
  if (code != MPI_SUCCESS) throw error(call, code, place);
}

/// Whether a communicator of this process has given up waiting: MPI_Finalize would wait as well.
inline std::atomic<bool> gave_up{false};

}  // namespace detail

/// Initialises MPI, and finalises it in its destructor; for programs that do not do so themselves. Where an
/// exception unwinds it, or a communicator's deadline has passed, it does not finalise, as that would wait for ranks
/// that may wait for this one or are gone: let the process end, and the launcher ends the job.
/// @pre MPI was never initialised. ranks: collective.
class session {
 public:
  /// @throws error; communication_error if MPI cannot offer this level of thread support.
  explicit session(int level = MPI_THREAD_FUNNELED) { start(nullptr, nullptr, level); }
  session(int& argc, char**& argv, int level = MPI_THREAD_FUNNELED) { start(&argc, &argv, level); }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  ~session() {
    if (std::uncaught_exceptions() <= exceptions_ && !detail::gave_up.load()) MPI_Finalize();
  }

 private:
  static void start(int* argc, char*** argv, int level) {
    int provided = 0;
    detail::check(MPI_Init_thread(argc, argv, level, &provided), "MPI_Init_thread");
    if (provided < level)
      throw communication_error("gradsieve: MPI offers thread level " + std::to_string(provided) + ", asked for " +
                                std::to_string(level));
  }

  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace gradsieve::mpi
