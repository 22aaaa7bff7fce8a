// Ranks that are threads of one process: for tests, and for one process that trains several replicas.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/config.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/process.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::threads {

namespace detail {

enum class shape : std::uint8_t { reduce, gather, broadcast, exchange, all_to_all };

struct request {
  std::string_view call{};
  shape what{};
  int kind = 0;  // the root, or of an all_reduce: size of a value, +256 floating, +512 signed, +1024 max
  std::span<std::byte const> out{};
  std::span<std::byte> in{};
  std::size_t share = 0;  // bytes expected of every sending rank, unless `sizes` has them for each
  int to = 0;
  int from = 0;
  std::span<std::size_t const> sizes{};
  std::span<std::size_t const> out_sizes{};  // of an all_to_all: bytes for each rank
};

/// Bytes that a request sends to `rank`: its part of them in an all_to_all, otherwise all.
[[nodiscard]] inline std::size_t bytes_for(std::size_t rank, request const& from) noexcept {
  return from.out_sizes.empty() ? from.out.size() : from.out_sizes[rank];
}

/// These bytes: those for the ranks are contiguous.
[[nodiscard]] inline std::span<std::byte const> message_for(std::size_t rank, request const& from) noexcept {
  std::size_t at = 0;
  for (std::size_t r = 0; r < rank && !from.out_sizes.empty(); ++r) at += from.out_sizes[r];
  return from.out.subspan(at, bytes_for(rank, from));
}

/// True if these sizes sum to `bytes` without overflow.
[[nodiscard]] inline bool sum_to(std::span<std::size_t const> sizes, std::size_t bytes) noexcept {
  for (auto const size : sizes) {
    if (size > bytes) return false;
    bytes -= size;
  }
  return bytes == 0;
}

/// The reason why the ranks' requests do not match; empty if they do.
[[nodiscard]] inline std::string mismatch_of(std::span<request const> all) {
  auto const text = [](std::integral auto x) { return std::to_string(x); };
  auto const differ = [&](auto a, std::string const& one, auto b, std::string const& other) {
    return "gradsieve: " + std::string{all[a].call} + ": rank " + text(a) + one + ", rank " + text(b) + other;
  };
  auto const calls = [&](auto r) { return " calls " + std::string{all[r].call} + ", kind " + text(all[r].kind); };
  auto const exists = [&](int rank) { return rank >= 0 && std::cmp_less(rank, all.size()); };
  std::size_t const last = all.size() - 1;

  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (mine.call != all[0].call || mine.kind != all[0].kind) return differ(0u, calls(0u), r, calls(r));
    if (!exists(mine.to) || !exists(mine.from))
      return differ(r, " names rank " + text(exists(mine.to) ? mine.from : mine.to), last, " is the last");
  }
  for (std::size_t r = 0; r < all.size() && all[r].what == shape::all_to_all; ++r) {
    request const& mine = all[r];
    for (auto const count : {mine.out_sizes.size(), mine.sizes.size()})
      if (count != all.size()) return differ(r, " passes " + text(count) + " sizes", last, " is the last");
    if (!sum_to(mine.out_sizes, mine.out.size()) || !sum_to(mine.sizes, mine.in.size()))
      return differ(r,
                 " passes sizes that do not sum to its " + text(mine.out.size()) + " bytes, or its room for " +
                     text(mine.in.size()),
                 last, " is the last");
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    request const& mine = all[r];
    if (!mine.sizes.empty() && mine.sizes.size() != all.size())
      return differ(r, " passes " + text(mine.sizes.size()) + " sizes", last, " is the last");
    bool const of_one = mine.what == shape::broadcast || mine.what == shape::exchange;
    std::size_t sum = 0;
    for (std::size_t s = 0; s < all.size(); ++s) {
      if (of_one && std::cmp_not_equal(mine.from, s)) continue;
      if (mine.what == shape::exchange && std::cmp_not_equal(all[s].to, r))
        return differ(r, " receives from rank " + text(s), s, " sends to rank " + text(all[s].to));
      std::size_t const expected = mine.sizes.empty() ? mine.share : mine.sizes[s];
      if (auto const passed = bytes_for(r, all[s]); passed != expected)
        return differ(s, " passes " + text(passed) + " bytes", r, " expects " + text(expected));
      sum += expected;
    }
    if (mine.what == shape::gather && sum != mine.in.size())
      return differ(r, " has room for " + text(mine.in.size()) + " bytes", r, " expects " + text(sum));
  }
  return {};
}

}  // namespace detail

class communicator_ref;

