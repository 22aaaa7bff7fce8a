// Ranks that are MPI processes; the only header that includes <mpi.h>. Host memory only.
#pragma once

// Without the C++ bindings: they left the standard with MPI 3 and would need a library of their own.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <source_location>
#include <span>
#include <string>
#include <thread>

#include <gradsieve/concepts.hpp>
#include <gradsieve/error.hpp>

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

inline MPI_Datatype datatype(float) { return MPI_FLOAT; }
inline MPI_Datatype datatype(double) { return MPI_DOUBLE; }
inline MPI_Datatype datatype(std::uint32_t) { return MPI_UINT32_T; }
inline MPI_Datatype datatype(std::uint64_t) { return MPI_UINT64_T; }

template <class T>
concept reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint32_t> ||
                    std::same_as<T, std::uint64_t>;

}  // namespace detail

/// Initialises MPI, and finalises it in its destructor; for programs that do not do so themselves. Where an
/// exception unwinds it, it does not finalise, as that would wait for ranks that may wait for this one: let
/// the exception end the process, and the launcher ends the job.
/// @pre MPI was never initialised. ranks: collective.
class session {
 public:
  /// @throws error; communication_error if MPI cannot offer this level of thread support.
  explicit session(int level = MPI_THREAD_FUNNELED) { start(nullptr, nullptr, level); }
  session(int& argc, char**& argv, int level = MPI_THREAD_FUNNELED) { start(&argc, &argv, level); }
  session(session const&) = delete;
  session& operator=(session const&) = delete;
  ~session() {
    if (std::uncaught_exceptions() <= exceptions_) MPI_Finalize();
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

/// A view of an intracommunicator that the caller owns: nothing is created, duplicated, freed or aborted.
/// Counts beyond MPI's int are sent in pieces. Messages of send_receive have the tag 26483.
/// MPI ends the program on errors, unless the caller gave the communicator MPI_ERRORS_RETURN: only then they
/// are thrown.
/// With a pause, a call that has to wait sleeps between its looks at MPI, where MPI itself would spin: for a thread
/// that communicates while others compute on the same cores.
/// @pre equal sizes, roots and peers on all ranks: otherwise MPI may fail on some ranks or wait for ever.
/// memory: 2 ints a rank, allocated at construction and shared by copies; no call allocates.
/// ranks: collective; send_receive only for the ranks it names.
/// @throws error; mismatch, on this rank alone, if its own sizes do not fit together.
/// threads: one call at a time for all copies.
class communicator_ref {
 public:
  static constexpr std::size_t default_max_count = std::size_t{1} << 30;

  /// `max_count`: most elements, or bytes, in one MPI call; the same on all ranks, from 1 to INT_MAX. `pause`: how long
  /// a waiting call sleeps at a time, at most a second; 0 leaves it to MPI. Either 0 on all ranks or on none.
  /// ranks: local.
  /// @throws invalid_argument for max_count and pause; communication_error unless MPI runs and `comm` fits.
  explicit communicator_ref(MPI_Comm comm, std::size_t max_count = default_max_count,
                            std::chrono::microseconds pause = {})
      : comm_{comm}, max_count_{max_count}, pause_{pause} {
    if (pause < std::chrono::microseconds{} || pause > std::chrono::seconds{1})
      throw invalid_argument("gradsieve: a pause of " + std::to_string(pause.count()) +
                             " microseconds is not from 0 to a second");
    if (max_count < 1 || max_count > INT_MAX)
      throw invalid_argument("gradsieve: max_count " + std::to_string(max_count) + " is not from 1 to " +
                             std::to_string(INT_MAX));
    int initialised = 0;
    int finalised = 0;
    detail::check(MPI_Initialized(&initialised), "MPI_Initialized");
    detail::check(MPI_Finalized(&finalised), "MPI_Finalized");
    if (!initialised || finalised)
      throw communication_error(finalised ? "gradsieve: MPI is finalised" : "gradsieve: MPI is not initialised");
    if (comm == MPI_COMM_NULL) throw communication_error("gradsieve: the communicator is MPI_COMM_NULL");
    int between = 0;
    detail::check(MPI_Comm_test_inter(comm, &between), "MPI_Comm_test_inter");
    if (between) throw communication_error("gradsieve: the communicator is an intercommunicator");
    detail::check(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    detail::check(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
    counts_ = std::make_shared<int[]>(2 * ranks());
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// MPI has all ranks receive identical results; a sum's last bits may depend on the number of ranks.
  template <class Space, detail::reducible T>
  void all_reduce(Space const&, std::span<T> in_out, reduction how) const {
    MPI_Op const op = how == reduction::max ? MPI_MAX : MPI_SUM;
    for (; !in_out.empty(); in_out = in_out.subspan(piece(in_out.size()))) {
      auto const n = count(in_out.size());
      if (patient())
        finish("MPI_Iallreduce", MPI_Iallreduce, MPI_IN_PLACE, in_out.data(), n, detail::datatype(T{}), op, comm_);
      else
        detail::check(MPI_Allreduce(MPI_IN_PLACE, in_out.data(), n, detail::datatype(T{}), op, comm_), "MPI_Allreduce");
    }
  }

  /// @pre `mine` is its own place in `all` or lies outside; `all` holds size() times as much.
  /// cost: one MPI_Allgather; beyond max_count bytes in all, a ring of size() - 1 send_receives.
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    expect("has room for bytes:", all.size(), ranks() * mine.size());
    auto const place = [&](int r) { return all.subspan(index(r) * mine.size(), mine.size()); };
    copy(mine, place(rank_));
    if (all.size() > max_count_) return ring(where, place);
    if (patient())
      return finish("MPI_Iallgather", MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(),
                    count(mine.size()), MPI_BYTE, comm_);
    detail::check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), count(mine.size()), MPI_BYTE, comm_),
                  "MPI_Allgather");
  }

  /// @pre `mine` as above; `sizes` are equal on all ranks and sum to what `all` holds.
  /// cost: as above, with MPI_Allgatherv.
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    expect("passes sizes:", sizes.size(), ranks());
    expect("gives bytes:", mine.size(), sizes[index(rank_)]);
    std::size_t room = all.size();
    for (std::size_t const size : sizes) {
      if (size > room) expect("has room left for bytes:", room, size);
      room -= size;
    }
    expect("has too many bytes of room:", room, 0);

    auto const place = [&](int r) {
      return all.subspan(std::accumulate(sizes.begin(), sizes.begin() + r, std::size_t{0}), sizes[index(r)]);
    };
    copy(mine, place(rank_));
    if (all.size() > max_count_) return ring(where, place);
    int* const counts = counts_.get();
    int* const offsets = counts + ranks();
    std::transform(sizes.begin(), sizes.end(), counts, [](std::size_t size) { return static_cast<int>(size); });
    std::exclusive_scan(counts, counts + ranks(), offsets, 0);
    if (patient())
      return finish("MPI_Iallgatherv", MPI_Iallgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts, offsets,
                    MPI_BYTE, comm_);
    detail::check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts, offsets, MPI_BYTE, comm_),
                  "MPI_Allgatherv");
  }

  template <class Space>
  void broadcast(Space const&, std::span<std::byte> in_out, int root) const {
    for (; !in_out.empty(); in_out = in_out.subspan(piece(in_out.size()))) {
      auto const n = count(in_out.size());
      if (patient())
        finish("MPI_Ibcast", MPI_Ibcast, in_out.data(), n, MPI_BYTE, root, comm_);
      else
        detail::check(MPI_Bcast(in_out.data(), n, MPI_BYTE, root, comm_), "MPI_Bcast");
    }
  }

  /// @pre `out` and `in` do not overlap; the other side receives, or sends, as many bytes.
  /// @throws also mismatch if a message is shorter than `in`.
  template <class Space>
  void send_receive(Space const&, std::span<std::byte const> out, int to, std::span<std::byte> in, int from) const {
    do {
      MPI_Status status;
      if (patient()) {
        MPI_Request receiving;
        detail::check(MPI_Irecv(in.data(), count(in.size()), MPI_BYTE, from, tag, comm_, &receiving), "MPI_Irecv");
        finish("MPI_Isend", MPI_Isend, out.data(), count(out.size()), MPI_BYTE, to, tag, comm_);
        status = wait(receiving);
      } else {
        detail::check(MPI_Sendrecv(out.data(), count(out.size()), MPI_BYTE, to, tag, in.data(), count(in.size()),
                                   MPI_BYTE, from, tag, comm_, &status),
                      "MPI_Sendrecv");
      }
      int received = 0;
      detail::check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
      expect("receives bytes:", index(received), piece(in.size()));
      out = out.subspan(piece(out.size()));
      in = in.subspan(piece(in.size()));
      if (out.empty()) to = MPI_PROC_NULL;
      if (in.empty()) from = MPI_PROC_NULL;
    } while (!out.empty() || !in.empty());
  }

 private:
  static constexpr int tag = 26483;

  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::size_t ranks() const noexcept { return index(size_); }
  [[nodiscard]] std::size_t piece(std::size_t n) const noexcept { return std::min(n, max_count_); }
  [[nodiscard]] int count(std::size_t n) const noexcept { return static_cast<int>(piece(n)); }

  [[nodiscard]] bool patient() const noexcept { return pause_.count() > 0; }

  MPI_Status wait(MPI_Request request) const {
    MPI_Status status;
    for (int done = 0;;) {
      detail::check(MPI_Test(&request, &done, &status), "MPI_Test");
      if (done) return status;
      std::this_thread::sleep_for(pause_);
    }
  }

  /// Starts a nonblocking call with these arguments and waits for it.
  template <class Call, class... Arguments>
  void finish(char const* name, Call const& call, Arguments... arguments) const {
    MPI_Request request;
    detail::check(call(arguments..., &request), name);
    (void)wait(request);
  }

  void expect(char const* does, std::size_t n, std::size_t wanted) const {
    if (n != wanted)
      throw mismatch("gradsieve: rank " + std::to_string(rank_) + " " + does + " " + std::to_string(n) + ", expected " +
                     std::to_string(wanted));
  }

  static void copy(std::span<std::byte const> from, std::span<std::byte> to) noexcept {
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
  }

  /// In step s every rank passes on what it got in the step before, beginning with its own.
  template <class Space, class Place>
  void ring(Space const& where, Place const& place) const {
    for (int left = rank_, step = 1; step < size_; ++step) {
      int const mine = left;
      left = (left + size_ - 1) % size_;
      send_receive(where, place(mine), (rank_ + 1) % size_, place(left), (rank_ + size_ - 1) % size_);
    }
  }

  MPI_Comm comm_;
  std::size_t max_count_;
  std::chrono::microseconds pause_;
  int rank_ = 0;
  int size_ = 0;
  std::shared_ptr<int[]> counts_;  // what MPI_Allgatherv takes: counts, then offsets
};

static_assert(communicator<communicator_ref> && has_all_reduce<communicator_ref, int, float> &&
              has_all_gather<communicator_ref, int> && has_broadcast<communicator_ref, int> &&
              has_send_receive<communicator_ref, int>);

}  // namespace gradsieve::mpi
