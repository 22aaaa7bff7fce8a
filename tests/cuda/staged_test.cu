// Host communicators that serve a device: staged, cuda_aware, and self.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/comm/self.hpp>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/cuda/staged.cuh>

#include "on_device.cuh"

namespace gs = gradsieve;
using comm_conformance::at;
using communicator = gs::threads::communicator_ref;

namespace {

template <class Comm>
constexpr bool serves_a_device =
    gs::has_all_reduce<Comm, gs::device, float> && gs::has_reduce_scatter<Comm, gs::device, float> &&
    gs::has_all_gather<Comm, gs::device> && gs::has_broadcast<Comm, gs::device> &&
    gs::has_send_receive<Comm, gs::device> && gs::has_all_to_all<Comm, gs::device> && Comm::stream_ordered;
static_assert(serves_a_device<gs::staged<communicator>> && serves_a_device<gs::cuda_aware<communicator>>);
static_assert(serves_a_device<gs::self>);
static_assert(gs::staged<communicator>::stages && !gs::cuda_aware<communicator>::stages);
static_assert(!gs::has_all_reduce<gs::staged<communicator>, gs::device, float const>);

/// A stream of one rank.
struct stream {
  cudaStream_t handle = nullptr;
  stream() { gs::throw_on_error(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), "cudaStreamCreate"); }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { cudaStreamDestroy(handle); }
};

/// The suite on every rank, each with its own stream: the first complaint, or nothing.
std::string conformance(int ranks, std::function<std::string(communicator, gs::device)> const& run) {
  std::vector<std::string> said(at(ranks));
  gs::threads::run(ranks, [&](communicator comm) {
    stream const mine;
    said[at(comm.rank())] = run(comm, gs::device{mine.handle});
  });
  for (auto const& each : said)
    if (!each.empty()) return each;
  return {};
}

__global__ void fill(std::uint32_t* values, std::uint32_t n, std::uint32_t value, std::uint32_t rounds) {
  for (std::uint32_t r = 0; r <= rounds; ++r)
    for (auto i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
      values[i] = r == rounds ? value : r;
}

__global__ void increment(std::uint32_t* values, std::uint32_t n) {
  for (auto i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) ++values[i];
}

std::vector<std::uint32_t> host_copy(gs::device const& where, std::span<std::uint32_t const> values) {
  std::vector<std::uint32_t> copy(values.size());
  where.copy(std::as_bytes(values), std::as_writable_bytes(std::span{copy}));
  where.synchronize();
  return copy;
}

}  // namespace

TEST_CASE("staged does what every communicator must, small") {
  CHECK(conformance(1, [](communicator comm, gs::device where) {
          return comm_conformance::run(on_device{gs::staged{comm}, where});
        }) == "");
}

TEST_CASE("staged does what every communicator must") {
  for (int const ranks : {2, 3, 4})
    CHECK(conformance(ranks, [](communicator comm, gs::device where) {
            return comm_conformance::run(on_device{gs::staged{comm}, where});
          }) == "");
}

TEST_CASE("cuda_aware does what every communicator must, with one that reads what the device reads") {
  for (int const ranks : {1, 2, 3, 4})
    CHECK(conformance(ranks, [](communicator comm, gs::device where) {
            using aware = gs::cuda_aware<communicator>;
            return comm_conformance::run(on_device<aware, true>{aware{comm}, where});
          }) == "");
}

TEST_CASE("self does what every communicator must, on a device") {
  stream const mine;
  CHECK(comm_conformance::run(on_device{gs::self{}, gs::device{mine.handle}}) == "");
}

TEST_CASE("calls stand between kernels of one stream without a wait, small") {
  constexpr std::uint32_t n = 5000;
  int const ranks = 3;
  std::vector<int> right(at(ranks));
  gs::threads::run(ranks, [&](communicator inner) {
    gs::staged const comm{inner, n * sizeof(std::uint32_t)};
    stream const mine;
    gs::device const where{mine.handle};
    gs::cuda_buffer<std::uint32_t> const values{where, n};
    auto const rank = static_cast<std::uint32_t>(comm.rank());
    bool ok = true;
    for (std::uint32_t step = 0; step < 4; ++step) {
      fill<<<2, 64, 0, mine.handle>>>(values.data(), n, rank + step, 20);
      comm.all_reduce(where, values.span(), gs::reduction::sum);  // 3 + 3 step
      increment<<<2, 64, 0, mine.handle>>>(values.data(), n);
      comm.all_reduce(where, values.span(), gs::reduction::sum);  // 3 times 4 + 3 step
      if (rank != 1) fill<<<2, 64, 0, mine.handle>>>(values.data(), n, 7, 20);
      comm.broadcast(where, std::as_writable_bytes(values.span()), 1);
      increment<<<2, 64, 0, mine.handle>>>(values.data(), n);
      ok = ok && host_copy(where, values.span()) == std::vector<std::uint32_t>(n, 3 * (4 + 3 * step) + 1);
    }
    right[at(comm.rank())] = ok && comm.capacity() == n * sizeof(std::uint32_t);
  });
  CHECK(right == std::vector<int>(at(ranks), 1));
}