/// Ranks that are threads of one process. Owns their shared state, and must outlive its communicators. With a deadline,
/// a rank that has waited that long in a call leaves the group and throws; its buffers are no longer used. In a child
/// of fork() there are no other ranks: calls throw, and the destructor does not wait. Memory: about 90 bytes per rank,
/// allocated here; a collective allocates only if it throws. Threads: one at a time for each rank.
class group {
 public:
  /// A group of `ranks`. `deadline`: how long a rank waits for the others in a call; 0: without limit. @throws
  /// invalid_argument unless ranks >= 1 and deadline >= 0.
  explicit group(int ranks, std::chrono::milliseconds deadline = {}) : deadline_{deadline} {
    if (ranks < 1) throw invalid_argument("gradsieve: a group of " + std::to_string(ranks) + " ranks; the least is 1");
    if (deadline.count() < 0)
      throw invalid_argument("gradsieve: a deadline of " + std::to_string(deadline.count()) +
                             " milliseconds; the least is 0");
    requests_.resize(static_cast<std::size_t>(ranks));
    saw_departure_.resize(requests_.size());
  }
  group(group const&) = delete;
  group& operator=(group const&) = delete;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(requests_.size()); }

  /// The communicator of one rank. @throws invalid_argument unless 0 <= rank < size().
  [[nodiscard]] communicator_ref communicator(int rank);

  /// Ends this rank's calls: ranks that wait for it, or call later, throw a communication_error that names the first
  /// rank that left. `run` calls it; code with threads of its own should. Ranks: local, by the rank itself.
  void leave(int rank) noexcept {
    if (process_ != process_id()) return;  // the mutex may stay locked
    std::scoped_lock const lock{shared_->mutex};
    if (departed_ == nobody) departed_ = rank;
    shared_->all_here.notify_all();
  }

  /// True if this rank has thrown a communication_error because another rank had left.
  [[nodiscard]] bool was_told(int rank) const {
    std::unique_lock lock{shared_->mutex, std::defer_lock};
    if (process_ == process_id()) lock.lock();  // in a child no other thread writes
    return saw_departure_[static_cast<std::size_t>(rank)] != 0;
  }

 private:
  friend class communicator_ref;
  static constexpr int nobody = -1;

  /// Waits for all ranks. The last one compares their requests, while no rank accesses a buffer. A call's second
  /// barrier has no deadline, as all ranks are about to arrive.
  void barrier(int rank, bool first) {
    if (process_ != process_id() && size() > 1)
      throw communication_error("gradsieve: rank " + std::to_string(rank) +
                                " was forked away from the group's threads, which are in its parent");
    std::unique_lock lock{shared_->mutex};
    if (departed_ == nobody) {
      auto const now = phase_;
      if (++here_ == requests_.size()) {
        if (first) mismatch_ = detail::mismatch_of(requests_);
        here_ = 0;
        ++phase_;
        shared_->all_here.notify_all();
        return;
      }
      auto const over = [&] { return phase_ != now || departed_ != nobody; };
      if (!first || deadline_.count() == 0)
        shared_->all_here.wait(lock, over);
      else if (!shared_->all_here.wait_for(lock, deadline_, over))
        give_up(rank);
      if (phase_ != now) return;
    }
    saw_departure_[static_cast<std::size_t>(rank)] = 1;
    throw communication_error("gradsieve: rank " + std::to_string(departed_) + " has left the group, rank " +
                              std::to_string(rank) + " cannot go on");
  }

  /// @pre the mutex is locked
  [[noreturn]] void give_up(int rank) {
    departed_ = rank;
    shared_->all_here.notify_all();
    throw communication_error("gradsieve: " + std::string{requests_[static_cast<std::size_t>(rank)].call} + ": rank " +
                              std::to_string(rank) + " has waited " + std::to_string(deadline_.count()) + " ms, " +
                              std::to_string(here_) + " of " + std::to_string(size()) +
                              " ranks have come; it has left the group");
  }

  std::vector<detail::request> requests_;  // one per rank; written before a barrier, read after it
  std::vector<char> saw_departure_;
  std::string mismatch_;  // written by the last rank of a first barrier, read by all after it
  struct waiting {
    std::mutex mutex;
    std::condition_variable all_here;
  };
  std::unique_ptr<waiting, gradsieve::detail::delete_in_own_process> shared_{new waiting};
  std::size_t here_ = 0;
  std::uint64_t phase_ = 0;
  int departed_ = nobody;
  std::chrono::milliseconds deadline_;
  std::int64_t process_ = process_id();
};

