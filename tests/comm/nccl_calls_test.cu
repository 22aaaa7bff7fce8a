// What comm/nccl.cuh asks of NCCL, with a stand-in for NCCL: ranks are threads that put messages into boxes. Needs no
// second GPU, and shows failures that no healthy NCCL would.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradsieve/comm/nccl.cuh>

#include "on_device.cuh"

namespace gs = gradsieve;
using bytes = std::vector<std::byte>;
using comm_conformance::at;

namespace {

/// Messages on their way, by sender and receiver.
struct boxes {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::pair<int, int>, std::deque<bytes>> full;

  void put(int from, int to, bytes message) {
    std::scoped_lock const lock{mutex};
    full[{from, to}].push_back(std::move(message));
    arrived.notify_all();
  }
  bytes take(int from, int to) {
    std::unique_lock lock{mutex};
    auto& box = full[{from, to}];
    arrived.wait(lock, [&] { return !box.empty(); });
    auto message = std::move(box.front());
    box.pop_front();
    return message;
  }
};

thread_local int open_groups = 0;
thread_local bool group_failed = false;
thread_local std::vector<std::function<void()>> waiting;  // receipts of an open group: they follow its dispatches

bytes fetch(void const* from, std::size_t n, cudaStream_t stream) {
  bytes host(n);
  cudaMemcpyAsync(host.data(), from, n, cudaMemcpyDefault, stream);
  cudaStreamSynchronize(stream);
  return host;
}

void store(void* to, bytes const& host, cudaStream_t stream) {
  cudaMemcpyAsync(to, host.data(), host.size(), cudaMemcpyDefault, stream);
  cudaStreamSynchronize(stream);
}

void receive(std::function<void()> receipt) {
  if (open_groups > 0)
    waiting.push_back(std::move(receipt));
  else
    receipt();
}

}  // namespace

struct ncclComm {
  boxes* all = nullptr;
  int rank = 0;
  int size = 1;
  std::vector<std::string> calls{};
  std::string fails{};  // this call returns ncclInvalidUsage
  ncclResult_t later = ncclSuccess;
  int polls = 0;  // as one that does not block: so often in progress after each call

  int left = 0;
  ncclResult_t answer(char const* call) {
    calls.emplace_back(call);
    if (fails == call) {
      group_failed = open_groups > 0;
      return ncclInvalidUsage;
    }
    left = polls;
    return polls > 0 && open_groups == 0 ? ncclInProgress : ncclSuccess;
  }
};

/// Gives each rank its part of this one's values, part(rank, bytes of a value), and writes the sums or maxima of what
/// the ranks gave this one. Returns whether values of this type can be summed.
template <class Part>
bool reduced(ncclComm_t comm, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream,
             Part const& part) {
  auto const reduce = [&]<class T>(T) {
    for (int r = 0; r < comm->size; ++r) comm->all->put(comm->rank, r, part(r, sizeof(T)));
    std::vector<T> result(n);
    for (int r = 0; r < comm->size; ++r) {
      auto const message = comm->all->take(r, comm->rank);
      T const* const values = reinterpret_cast<T const*>(message.data());
      for (std::size_t i = 0; i < n; ++i)
        result[i] = r == 0          ? values[i]
                    : op == ncclMax ? std::max(result[i], values[i])
                                    : static_cast<T>(result[i] + values[i]);
    }
    bytes host(n * sizeof(T));
    std::memcpy(host.data(), result.data(), host.size());
    store(to, host, stream);
    return true;
  };
  switch (type) {
    case ncclFloat32:
      return reduce(float{});
    case ncclFloat64:
      return reduce(double{});
    case ncclUint32:
      return reduce(std::uint32_t{});
    case ncclUint64:
      return reduce(std::uint64_t{});
    case ncclInt32:
      return reduce(int{});
    default:
      return false;
  }
}

// In place of CUDA's: a stream whose kernels wait for a peer that does not come.
static bool stuck = false;

extern "C" {

cudaError_t cudaStreamQuery(cudaStream_t stream) { return stuck ? cudaErrorNotReady : cudaStreamSynchronize(stream); }

char const* ncclGetErrorString(ncclResult_t code) { return code == ncclInvalidUsage ? "wrong use" : "something else"; }
char const* ncclGetLastError(ncclComm_t) { return "the stand-in's last words"; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->left-- > 0 ? ncclInProgress : comm->later;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return comm->answer("ncclCommUserRank");
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  *size = comm->size;
  return comm->answer("ncclCommCount");
}

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--open_groups > 0) return ncclSuccess;
  if (std::exchange(group_failed, false)) {
    waiting.clear();
    return ncclInvalidUsage;
  }
  for (auto const& receipt : std::exchange(waiting, {})) receipt();
  return ncclSuccess;
}