TEST_CASE("copies share the pinned memory, on streams of their own") {
  gs::threads::run(1, [](communicator inner) {
    gs::staged const first{inner};
    auto const second = first;
    CHECK(first.capacity() == 0);
    second.reserve(4096);
    CHECK(first.capacity() == 4096);
    first.reserve(1);
    CHECK(first.capacity() == 4096);
    auto third = first;
    auto const moved = std::move(third);
    CHECK(third.capacity() == 4096);  // NOLINT: a move copies

    stream const streams[2];
    gs::device const a{streams[0].handle};
    gs::device const b{streams[1].handle};
    constexpr std::uint32_t n = 1000;
    gs::cuda_buffer<std::uint32_t> const of_a{a, n};
    gs::cuda_buffer<std::uint32_t> const of_b{b, n};
    for (std::uint32_t step = 0; step < 20; ++step) {
      fill<<<1, 32, 0, a.stream>>>(of_a.data(), n, step, 0);
      fill<<<1, 32, 0, b.stream>>>(of_b.data(), n, ~step, 0);
      first.all_reduce(a, of_a.span(), gs::reduction::sum);  // still being copied back when the next call begins
      second.all_reduce(b, of_b.span(), gs::reduction::sum);
      CHECK(host_copy(a, of_a.span()) == std::vector<std::uint32_t>(n, step));
      CHECK(host_copy(b, of_b.span()) == std::vector<std::uint32_t>(n, ~step));
    }
    CHECK(first.capacity() == 4096);
  });
}

TEST_CASE("a call that needs more pinned memory takes it, and the bytes survive") {
  gs::threads::run(2, [](communicator inner) {
    gs::staged const comm{inner};
    stream const mine;
    gs::device const where{mine.handle};
    for (std::uint32_t const n : {1u, 100u, 10u, 3000u}) {
      gs::cuda_buffer<std::uint32_t> const values{where, n};
      fill<<<1, 32, 0, mine.handle>>>(values.data(), n, n, 0);
      comm.all_reduce(where, values.span(), gs::reduction::sum);
      if (host_copy(where, values.span()) != std::vector<std::uint32_t>(n, 2 * n)) throw gs::mismatch("wrong sum");
    }
    if (comm.capacity() != 3000 * sizeof(std::uint32_t)) throw gs::mismatch("wrong capacity");
  });
}

TEST_CASE("what the ranks disagree about is thrown, and device memory is as it was") {
  std::vector<int> right(3);
  gs::threads::run(3, [&](communicator inner) {
    gs::staged const comm{inner};
    stream const mine;
    gs::device const where{mine.handle};
    constexpr std::uint32_t n = 64;
    gs::cuda_buffer<std::uint32_t> const values{where, n};
    fill<<<1, 32, 0, mine.handle>>>(values.data(), n, 5, 0);
    auto const bytes = std::as_writable_bytes(values.span());
    auto const share = std::as_bytes(values.span().first(10));
    std::size_t const wrong[] = {40, 40, static_cast<std::size_t>(-1)};
    bool const odd = comm.rank() == 2;
    int refused = 0;
    auto const refuses = [&](auto const& call) {
      try {
        call();
      } catch (gs::mismatch const&) {
        ++refused;
      }
    };
    refuses([&] { comm.all_reduce(where, values.first(odd ? n : n - 1), gs::reduction::sum); });
    refuses([&] { comm.all_gather(where, share, bytes.first(odd ? 120 : 20)); });
    refuses([&] { comm.all_gather(where, share, bytes.first(20), std::span{wrong}); });
    refuses([&] { comm.all_gather(where, share, bytes.first(120), std::span{wrong}.first(1)); });
    refuses([&] { comm.broadcast(where, bytes, odd ? 1 : 0); });
    refuses([&] { comm.send_receive(where, share, odd ? 9 : 0, bytes.last(40), 0); });
    refuses([&] { comm.all_to_all(where, share, std::span{wrong}, bytes.last(40), std::span{wrong}); });
    bool const same = host_copy(where, values.span()) == std::vector<std::uint32_t>(n, 5);
    right[at(comm.rank())] = refused == 7 && same;
  });
  CHECK(right == std::vector<int>(3, 1));
}
