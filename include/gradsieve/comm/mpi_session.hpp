// MPI errors, initialisation, how calls wait, and what they check; the only header that includes <mpi.h>.
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

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <vector>

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

/// True once a call of this process has given up waiting: MPI_Finalize would then wait as well.
inline std::atomic<bool> gave_up{false};

}  // namespace detail

/// Initialises MPI, and finalises it in its destructor; for programs that do not do so themselves. It does not finalise
/// during an exception or after a communicator's deadline has passed, as MPI_Finalize would wait for ranks that are
/// gone or that wait for this one: let the process end, and the launcher ends the job. Nor does it in a child of
/// fork(), which is not a rank. @pre MPI was never initialised. Ranks: collective.
class session {
 public:
  /// Calls MPI_Init_thread. @throws error; communication_error if MPI does not provide this level of thread support.
  explicit session(int level = MPI_THREAD_FUNNELED) { start(nullptr, nullptr, level); }
  /// Calls MPI_Init_thread with the program's arguments. @throws as above.
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

namespace detail {

inline MPI_Datatype datatype(float) { return MPI_FLOAT; }
inline MPI_Datatype datatype(double) { return MPI_DOUBLE; }
inline MPI_Datatype datatype(std::uint32_t) { return MPI_UINT32_T; }
inline MPI_Datatype datatype(std::uint64_t) { return MPI_UINT64_T; }

template <class T>
concept reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint32_t> ||
                    std::same_as<T, std::uint64_t>;

/// @throws mismatch, naming this rank
inline void expect(int rank, char const* does, std::size_t n, std::size_t wanted) {
  if (n != wanted)
    throw mismatch("gradsieve: rank " + std::to_string(rank) + " " + does + " " + std::to_string(n) + ", expected " +
                   std::to_string(wanted));
}

/// Checks sizes for each of `ranks`, of what a rank sends (`gives`) or of its receive buffer. @throws mismatch
inline void expect_sum(int rank, std::size_t ranks, bool gives, std::size_t bytes,
                       std::span<std::size_t const> sizes) {
  expect(rank, "passes sizes:", sizes.size(), ranks);
  for (std::size_t const size : sizes) {
    if (size > bytes) expect(rank, gives ? "has left to give bytes:" : "has room left for bytes:", bytes, size);
    bytes -= size;
  }
  expect(rank, gives ? "has too many bytes to send:" : "has too many bytes to receive into:", bytes, 0);
}

inline void copy(std::span<std::byte const> from, std::span<std::byte> to) noexcept {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

/// State that copies of a communicator share: how calls wait, and memory for them. With a deadline MPI works on this
/// object's memory. An abandoned call leaves its requests to MPI, as a collective cannot be cancelled; as MPI may still
/// write to that memory, the object is then never freed.
class waiting : public std::enable_shared_from_this<waiting> {
 public:
  waiting(int rank, int size, std::chrono::microseconds pause, std::chrono::milliseconds deadline)
      : rank_{rank}, size_{size}, pause_{pause}, deadline_{deadline}, counts_(2 * static_cast<std::size_t>(size)) {}

  /// True if this object makes nonblocking calls and waits for them.
  [[nodiscard]] bool is_own() const noexcept { return pause_.count() > 0 || has_deadline(); }

  /// Memory for the arguments of MPI_Allgatherv: counts, then offsets.
  [[nodiscard]] int* counts() noexcept { return counts_.data(); }

  /// @throws communication_error if an earlier call was abandoned.
  void require_usable() const {
    if (!abandoned_.empty()) throw communication_error(abandoned_);
  }

  /// Starts a nonblocking call with these arguments and waits for it.
  template <class Call, class... Arguments>
  MPI_Status finish(char const* name, Call const& call, Arguments... arguments) {
    MPI_Request request;
    check(call(arguments..., &request), name);
    return wait(name, request);
  }

  /// Calls body(memory to work on): the caller's, or with a deadline a copy, into which `given` is copied first.
  template <class Body>
  void on(std::span<std::byte> memory, std::span<std::byte const> given, Body const& body) {
    if (!has_deadline()) return body(memory.data());
    auto const own = buffer(memory.size());
    copy(given, own.subspan(static_cast<std::size_t>(given.data() - memory.data()), given.size()));
    body(own.data());
    copy(own, memory);
  }

  /// Calls body(send buffer, receive buffer): the caller's, or with a deadline copies.
  template <class Body>
  void from_to(std::span<std::byte const> out, std::span<std::byte> in, Body const& body) {
    if (!has_deadline()) return body(out.data(), in.data());
    auto const own = buffer(out.size() + in.size());
    copy(out, own.first(out.size()));
    body(own.data(), own.data() + out.size());
    copy(own.subspan(out.size()), in);
  }

  MPI_Status exchange(std::span<std::byte const> out, int to, std::span<std::byte> in, int from, int tag,
                      MPI_Comm comm) {
    auto const own = buffer(has_deadline() ? out.size() + in.size() : 0);
    auto const mine = has_deadline() ? own.first(out.size()) : std::span<std::byte const>{out};
    auto const theirs = has_deadline() ? own.last(in.size()) : in;
    if (has_deadline()) copy(out, own);
    auto const count = [](auto const& part) { return static_cast<int>(part.size()); };
    MPI_Request receiving;
    check(MPI_Irecv(theirs.data(), count(theirs), MPI_BYTE, from, tag, comm, &receiving), "MPI_Irecv");
    MPI_Status status;
    try {
      finish("MPI_Isend", MPI_Isend, mine.data(), count(mine), MPI_BYTE, to, tag, comm);
      status = wait("MPI_Irecv", receiving);
    } catch (...) {
      if (abandoned_.empty() && receiving != MPI_REQUEST_NULL) {  // `in` is the caller's again
        MPI_Cancel(&receiving);
        MPI_Wait(&receiving, MPI_STATUS_IGNORE);
      }
      throw;
    }
    copy(theirs, in);
    return status;
  }

 private:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] bool has_deadline() const noexcept { return deadline_.count() > 0; }

  /// Memory of this object. Allocates if a call is longer than all earlier ones.
  [[nodiscard]] std::span<std::byte> buffer(std::size_t bytes) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
    return std::span{buffer_}.first(bytes);
  }

  MPI_Status wait(char const* name, MPI_Request& request) {
    auto const start = clock::now();
    MPI_Status status;
    for (int done = 0;;) {
      check(MPI_Test(&request, &done, &status), "MPI_Test");
      if (done) return status;
      auto const waited = clock::now() - start;
      if (has_deadline() && waited >= deadline_) give_up(name, waited);
      if (pause_.count() > 0)
        std::this_thread::sleep_for(has_deadline() ? std::min<clock::duration>(pause_, deadline_ - waited) : pause_);
    }
  }

  [[noreturn]] void give_up(char const* name, clock::duration waited) {
    itself_ = shared_from_this();
    gave_up.store(true);
    auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
    abandoned_ = "gradsieve: " + std::string{name} + ": rank " + std::to_string(rank_) + " of " +
                 std::to_string(size_) + " has waited " + std::to_string(ms) +
                 " ms for the other ranks; this communicator makes no further call";
    throw communication_error(abandoned_);
  }

  int rank_;
  int size_;
  std::chrono::microseconds pause_;
  std::chrono::milliseconds deadline_;
  std::vector<int> counts_;
  std::vector<std::byte> buffer_;
  std::string abandoned_;  // the reason why no further call is possible
  std::shared_ptr<waiting> itself_;
};

}  // namespace detail

}  // namespace gradsieve::mpi