ncclResult_t ncclSend(void const* from, std::size_t n, ncclDataType_t, int to, ncclComm_t comm, cudaStream_t stream) {
  if (auto const code = comm->answer("ncclSend"); code != ncclSuccess) return code;
  comm->all->put(comm->rank, to, fetch(from, n, stream));
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, std::size_t n, ncclDataType_t, int from, ncclComm_t comm, cudaStream_t stream) {
  if (auto const code = comm->answer("ncclRecv"); code != ncclSuccess) return code;
  receive([=] {
    auto const message = comm->all->take(from, comm->rank);
    if (message.size() != n) std::abort();
    store(to, message, stream);
  });
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(void const* from, void* to, std::size_t n, ncclDataType_t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  auto const code = comm->answer("ncclBroadcast");
  if (code != ncclSuccess && code != ncclInProgress) return code;
  if (comm->rank == root)
    for (int r = 0; r < comm->size; ++r) comm->all->put(root, r, fetch(from, n, stream));
  receive([=] {
    auto const message = comm->all->take(root, comm->rank);
    if (message.size() != n) std::abort();
    store(to, message, stream);
  });
  return code;
}
ncclResult_t ncclAllGather(void const* mine, void* all, std::size_t n, ncclDataType_t, ncclComm_t comm,
                           cudaStream_t stream) {
  auto const code = comm->answer("ncclAllGather");
  if (code != ncclSuccess && code != ncclInProgress) return code;
  for (int r = 0; r < comm->size; ++r) comm->all->put(comm->rank, r, fetch(mine, n, stream));
  for (int r = 0; r < comm->size; ++r)
    store(static_cast<std::byte*>(all) + at(r) * n, comm->all->take(r, comm->rank), stream);
  return code;
}
ncclResult_t ncclAllReduce(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  auto const code = comm->answer("ncclAllReduce");
  if (code != ncclSuccess && code != ncclInProgress) return code;
  auto const whole = [&](int, std::size_t size) { return fetch(from, n * size, stream); };
  return reduced(comm, to, n, type, op, stream, whole) ? code : ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(void const* from, void* to, std::size_t n, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  auto const code = comm->answer("ncclReduceScatter");
  if (code != ncclSuccess && code != ncclInProgress) return code;
  auto const share = [&](int rank, std::size_t size) {
    return fetch(static_cast<std::byte const*>(from) + at(rank) * n * size, n * size, stream);
  };
  return reduced(comm, to, n, type, op, stream, share) ? code : ncclInvalidArgument;
}

}  // extern "C"

namespace {

/// f on every rank, a thread each; what they returned that is not empty.
std::string on_ranks(int ranks, int polls, std::function<std::string(ncclComm&)> const& f) {
  boxes all;
  std::vector<std::string> said(at(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      ncclComm comm{&all, r, ranks};
      comm.polls = polls;
      said[at(r)] = f(comm);
    });
  for (auto& each : threads) each.join();
  std::string text;
  for (auto const& each : said) text += each;
  return text;
}

std::string conformance(ncclComm& comm) {
  cudaStream_t stream = nullptr;
  gs::throw_on_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  auto const said = comm_conformance::run(on_device{gs::nccl::communicator_ref{&comm}, gs::device{stream}});
  cudaStreamDestroy(stream);
  return said + (open_groups == 0 ? "" : "a group is still open");
}

/// What the call threw: its text.
std::string thrown(std::function<void()> const& call) {
  try {
    call();
  } catch (gs::communication_error const& error) {
    return error.what();
  }
  return {};
}

bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("nccl does what every communicator must") {
  for (int const ranks : {1, 2, 3, 4}) CHECK(on_ranks(ranks, 0, conformance) == "");
}

TEST_CASE("nccl waits for a communicator that does not block") { CHECK(on_ranks(3, 4, conformance) == ""); }

TEST_CASE("nccl calls: names, groups and what needs none") {
  boxes all;
  ncclComm handle{&all};
  gs::nccl::communicator_ref const comm{&handle};
  gs::device const where;
  CHECK(comm.rank() == 0);
  CHECK(comm.size() == 1);
  handle.calls.clear();

  gs::cuda_buffer<std::byte> const memory{where, 16};
  auto const mine = std::span<std::byte const>{memory.first(8)};
  auto const room = memory.span().last(8);
  std::size_t const sizes[] = {8};
  std::size_t const none[] = {0};
  comm.all_gather(where, mine, room);
  comm.all_gather(where, mine, room, std::span{sizes});
  comm.broadcast(where, room, 0);
  comm.send_receive(where, mine, 0, room, 0);
  comm.all_to_all(where, mine, std::span{sizes}, room, std::span{sizes});
  std::vector<std::string> const called{"ncclAllGather", "ncclBroadcast", "ncclBroadcast", "ncclSend",
                                        "ncclRecv",      "ncclSend",      "ncclRecv"};
  CHECK(handle.calls == called);

  comm.all_gather(where, mine.first(0), room.first(0));
  comm.all_gather(where, mine.first(0), room.first(0), std::span{none});
  comm.broadcast(where, room.first(0), 0);
  comm.send_receive(where, mine.first(0), 0, room.first(0), 0);
  comm.all_to_all(where, mine.first(0), std::span{none}, room.first(0), std::span{none});
  comm.all_reduce(where, std::span<float>{}, gs::reduction::max);
  CHECK(handle.calls == called);

  gs::cuda_buffer<float> const floats{where, 4};
  auto const values = std::span<float const>{floats.first(2)};
  comm.reduce_scatter(where, values.first(0), floats.span().last(0), gs::reduction::sum);
  CHECK_THROWS_WITH_AS(comm.reduce_scatter(where, values, floats.span().last(1), gs::reduction::sum),
                       "gradsieve: rank 0 gives values: 2, expected 1", gs::mismatch);
  CHECK_THROWS_WITH_AS(comm.all_gather(where, mine, room.first(7)),
                       "gradsieve: rank 0 has room for bytes: 7, expected 8", gs::mismatch);
  CHECK_THROWS_AS(comm.all_gather(where, mine, room, std::span{none}), gs::mismatch);
  CHECK_THROWS_AS(comm.all_gather(where, mine, room.first(7), std::span{sizes}), gs::mismatch);
  CHECK_THROWS_AS(comm.all_gather(where, mine, memory.span(), std::span{sizes}), gs::mismatch);
  CHECK_THROWS_AS(comm.all_gather(where, mine, room, std::span{sizes}.first(0)), gs::mismatch);
  auto const given = std::span{sizes};
  CHECK_THROWS_WITH_AS(comm.all_to_all(where, mine.first(7), given, room, given),
                       "gradsieve: rank 0 has left to give bytes: 7, expected 8", gs::mismatch);
  CHECK_THROWS_AS(comm.all_to_all(where, mine, given, room.first(7), given), gs::mismatch);
  CHECK_THROWS_AS(comm.all_to_all(where, mine, given, memory.span(), given), gs::mismatch);
  CHECK_THROWS_AS(comm.all_to_all(where, mine, given.first(0), room, given), gs::mismatch);
  CHECK_THROWS_AS(comm.all_to_all(where, mine, std::span{none}, room, given), gs::mismatch);
  CHECK(handle.calls == called);
}

TEST_CASE("nccl: a null communicator is refused") {
  CHECK_THROWS_WITH_AS(gs::nccl::communicator_ref{nullptr}, "gradsieve: the NCCL communicator is null",
                       gs::communication_error);
}

TEST_CASE("nccl: what a call reports is thrown, groups are closed, and the next call works") {
  boxes all;
  ncclComm handle{&all};
  gs::device const where;
  gs::cuda_buffer<float> const values{where, 4};
  auto const mine = std::as_bytes(values.first(2));
  auto const room = std::as_writable_bytes(values.span()).last(8);
  std::size_t const sizes[] = {8};
  auto const call = [&](std::string const& name) {
    gs::nccl::communicator_ref const comm{&handle};
    if (name == "ncclAllReduce") comm.all_reduce(where, values.span(), gs::reduction::sum);
    if (name == "ncclReduceScatter")
      comm.reduce_scatter(where, std::span<float const>{values.first(2)}, values.span().last(2), gs::reduction::sum);
    if (name == "ncclAllGather") comm.all_gather(where, mine, room);
    if (name == "ncclBroadcast") comm.all_gather(where, mine, room, std::span{sizes});
    if (name == "ncclSend" || name == "ncclRecv") comm.send_receive(where, mine, 0, room, 0);
  };
  for (auto const* name : {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather", "ncclBroadcast", "ncclSend",
                           "ncclRecv", "ncclCommUserRank", "ncclCommCount"}) {
    handle.fails = name;
    auto const text = thrown([&] { call(name); });
    CHECK_MESSAGE(has(text, std::string{name} + " failed with code 5 (wrong use; last error: the stand-in's last"),
                  text);
    CHECK_MESSAGE(has(text, "nccl.cuh:"), text);
    CHECK(open_groups == 0);
    all.full.clear();  // a failed group leaves a message behind in the stand-in
    handle.fails.clear();
    CHECK(thrown([&] { call(name); }) == "");
  }
}

TEST_CASE("nccl: what went wrong after a call is thrown by the next, whichever it is") {
  boxes all;
  ncclComm handle{&all};
  gs::nccl::communicator_ref const comm{&handle};
  gs::device const where;
  gs::cuda_buffer<float> const values{where, 2};
  auto const mine = std::as_bytes(values.span());
  auto const room = std::as_writable_bytes(values.span());
  std::size_t const sizes[] = {8};
  handle.later = ncclRemoteError;
  handle.calls.clear();
  CHECK(has(thrown([&] { comm.all_reduce(where, values.span(), gs::reduction::sum); }),
            "a call before all_reduce failed with code 6"));
  CHECK(has(thrown([&] { comm.all_gather(where, mine, room); }), "a call before all_gather failed"));
  CHECK(has(thrown([&] { comm.all_gather(where, mine, room, std::span{sizes}); }), "a call before all_gather failed"));
  CHECK(has(thrown([&] { comm.broadcast(where, room, 0); }), "a call before broadcast failed"));
  CHECK(has(thrown([&] { comm.send_receive(where, mine, 0, room, 0); }), "a call before send_receive failed"));
  CHECK(has(thrown([&] { comm.all_to_all(where, mine, std::span{sizes}, room, std::span{sizes}); }),
            "a call before all_to_all failed"));
  CHECK(has(thrown([&] { gs::nccl::communicator_ref{&handle}; }), "failed with code 6"));
  CHECK(handle.calls.empty());
}

TEST_CASE("nccl: a deadline ends calls and waiting, and a failure ends waiting at once") {
  using namespace std::chrono_literals;
  boxes all;
  ncclComm handle{&all};
  gs::device const where;
  gs::cuda_buffer<float> const values{where, 2};
  gs::nccl::communicator_ref const comm{&handle, 20ms};
  auto const ends_well = [](std::string const& text) {
    return text.ends_with(" ms for NCCL; the communicator is to be aborted");
  };
  CHECK(thrown([&] { comm.wait(where); }) == "");
  comm.all_reduce(where, values.span(), gs::reduction::sum);

  handle.left = 1'000'000'000;  // in progress for ever
  auto text = thrown([&] { comm.all_reduce(where, values.span(), gs::reduction::sum); });
  CHECK_MESSAGE((has(text, "gradsieve: a call before all_reduce: rank 0 of 1 has waited ") && ends_well(text)), text);
  text = thrown([&] { gs::nccl::communicator_ref(&handle, 20ms); });
  CHECK_MESSAGE((has(text, "gradsieve: ncclCommGetAsyncError: this rank has waited ") && ends_well(text)), text);
  handle.left = 0;

  stuck = true;
  text = thrown([&] { comm.wait(where); });
  CHECK_MESSAGE((has(text, "gradsieve: wait: rank 0 of 1 has waited ") && ends_well(text)), text);
  handle.later = ncclRemoteError;
  text = thrown([&] { comm.wait(where); });
  CHECK_MESSAGE(has(text, "a call before wait failed with code 6"), text);
  stuck = false;
  CHECK(has(thrown([&] { comm.wait(where); }), "a call before wait failed with code 6"));
  handle.later = ncclSuccess;

  CHECK_THROWS_WITH_AS((gs::nccl::communicator_ref{&handle, -1ms}),
                       "gradsieve: a deadline of -1 milliseconds; the least is 0", gs::invalid_argument);
}