/// One rank's view of a group. A call returns once every rank has made it; waiting ranks sleep instead of spinning.
/// Sizes, roots and peers are compared before anything is copied: if they do not match, every rank throws mismatch, no
/// buffer has changed, and the group remains usable. Memory: none. Ranks: collective.
/// @throws mismatch on every rank; communication_error if a rank has left, after the deadline, or in a forked child.
/// Threads: any thread may use a copy, but a rank makes one call at a time.
class communicator_ref {
 public:
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return group_->size(); }

  /// Sums in rank order: every rank and every run gets the same bits. The maximum with a NaN is unspecified. Cost: each
  /// rank reads and writes its slice, n / P elements, of all P buffers.
  template <class Space, class T, std::size_t Extent>
    requires(std::is_arithmetic_v<T> && !std::is_const_v<T>)
  void all_reduce(Space const&, std::span<T, Extent> in_out, reduction how) const {
    std::span const bytes{std::as_writable_bytes(std::span<T>{in_out})};
    run_call({"all_reduce", shape::reduce, kind<T>(how), bytes, bytes, bytes.size()},
             [&] { reduce_slice(std::span<T>{in_out}, how); });
  }

  /// Sums in rank order, to the same bits as all_reduce. Cost: each rank reads its share of all P buffers.
  template <class Space, class T>
    requires(std::is_arithmetic_v<T> && !std::is_const_v<T>)
  void reduce_scatter(Space const&, std::span<T const> all, std::span<T> mine, reduction how) const {
    auto const bytes = std::as_writable_bytes(mine);
    run_call({"reduce_scatter", shape::reduce, kind<T>(how), std::as_bytes(all), bytes,
              bytes.size() * group_->requests_.size()},
             [&] { reduce_share(mine, how); });
  }

  /// As has_all_gather. @pre `mine` is its own part of `all` or does not overlap it; `all` is size() times as long.
  template <class Space>
  void all_gather(Space const&, std::span<std::byte const> mine, std::span<std::byte> all) const {
    run_call({"all_gather", shape::gather, 0, mine, all, mine.size()}, [&] { gather(all); });
  }

  /// As has_all_gather. @pre `mine` as above; `sizes` are equal on all ranks and sum to the size of `all`.
  template <class Space>
  void all_gather(Space const&, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    run_call({"all_gather of sizes", shape::gather, 0, mine, all, 0, 0, 0, sizes}, [&] { gather(all); });
  }

  template <class Space>
  void broadcast(Space const&, std::span<std::byte> in_out, int root) const {
    run_call({"broadcast", shape::broadcast, root, in_out, in_out, in_out.size(), 0, root},
             [&] { copy(request_of(root).out, in_out); });
  }

  /// As has_send_receive. Every rank takes part; one with nothing to send or receive names itself with empty spans.
  /// @pre `out` and `in` do not overlap.
  template <class Space>
  void send_receive(Space const&, std::span<std::byte const> out, int to, std::span<std::byte> in, int from) const {
    run_call({"send_receive", shape::exchange, 0, out, in, in.size(), to, from},
             [&] { copy(request_of(from).out, in); });
  }

  /// As has_all_to_all. @pre `out` and `in` do not overlap.
  template <class Space>
  void all_to_all(Space const&, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    run_call({"all_to_all", shape::all_to_all, 0, out, in, 0, 0, 0, in_sizes, out_sizes}, [&] { gather(in); });
  }

 private:
  friend class group;
  using shape = detail::shape;
  communicator_ref(group& all, int rank) noexcept : group_{&all}, rank_{rank} {}

  [[nodiscard]] detail::request const& request_of(int rank) const noexcept {
    return group_->requests_[static_cast<std::size_t>(rank)];
  }

  static void copy(std::span<std::byte const> from, std::span<std::byte> to) noexcept {
    if (!from.empty() && from.data() != to.data()) std::memmove(to.data(), from.data(), from.size());
  }

  /// A number that must be equal on all ranks of a reduction.
  template <class T>
  [[nodiscard]] static constexpr int kind(reduction how) noexcept {
    constexpr int type = 256 * std::is_floating_point_v<T> + 512 * std::is_signed_v<T>;
    return static_cast<int>(sizeof(T)) + type + (how == reduction::max ? 1024 : 0);
  }

  /// Runs one call of all ranks. No rank returns, so no buffer is freed, before all ranks have finished with them.
  template <class Move>
  void run_call(detail::request const& mine, Move const& move) const {
    group_->requests_[static_cast<std::size_t>(rank_)] = mine;
    group_->barrier(rank_, true);
    if (!group_->mismatch_.empty()) throw mismatch(group_->mismatch_);
    move();
    group_->barrier(rank_, false);
  }

  /// Copies what the ranks send to this one, in their order.
  void gather(std::span<std::byte> all) const noexcept {
    for (auto const& each : group_->requests_) {
      auto const message = detail::message_for(static_cast<std::size_t>(rank_), each);
      copy(message, all.first(message.size()));
      all = all.subspan(message.size());
    }
  }

  /// The ranks' values from `begin` on, reduced in rank order.
  template <class T>
  void reduce(std::size_t begin, std::span<T> to, reduction how) const noexcept {
    for (std::size_t r = 0; r < group_->requests_.size(); ++r) {
      T const* const from = reinterpret_cast<T const*>(group_->requests_[r].out.data()) + begin;
      if (r == 0)
        std::copy_n(from, to.size(), to.begin());
      else if (how == reduction::sum)
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<T>(to[i] + from[i]);
      else
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
    }
  }

  /// Reduces blocks of a slice on the stack, with vector loops over one rank after the other.
  template <class T>
  void reduce_slice(std::span<T> mine, reduction how) const noexcept {
    auto const ranks = static_cast<std::size_t>(size());
    auto const rank = static_cast<std::size_t>(rank_);
    std::size_t const end = (rank + 1) * mine.size() / ranks;
    std::size_t begin = rank * mine.size() / ranks;
    std::array<T, 4096 / sizeof(T)> block;
    for (; begin < end; begin += block.size()) {
      std::size_t const n = std::min(block.size(), end - begin);
      reduce(begin, std::span{block}.first(n), how);
      for (auto const& each : group_->requests_)
        std::copy_n(block.begin(), n, reinterpret_cast<T*>(each.in.data()) + begin);
    }
  }

  /// Reduces blocks that stay in the cache while the ranks' values are added.
  template <class T>
  void reduce_share(std::span<T> mine, reduction how) const noexcept {
    constexpr std::size_t block = 4096 / sizeof(T);
    std::size_t const begin = static_cast<std::size_t>(rank_) * mine.size();
    for (std::size_t done = 0; done < mine.size(); done += block)
      reduce(begin + done, mine.subspan(done, std::min(block, mine.size() - done)), how);
  }

  group* group_;
  int rank_;
};

