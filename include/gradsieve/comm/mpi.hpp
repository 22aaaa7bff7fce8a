// Ranks that are MPI processes. Host memory only.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include <gradsieve/comm/mpi_session.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::mpi {

/// A view of an intracommunicator that the caller owns: nothing is created, duplicated, freed or aborted. Counts beyond
/// MPI's int are sent in pieces. Messages of send_receive have the tag 26483. By default MPI ends the program on
/// errors; they are thrown only if the caller has set MPI_ERRORS_RETURN on the communicator.
///
/// With a pause, a waiting call sleeps between its tests for completion, instead of spinning as MPI does: for a thread
/// that communicates while others compute on the same cores.
///
/// With a deadline, a call that has waited that long for other ranks throws, and afterwards all copies throw. It is for
/// an MPI that keeps the survivors running after a rank has died, which would otherwise wait indefinitely (Open MPI 4:
/// `mpirun --enable-recovery`). It must be longer than ranks may lag behind each other, because of a slow batch or a
/// checkpoint. A collective cannot be cancelled, and MPI may still write to its buffers; so calls use memory of the
/// communicator, which is then never freed, instead of the caller's. After that, create a new communicator of the
/// survivors with ULFM, or end the process without MPI_Finalize, which would wait (session then does not call it).
///
/// Cost: a pause or a deadline needs nonblocking collectives, which MPI libraries run more slowly for large messages; a
/// deadline also copies what each call sends and receives.
/// @pre equal sizes, roots and peers on all ranks: otherwise MPI may fail on some ranks or wait indefinitely.
/// Memory: 2 ints per rank, allocated at construction and shared by copies, and with a deadline the bytes of the
/// longest call, allocated by the first call that needs them; no other call allocates.
/// Ranks: collective; send_receive only for the ranks that it names.
/// @throws error; mismatch, on this rank only, if its own sizes are inconsistent; communication_error, once the
/// deadline has passed, with the call, the rank and the time that it waited.
/// Threads: one call at a time for all copies.
class communicator_ref {
 public:
  static constexpr std::size_t default_max_count = std::size_t{1} << 30;  ///< of the constructor

