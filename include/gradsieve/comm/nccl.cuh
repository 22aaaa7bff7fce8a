// Ranks that are GPUs, over NCCL; the only header that includes <nccl.h>. Device memory only.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <thread>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::nccl {

static_assert(NCCL_VERSION_CODE >= 21300, "gradsieve needs NCCL 2.13 or newer");

/// An NCCL call failed. The message has its name, its code with NCCL's texts, and the place of the call.
struct error : communication_error {
  /// From the result of a call.
  error(char const* call, ncclResult_t code, ncclComm_t comm, std::source_location const& place)
      : communication_error("gradsieve: " + std::string{call} + " failed with code " +
                            std::to_string(static_cast<int>(code)) + " (" + ncclGetErrorString(code) + last(comm) +
                            ") at " + place.file_name() + ":" + std::to_string(place.line())),
        code_{code} {}

  [[nodiscard]] ncclResult_t code() const noexcept { return code_; }  ///< NCCL's code

 private:
  /// NCCL keeps one text per thread, that of the latest failure, which need not be this one.
  static std::string last(ncclComm_t comm) {
    char const* const text = ncclGetLastError(comm);
    return text == nullptr || *text == '\0' ? std::string{} : std::string{"; last error: "} + text;
  }

  ncclResult_t code_;
};

/// A space whose work runs in the order of a stream.
template <class S>
concept stream_space = requires(S const& where) {
  { where.stream } -> std::convertible_to<cudaStream_t>;
};

namespace detail {

inline ncclDataType_t datatype(float) { return ncclFloat32; }
inline ncclDataType_t datatype(double) { return ncclFloat64; }
inline ncclDataType_t datatype(std::uint32_t) { return ncclUint32; }
inline ncclDataType_t datatype(std::uint64_t) { return ncclUint64; }
inline ncclDataType_t datatype(std::int32_t) { return ncclInt32; }

template <class T>
concept reducible = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint32_t> ||
                    std::same_as<T, std::uint64_t> || std::same_as<T, std::int32_t>;

}  // namespace detail

/// A view of a communicator that the caller owns: nothing is created, finalised, aborted or destroyed. Every call is
/// enqueued on `where.stream` and returns; its result is valid in stream order. A CUDA graph can capture a call. The
/// caller synchronises the stream before it destroys the communicator. With a nonblocking NCCL communicator, a call
/// polls until NCCL has enqueued it.
///
/// If a peer is lost or makes no call, the stream never gets past the collective, and whatever synchronises it waits
/// indefinitely, as device compressors do in their first exchange and for a report. Call wait() before: it polls NCCL
/// for errors and throws once the deadline has passed. Then abort the communicator (ncclCommAbort), which ends its
/// kernels; the memory of their spans must not be freed before.
///
/// @pre spans are device memory of the communicator's device, which is current, and live until the stream has passed
/// the call; equal sizes, roots and peers on all ranks: otherwise ranks may wait indefinitely.
/// Memory: none; NCCL may allocate at the first calls. Ranks: collective; send_receive only for the ranks it names.
/// @throws error for what a call reports, and for an earlier failure: NCCL reports a lost peer or a broken link only
/// later, and then every call throws until the caller aborts the communicator; mismatch, on this rank only, if its own
/// sizes are inconsistent; communication_error if a call has polled until the deadline.
/// Threads: one call at a time for all copies; one thread for each rank of a process.
class communicator_ref {
 public:
  static constexpr bool stream_ordered = true;

  /// A view of `comm`; waits if NCCL is still initialising it. `deadline`: how long a call polls and wait() waits; 0:
  /// without limit. Ranks: local.
  /// @throws communication_error if `comm` is null; invalid_argument unless deadline >= 0; error.
  explicit communicator_ref(ncclComm_t comm, std::chrono::milliseconds deadline = {})
      : comm_{comm}, deadline_{deadline} {
    if (deadline.count() < 0)
      throw invalid_argument("gradsieve: a deadline of " + std::to_string(deadline.count()) +
                             " milliseconds; the least is 0");
    if (comm == nullptr) throw communication_error("gradsieve: the NCCL communicator is null");
    finish("ncclCommGetAsyncError");
    check(ncclCommUserRank(comm, &rank_), "ncclCommUserRank");
    check(ncclCommCount(comm, &size_), "ncclCommCount");
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }

  /// As has_all_reduce: NCCL's ring, tree and switch algorithms reduce each element in one place, so all ranks get the
  /// same bits. A sum's last bits may depend on the number of ranks and on the algorithm.
  template <stream_space Space, detail::reducible T, std::size_t Extent>
  void all_reduce(Space const& where, std::span<T, Extent> in_out, reduction how) const {
    finish("a call before all_reduce");
    if (in_out.empty()) return;
    check(ncclAllReduce(in_out.data(), in_out.data(), in_out.size(), detail::datatype(T{}),
                        how == reduction::max ? ncclMax : ncclSum, comm_, where.stream),
          "ncclAllReduce");
  }

  /// As has_reduce_scatter. NCCL chooses the order of a sum.
  template <stream_space Space, detail::reducible T>
  void reduce_scatter(Space const& where, std::span<T const> all, std::span<T> mine, reduction how) const {
    expect("gives values:", all.size(), ranks() * mine.size());
    finish("a call before reduce_scatter");
    if (mine.empty()) return;
    check(ncclReduceScatter(all.data(), mine.data(), mine.size(), detail::datatype(T{}),
                            how == reduction::max ? ncclMax : ncclSum, comm_, where.stream),
          "ncclReduceScatter");
  }

  /// As has_all_gather. @pre `mine` is its own part of `all` or does not overlap it; `all` is size() times as long.
  template <stream_space Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    expect("has room for bytes:", all.size(), ranks() * mine.size());
    finish("a call before all_gather");
    if (mine.empty()) return;
    check(ncclAllGather(mine.data(), all.data(), mine.size(), ncclUint8, comm_, where.stream), "ncclAllGather");
  }

  /// As has_all_gather. @pre `mine` as above; `sizes`, in host memory, are equal on all ranks and sum to the size of
  /// `all`.
  /// Cost: a group of size() broadcasts: NCCL has no all-gather of unequal shares.
  template <stream_space Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    expect_sum(false, all.size(), sizes);
    expect("gives bytes:", mine.size(), sizes[index(rank_)]);
    finish("a call before all_gather");
    group([&](auto const& add) {
      for (int root = 0; root < size_; ++root) {
        std::size_t const size = sizes[index(root)];
        void const* const from = root == rank_ ? mine.data() : all.data();  // read on the root only
        if (size > 0) add(ncclBroadcast(from, all.data(), size, ncclUint8, root, comm_, where.stream), "ncclBroadcast");
        all = all.subspan(size);
      }
    });
  }

  template <stream_space Space>
  void broadcast(Space const& where, std::span<std::byte> in_out, int root) const {
    finish("a call before broadcast");
    if (in_out.empty()) return;
    check(ncclBroadcast(in_out.data(), in_out.data(), in_out.size(), ncclUint8, root, comm_, where.stream),
          "ncclBroadcast");
  }

  /// As has_send_receive. @pre `out` and `in` do not overlap; the peer receives, or sends, as many bytes.
  template <stream_space Space>
  void send_receive(Space const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int from) const {
    finish("a call before send_receive");
    group([&](auto const& add) {
      if (!out.empty()) add(ncclSend(out.data(), out.size(), ncclUint8, to, comm_, where.stream), "ncclSend");
      if (!in.empty()) add(ncclRecv(in.data(), in.size(), ncclUint8, from, comm_, where.stream), "ncclRecv");
    });
  }

  /// As has_all_to_all. @pre `out` and `in` do not overlap; sizes are in host memory; both ranks of a pair pass the
  /// same size for a message. Cost: a group of size() sends and as many receives, without the empty ones.
  template <stream_space Space>
  void all_to_all(Space const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    expect_sum(true, out.size(), out_sizes);
    expect_sum(false, in.size(), in_sizes);
    finish("a call before all_to_all");
    group([&](auto const& add) {
      for (int r = 0; r < size_; ++r) {
        auto const gives = out.first(out_sizes[index(r)]);
        auto const gets = in.first(in_sizes[index(r)]);
        if (!gives.empty()) add(ncclSend(gives.data(), gives.size(), ncclUint8, r, comm_, where.stream), "ncclSend");
        if (!gets.empty()) add(ncclRecv(gets.data(), gets.size(), ncclUint8, r, comm_, where.stream), "ncclRecv");
        out = out.subspan(gives.size());
        in = in.subspan(gets.size());
      }
    });
  }

  /// Synchronises the stream, as cudaStreamSynchronize(), and polls NCCL for errors while it waits.
  /// Ranks: local.
  /// @throws error for what NCCL reports; communication_error once the deadline has passed; device_error.
  template <stream_space Space>
  void wait(Space const& where) const {
    auto const start = clock::now();
    for (;; std::this_thread::yield()) {
      auto const code = cudaStreamQuery(where.stream);
      if (code == cudaSuccess) return finish("a call before wait");
      if (code != cudaErrorNotReady)
        throw device_error("gradsieve: cudaStreamQuery failed with code " + std::to_string(static_cast<int>(code)) +
                           " (" + cudaGetErrorString(code) + ")");
      throw_if_failed("a call before wait");
      require_time("wait", start);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  static std::size_t index(int i) noexcept { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::size_t ranks() const noexcept { return index(size_); }

  void expect(char const* does, std::size_t n, std::size_t wanted) const {
    if (n != wanted)
      throw mismatch("gradsieve: rank " + std::to_string(rank_) + " " + does + " " + std::to_string(n) + ", expected " +
                     std::to_string(wanted));
  }

  /// Checks sizes of what a rank sends (`gives`) or of its receive buffer.
  void expect_sum(bool gives, std::size_t bytes, std::span<std::size_t const> sizes) const {
    expect("passes sizes:", sizes.size(), ranks());
    for (std::size_t const size : sizes) {
      if (size > bytes) expect(gives ? "has left to give bytes:" : "has room left for bytes:", bytes, size);
      bytes -= size;
    }
    expect(gives ? "has too many bytes to send:" : "has too many bytes to receive into:", bytes, 0);
  }

  /// Checks the result of an NCCL call; every call uses it.
  void check(ncclResult_t code, char const* call,
             std::source_location const& place = std::source_location::current()) const {
    if (code == ncclInProgress) return finish(call, place);
    if (code != ncclSuccess) throw error(call, code, comm_, place);
  }

  /// Waits until no call is in progress on the host. @throws error if a call failed after it had returned.
  void finish(char const* call, std::source_location const& place = std::source_location::current()) const {
    for (auto const start = clock::now(); throw_if_failed(call, place) == ncclInProgress; std::this_thread::yield())
      require_time(call, start);
  }

  /// Returns ncclInProgress if a call is in progress. @throws error if one has failed.
  ncclResult_t throw_if_failed(char const* call,
                               std::source_location const& place = std::source_location::current()) const {
    ncclResult_t state = ncclSuccess;
    if (auto const code = ncclCommGetAsyncError(comm_, &state); code != ncclSuccess)
      throw error("ncclCommGetAsyncError", code, comm_, place);
    if (state != ncclSuccess && state != ncclInProgress) throw error(call, state, comm_, place);
    return state;
  }

  void require_time(char const* call, clock::time_point start) const {
    auto const waited = clock::now() - start;
    if (deadline_.count() == 0 || waited < deadline_) return;
    auto const ms = std::chrono::duration_cast<std::chrono::milliseconds>(waited).count();
    auto const who = size_ == 0 ? "this rank" : "rank " + std::to_string(rank_) + " of " + std::to_string(size_);
    throw communication_error("gradsieve: " + std::string{call} + ": " + who + " has waited " + std::to_string(ms) +
                              " ms for NCCL; the communicator is to be aborted");
  }

  /// Opens a group, passes `calls` a function that records each call's code and name, and closes the group, also after
  /// a failure: an open group would swallow all later calls of this thread. @throws error for the first failure.
  template <class Calls>
  void group(Calls const& calls, std::source_location const& place = std::source_location::current()) const {
    check(ncclGroupStart(), "ncclGroupStart", place);
    ncclResult_t failed = ncclSuccess;
    char const* name = "";
    calls([&](ncclResult_t code, char const* call) {
      if (failed != ncclSuccess || code == ncclSuccess || code == ncclInProgress) return;
      failed = code;
      name = call;
    });
    auto const end = ncclGroupEnd();
    if (failed != ncclSuccess) throw error(name, failed, comm_, place);
    check(end, "ncclGroupEnd", place);
  }

  ncclComm_t comm_;
  std::chrono::milliseconds deadline_;
  int rank_ = 0;
  int size_ = 0;
};

namespace detail {

struct any_stream {
  cudaStream_t stream;
};

}  // namespace detail

static_assert(communicator<communicator_ref> && has_all_reduce<communicator_ref, detail::any_stream, float> &&
              has_reduce_scatter<communicator_ref, detail::any_stream, float> &&
              has_all_gather<communicator_ref, detail::any_stream> &&
              has_broadcast<communicator_ref, detail::any_stream> &&
              has_send_receive<communicator_ref, detail::any_stream> &&
              has_all_to_all<communicator_ref, detail::any_stream>);

}  // namespace gradsieve::nccl