inline communicator_ref group::communicator(int rank) {
  if (rank < 0 || rank >= size())
    throw invalid_argument("gradsieve: rank " + std::to_string(rank) + " of a group of " + std::to_string(size()) +
                           " ranks");
  return {*this, rank};
}

/// Calls f(communicator_ref) on `ranks` new threads, one per rank, and returns when all have ended. A rank whose call
/// ends, by an exception or not, has left the group. `deadline` as in group's constructor. @pre f may be called
/// concurrently @throws the exception of f on the lowest rank that failed by itself, not because another rank had left;
/// invalid_argument as group's constructor; std::system_error if a thread cannot be started.
template <class F>
void run(int ranks, F&& f, std::chrono::milliseconds deadline = {}) {
  group all{ranks, deadline};
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  auto const work = [&](int rank) noexcept {
    try {
      f(all.communicator(rank));
    } catch (...) {
      errors[static_cast<std::size_t>(rank)] = std::current_exception();
    }
    all.leave(rank);
  };

  std::vector<std::thread> workers;
  workers.reserve(errors.size());
  std::exception_ptr not_started;
  try {
    for (int rank = 0; rank < ranks; ++rank) workers.emplace_back(work, rank);
  } catch (...) {
    not_started = std::current_exception();
    all.leave(static_cast<int>(workers.size()));
  }
  for (auto& each : workers) each.join();

  if (not_started) std::rethrow_exception(not_started);
  for (bool const knows : {false, true})
    for (int rank = 0; rank < ranks; ++rank)
      if (auto const& error = errors[static_cast<std::size_t>(rank)]; error && all.was_told(rank) == knows)
        std::rethrow_exception(error);
}

static_assert(!std::is_copy_constructible_v<group>);
static_assert(communicator<communicator_ref> && has_all_reduce<communicator_ref, int, float> &&
              has_reduce_scatter<communicator_ref, int, float> && has_all_gather<communicator_ref, int> &&
              has_broadcast<communicator_ref, int> && has_send_receive<communicator_ref, int> &&
              has_all_to_all<communicator_ref, int>);

}  // namespace gradsieve::threads