  /// A view of `comm`. `max_count`: most elements, or bytes, in one MPI call; the same on all ranks, from 1 to INT_MAX.
  /// `pause`: how long a waiting call sleeps at a time, at most a second; 0: MPI waits in its own way. `deadline`: how
  /// long a call waits; 0: without limit. `pause` and `deadline` are both 0 on all ranks, or on none. Ranks: local.
  /// @throws invalid_argument for max_count, pause and deadline; communication_error unless MPI runs and `comm` fits.
  explicit communicator_ref(MPI_Comm comm, std::size_t max_count = default_max_count,
                            std::chrono::microseconds pause = {}, std::chrono::milliseconds deadline = {})
      : comm_{comm}, max_count_{max_count} {
    if (pause < std::chrono::microseconds{} || pause > std::chrono::seconds{1})
      throw invalid_argument("gradsieve: a pause of " + std::to_string(pause.count()) +
                             " microseconds is not from 0 to a second");
    if (deadline.count() < 0)
      throw invalid_argument("gradsieve: a deadline of " + std::to_string(deadline.count()) +
                             " milliseconds; the least is 0");
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
    calls_ = std::make_shared<detail::waiting>(rank_, size_, pause, deadline);
  }
  /// Copies share the buffers. Moving copies, so a moved-from communicator can still be called.
  communicator_ref(communicator_ref const&) = default;
  /// As the constructor.
  communicator_ref& operator=(communicator_ref const&) = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// Checks that any thread may call MPI, one at a time; see thread_checking_communicator. Ranks: local.
  /// @throws communication_error if MPI was initialised with less than MPI_THREAD_SERIALIZED.
  void require_threads() const {
    int level = MPI_THREAD_SINGLE;
    detail::check(MPI_Query_thread(&level), "MPI_Query_thread");
    if (level < MPI_THREAD_SERIALIZED)
      throw communication_error(
          "gradsieve: another thread is to call MPI, which needs MPI_THREAD_SERIALIZED; MPI was initialised with " +
          std::string{level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SINGLE"});
  }

  /// As has_all_reduce. A sum's last bits may depend on the number of ranks.
  template <class Space, detail::reducible T, std::size_t Extent>
  void all_reduce(Space const&, std::span<T, Extent> in_out, reduction how) const {
    calls_->require_usable();
    MPI_Op const op = how == reduction::max ? MPI_MAX : MPI_SUM;
    auto const type = detail::datatype(T{});
    for (std::span<T> left = in_out; !left.empty(); left = left.subspan(piece(left.size()))) {
      auto const n = count(left.size());
      auto const bytes = std::as_writable_bytes(left.first(piece(left.size())));
      if (calls_->is_own())
        calls_->on(bytes, bytes, [&](void* memory) {
          calls_->finish("MPI_Iallreduce", MPI_Iallreduce, MPI_IN_PLACE, memory, n, type, op, comm_);
        });
      else
        detail::check(MPI_Allreduce(MPI_IN_PLACE, left.data(), n, type, op, comm_), "MPI_Allreduce");
    }
  }

  /// As has_reduce_scatter. MPI chooses the order of a sum. Cost: one MPI_Reduce_scatter_block; beyond max_count
  /// elements in all, an MPI_Reduce to each rank, in pieces.
  template <class Space, detail::reducible T>
  void reduce_scatter(Space const&, std::span<T const> all, std::span<T> mine, reduction how) const {
    detail::expect(rank_, "gives values:", all.size(), ranks() * mine.size());
    calls_->require_usable();
    if (mine.empty()) return;
    MPI_Op const op = how == reduction::max ? MPI_MAX : MPI_SUM;
    auto const type = detail::datatype(T{});
    if (all.size() > max_count_) return reduce_to_each(all, mine, type, op);
    auto const n = count(mine.size());
    if (calls_->is_own())
      calls_->from_to(std::as_bytes(all), std::as_writable_bytes(mine), [&](void const* from, void* to) {
        calls_->finish("MPI_Ireduce_scatter_block", MPI_Ireduce_scatter_block, from, to, n, type, op, comm_);
      });
    else
      detail::check(MPI_Reduce_scatter_block(all.data(), mine.data(), n, type, op, comm_), "MPI_Reduce_scatter_block");
  }

  /// As has_all_gather. @pre `mine` is its own part of `all` or does not overlap it; `all` is size() times as long.
  /// Cost: one MPI_Allgather; beyond max_count bytes in all, a ring of size() - 1 send_receives.
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    detail::expect(rank_, "has room for bytes:", all.size(), ranks() * mine.size());
    calls_->require_usable();
    auto const place = [&](int r) { return all.subspan(index(r) * mine.size(), mine.size()); };
    detail::copy(mine, place(rank_));
    if (all.size() > max_count_) return ring(where, place);
    auto const n = count(mine.size());
    if (calls_->is_own())
      return calls_->on(all, place(rank_), [&](void* memory) {
        calls_->finish("MPI_Iallgather", MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, memory, n, MPI_BYTE,
                       comm_);
      });
    detail::check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), n, MPI_BYTE, comm_), "MPI_Allgather");
  }

  /// As has_all_gather, with MPI_Allgatherv. @pre `mine` as above; `sizes` are equal on all ranks and sum to `all`'s.
  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    detail::expect_sum(rank_, ranks(), false, all.size(), sizes);
    detail::expect(rank_, "gives bytes:", mine.size(), sizes[index(rank_)]);
    calls_->require_usable();

    auto const place = [&](int r) {
      return all.subspan(std::accumulate(sizes.begin(), sizes.begin() + r, std::size_t{0}), sizes[index(r)]);
    };
    detail::copy(mine, place(rank_));
    if (all.size() > max_count_) return ring(where, place);
    int* const counts = calls_->counts();
    int* const offsets = counts + ranks();
    std::transform(sizes.begin(), sizes.end(), counts, [](std::size_t size) { return static_cast<int>(size); });
    std::exclusive_scan(counts, counts + ranks(), offsets, 0);
    if (calls_->is_own())
      return calls_->on(all, place(rank_), [&](void* memory) {
        calls_->finish("MPI_Iallgatherv", MPI_Iallgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, memory, counts, offsets,
                       MPI_BYTE, comm_);
      });
    detail::check(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), counts, offsets, MPI_BYTE, comm_),
                  "MPI_Allgatherv");
  }

  template <class Space>
  void broadcast(Space const&, std::span<std::byte> in_out, int root) const {
    calls_->require_usable();
    for (; !in_out.empty(); in_out = in_out.subspan(piece(in_out.size()))) {
      auto const here = in_out.first(piece(in_out.size()));
      auto const n = count(in_out.size());
      if (calls_->is_own())
        calls_->on(here, here,
                   [&](void* memory) { calls_->finish("MPI_Ibcast", MPI_Ibcast, memory, n, MPI_BYTE, root, comm_); });
      else
        detail::check(MPI_Bcast(here.data(), n, MPI_BYTE, root, comm_), "MPI_Bcast");
    }
  }

  /// As has_send_receive. @pre `out` and `in` do not overlap; the peer receives, or sends, as many bytes. @throws
  /// error; mismatch if a message is shorter than `in`.
  template <class Space>
  void send_receive(Space const&, std::span<std::byte const> out, int to, std::span<std::byte> in, int from) const {
    calls_->require_usable();
    do {
      auto const gives = out.first(piece(out.size()));
      auto const gets = in.first(piece(in.size()));
      MPI_Status status;
      if (calls_->is_own())
        status = calls_->exchange(gives, to, gets, from, tag, comm_);
      else
        detail::check(MPI_Sendrecv(gives.data(), count(gives.size()), MPI_BYTE, to, tag, gets.data(),
                                   count(gets.size()), MPI_BYTE, from, tag, comm_, &status),
                      "MPI_Sendrecv");
      int received = 0;
      detail::check(MPI_Get_count(&status, MPI_BYTE, &received), "MPI_Get_count");
      detail::expect(rank_, "receives bytes:", index(received), gets.size());
      out = out.subspan(gives.size());
      in = in.subspan(gets.size());
      if (out.empty()) to = MPI_PROC_NULL;
      if (in.empty()) from = MPI_PROC_NULL;
    } while (!out.empty() || !in.empty());
  }

  /// As has_all_to_all. Cost: size() send_receives, with itself first and then with ranks at increasing distance. (For
  /// MPI_Alltoallv all ranks would have to know that every rank's bytes fit into its counts.) @pre `out` and `in` do
  /// not overlap; both ranks of a pair pass the same size. @throws error; mismatch if a message is too short.
  template <class Space>
  void all_to_all(Space const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    detail::expect_sum(rank_, ranks(), true, out.size(), out_sizes);
    detail::expect_sum(rank_, ranks(), false, in.size(), in_sizes);
    calls_->require_usable();
    auto const place = [](auto all, std::span<std::size_t const> sizes, int r) {
      return all.subspan(std::accumulate(sizes.begin(), sizes.begin() + r, std::size_t{0}), sizes[index(r)]);
    };
    for (int far = 0; far < size_; ++far) {
      int const to = (rank_ + far) % size_;
      int const from = (rank_ + size_ - far) % size_;
      send_receive(where, place(out, out_sizes, to), to, place(in, in_sizes, from), from);
    }
  }

 private:
  static constexpr int tag = 26483;

  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::size_t ranks() const noexcept { return index(size_); }
  [[nodiscard]] std::size_t piece(std::size_t n) const noexcept { return std::min(n, max_count_); }
  [[nodiscard]] int count(std::size_t n) const noexcept { return static_cast<int>(piece(n)); }

  /// A reduce_scatter in pieces, separate for each share, as a piece's elements of the shares are not contiguous.
  template <class T>
  void reduce_to_each(std::span<T const> all, std::span<T> mine, MPI_Datatype type, MPI_Op op) const {
    for (int root = 0; root < size_; ++root)
      for (std::size_t begin = 0; begin < mine.size(); begin += max_count_) {
        auto const from = all.subspan(index(root) * mine.size() + begin, piece(mine.size() - begin));
        auto const to = root == rank_ ? mine.subspan(begin, from.size()) : std::span<T>{};
        auto const n = count(from.size());
        if (calls_->is_own())
          calls_->from_to(std::as_bytes(from), std::as_writable_bytes(to), [&](void const* out, void* in) {
            calls_->finish("MPI_Ireduce", MPI_Ireduce, out, in, n, type, op, root, comm_);
          });
        else
          detail::check(MPI_Reduce(from.data(), to.data(), n, type, op, root, comm_), "MPI_Reduce");
      }
  }

  /// In step s every rank sends the share that it received in the previous step, beginning with its own.
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
  int rank_ = 0;
  int size_ = 0;
  std::shared_ptr<detail::waiting> calls_;
};

static_assert(communicator<communicator_ref> && has_all_reduce<communicator_ref, int, float> &&
              has_reduce_scatter<communicator_ref, int, float> && has_all_gather<communicator_ref, int> &&
              has_broadcast<communicator_ref, int> && has_send_receive<communicator_ref, int> &&
              has_all_to_all<communicator_ref, int>);

}  // namespace gradsieve::mpi
