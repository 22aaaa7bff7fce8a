// MPI errors, initialisation, and the communicators of nodes; the only header that includes <mpi.h>.
#pragma once

/// @cond internal
// Without the C++ bindings: MPI 3 removed them, and they would need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
/// @endcond
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <source_location>
#include <string>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::mpi {

/// An MPI call failed. The message has its name, its code with MPI's text, and the place of the call.
struct error : communication_error {
  /// From the result of a call.
  error(char const* call, int code, std::source_location const& place)
      : communication_error("gradsieve: " + std::string{call} + " failed with code " + std::to_string(code) + " (" +
                            text(code) + ") at " + place.file_name() + ":" + std::to_string(place.line())),
        code_{code} {}

  /// MPI's code, for MPI_Error_class().
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

/// Checks the result of an MPI call; every call uses it.
inline void check(int code, char const* call, std::source_location place = std::source_location::current()) {
  if (code != MPI_SUCCESS) throw error(call, code, place);
}

/// Whether a call of this process has given up waiting: MPI_Finalize would then wait as well.
inline std::atomic<bool> gave_up{false};

}  // namespace detail

/// Initialises MPI, and finalises it in its destructor; for programs that do not do so themselves. It does not finalise
/// during an exception or after a communicator's deadline has passed, as MPI_Finalize would wait for ranks that are
/// gone or that wait for this one: let the process end, and the launcher ends the job. Nor does it finalise in a child
/// of fork(), which is not a rank.
/// @pre MPI was never initialised. Ranks: collective.
class session {
 public:
  /// Calls MPI_Init_thread. @throws error; communication_error if MPI does not provide this level of thread support.
  explicit session(int level = MPI_THREAD_FUNNELED) { start(nullptr, nullptr, level); }
  /// The same with the program's arguments.
  session(int& argc, char**& argv, int level = MPI_THREAD_FUNNELED) { start(&argc, &argv, level); }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  ~session() {
    if (std::uncaught_exceptions() <= exceptions_ && !detail::gave_up.load() && process_ == process_id())
      MPI_Finalize();
  }

 private:
  static void start(int* argc, char*** argv, int level) {
    int provided = 0;
    detail::check(MPI_Init_thread(argc, argv, level, &provided), "MPI_Init_thread");
    if (provided < level)
      throw communication_error("gradsieve: MPI offers thread level " + std::to_string(provided) + ", requested " +
                                std::to_string(level));
  }

  int exceptions_ = std::uncaught_exceptions();
  std::int64_t process_ = process_id();
};

/// The two communicators of gradsieve::two_level: the ranks of this node, and the ranks with the same position in other
/// nodes. Owns both; they have the error handler of `all`, which the caller keeps.
/// @snippet two_level.cpp nodes
/// Ranks: construction and destruction are collective.
class nodes {
 public:
  /// Splits `all`. A node consists of ranks that share memory (MPI_COMM_TYPE_SHARED), or, with `ranks` > 0, of that
  /// many consecutive ranks. Ranks keep their order, within and across nodes.
  /// @throws invalid_argument, on all ranks, unless all nodes have the same number of ranks; error.
  explicit nodes(MPI_Comm all, int ranks = 0) {
    if (ranks < 0)
      throw invalid_argument("gradsieve: a node of " + std::to_string(ranks) +
                             " ranks; the least is 1, 0: MPI decides");
    int rank = 0;
    int place = 0;
    detail::check(MPI_Comm_rank(all, &rank), "MPI_Comm_rank");
    if (ranks == 0)
      detail::check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &own_.inside),
                    "MPI_Comm_split_type");
    else
      detail::check(MPI_Comm_split(all, rank / ranks, rank, &own_.inside), "MPI_Comm_split");
    int size = 0;
    detail::check(MPI_Comm_size(own_.inside, &size), "MPI_Comm_size");
    detail::check(MPI_Comm_rank(own_.inside, &place), "MPI_Comm_rank");
    int most[] = {size, -size};
    detail::check(MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, all), "MPI_Allreduce");
    if (most[0] != -most[1])
      throw invalid_argument("gradsieve: nodes have from " + std::to_string(-most[1]) + " to " +
                             std::to_string(most[0]) + " ranks; two_level needs equally many in each");
    int first = rank;  // gives the nodes the same order at all positions
    detail::check(MPI_Bcast(&first, 1, MPI_INT, 0, own_.inside), "MPI_Bcast");
    detail::check(MPI_Comm_split(all, place, first, &own_.across), "MPI_Comm_split");
  }

  [[nodiscard]] MPI_Comm inside() const noexcept { return own_.inside; }  ///< the ranks of this node
  [[nodiscard]] MPI_Comm across() const noexcept { return own_.across; }  ///< one rank of each node

 private:
  /// Frees the communicators, unless MPI has ended or would wait, or this is a child of fork().
  struct pair {
    MPI_Comm inside = MPI_COMM_NULL;
    MPI_Comm across = MPI_COMM_NULL;
    std::int64_t process = process_id();

    pair() = default;
    pair(pair const&) = delete;
    pair& operator=(pair const&) = delete;
    ~pair() {
      int finalised = 0;
      if (process != process_id() || detail::gave_up.load()) return;
      if (MPI_Finalized(&finalised) != MPI_SUCCESS || finalised) return;
      if (inside != MPI_COMM_NULL) MPI_Comm_free(&inside);
      if (across != MPI_COMM_NULL) MPI_Comm_free(&across);
    }
  };

  pair own_;
};

}  // namespace gradsieve::mpi
