// How MPI calls wait: in MPI, with pauses, or until a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gradsieve/comm/mpi_session.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::mpi::detail {

inline void copy(std::span<std::byte const> from, std::span<std::byte> to) noexcept {
  if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

/// The state that copies of a communicator share: how its calls wait, and memory for them. With a deadline MPI works on
/// this object's own memory. An abandoned call leaves its requests to MPI, as a collective cannot be cancelled; MPI may
/// write to that memory at any time, so the object is then never freed.
class waiting : public std::enable_shared_from_this<waiting> {
 public:
  waiting(int rank, int size, std::chrono::microseconds pause, std::chrono::milliseconds deadline)
      : rank_{rank}, size_{size}, pause_{pause}, deadline_{deadline}, counts_(2 * static_cast<std::size_t>(size)) {}

  /// Whether this object makes nonblocking calls and waits for them.
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

  /// Calls body(memory to work on): the caller's, or with a deadline a copy, in which `given` is filled in before.
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

  /// Sends and receives at the same time, as MPI_Sendrecv.
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

  /// Memory of this object. Allocates when a call is longer than all earlier ones.
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
  std::string abandoned_;  // why there is no further call
  std::shared_ptr<waiting> itself_;
};

}  // namespace gradsieve::mpi::detail
