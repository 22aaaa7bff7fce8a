// Ranks of a torch.distributed process group: one adapter for Gloo, NCCL, MPI and UCC.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/host/workspace.hpp>

#if defined(GRADSIEVE_TORCH_CUDA)
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <gradsieve/cuda/device.cuh>
#endif

namespace example {

namespace gs = gradsieve;

/// A view of a process group, which it keeps alive. For host memory a call waits until it is done. For a device (with
/// GRADSIEVE_TORCH_CUDA) it is torch's current stream meanwhile that counts: NCCL's collectives wait for it and it for
/// them, the host does not. Collectives are issued in the order of the calls, so
/// that all ranks must make the same calls in the same order: give it a group that nothing else uses at that time.
/// Shares of different sizes are gathered by a broadcast each, which all run at once: process groups gather equal
/// shares only.
/// memory: tensors around the caller's memory, which torch allocates in every call; no copy of it.
/// ranks: collective; send_receive only for the ranks it names. No Python is called, and no lock of its held.
/// @throws gs::communication_error with the group's message; gs::mismatch, on this rank alone, if its own sizes do not
/// fit together. threads: one call at a time.
class process_group {
 public:
  static constexpr bool stream_ordered = true;

  explicit process_group(c10::intrusive_ptr<c10d::ProcessGroup> group) : group_{std::move(group)} {}

  [[nodiscard]] int rank() const { return group_->getRank(); }
  [[nodiscard]] int size() const { return group_->getSize(); }

  /// Of std::uint32_t: sums, and maxima below 2^31, as torch has signed integers.
  template <class Space, class T>
    requires(std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::uint32_t>)
  void all_reduce(Space const& where, std::span<T> in_out, gs::reduction how) const {
    if (in_out.empty()) return;
    auto const place = enter(where);
    auto options = c10d::AllreduceOptions{};
    options.reduceOp = how == gs::reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    std::vector<at::Tensor> tensors{place.around(in_out)};
    finish("allreduce", [&] { return group_->allreduce(tensors, options); });
  }

  /// In device memory alone, as Gloo may lack it; two_level does without on a host. Types as above.
  template <class Space, class T>
    requires(Space::stream_ordered &&
             (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::uint32_t>))
  void reduce_scatter(Space const& where, std::span<T const> all, std::span<T> mine, gs::reduction how) const {
    require("reduce_scatter", mine.size() * static_cast<std::size_t>(size()), all.size());
    if (mine.empty()) return;
    auto const place = enter(where);
    auto options = c10d::ReduceScatterOptions{};
    options.reduceOp = how == gs::reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    at::Tensor output = place.around(mine);
    at::Tensor input = place.around(all);
    finish("_reduce_scatter_base", [&] { return group_->_reduce_scatter_base(output, input, options); });
  }

  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all) const {
    auto const ranks = static_cast<std::size_t>(size());
    require("all_gather", mine.size() * ranks, all.size());
    if (mine.empty()) return;
    auto const place = enter(where);
    if constexpr (Space::stream_ordered) {  // straight into `all`: NCCL's allgather() of a list copies; Gloo has no
                                            // other
      at::Tensor output = place.around(all);
      at::Tensor input = place.around(mine);
      finish("_allgather_base", [&] { return group_->_allgather_base(output, input); });
    } else {
      std::vector<std::vector<at::Tensor>> outputs(1);
      for (std::size_t r = 0; r < ranks; ++r)
        outputs[0].push_back(place.around(all.subspan(r * mine.size(), mine.size())));
      std::vector<at::Tensor> inputs{place.around(mine)};
      finish("allgather", [&] { return group_->allgather(outputs, inputs); });
    }
  }

  template <class Space>
  void all_gather(Space const& where, std::span<std::byte const> mine, std::span<std::byte> all,
                  std::span<std::size_t const> sizes) const {
    require("all_gather", static_cast<std::size_t>(size()), sizes.size());
    std::size_t sum = 0;
    for (auto const each : sizes) sum += each;
    require("all_gather", sum, all.size());
    require("all_gather", sizes[static_cast<std::size_t>(rank())], mine.size());
    auto const place = enter(where);
    std::exception_ptr failure;  // the first: what is under way is waited for all the same, as it writes into `all`
    auto const attempt = [&](auto const& body) {
      try {
        body();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    };
    std::vector<c10::intrusive_ptr<c10d::Work>> under_way;
    std::vector<std::vector<at::Tensor>> tensors(sizes.size());
    std::size_t at = 0;
    for (int root = 0; root < size(); ++root) {
      auto const r = static_cast<std::size_t>(root);
      auto const share = all.subspan(at, sizes[r]);
      at += sizes[r];
      if (share.empty()) continue;
      if (root == rank()) copy(where, mine, share);
      tensors[r] = {place.around(share)};
      attempt([&] {
        under_way.push_back(started("broadcast", [&] { return group_->broadcast(tensors[r], from(root)); }));
      });
    }
    for (auto const& work : under_way) attempt([&] { finish("broadcast", [&] { return work; }); });
    if (failure) std::rethrow_exception(failure);
  }

  template <class Space>
  void broadcast(Space const& where, std::span<std::byte> in_out, int root) const {
    if (in_out.empty()) return;
    auto const place = enter(where);
    std::vector<at::Tensor> tensors{place.around(in_out)};
    finish("broadcast", [&] { return group_->broadcast(tensors, from(root)); });
  }

  template <class Space>
  void send_receive(Space const& where, std::span<std::byte const> out, int to, std::span<std::byte> in,
                    int sender) const {
    if (to == rank() && sender == rank()) {
      require("send_receive", out.size(), in.size());
      copy(where, out, in);
      return;
    }
    auto const place = enter(where);
    std::vector<at::Tensor> outgoing{place.around(out)};
    std::vector<at::Tensor> incoming{place.around(in)};
    auto const sent = started("send", [&] { return group_->send(outgoing, to, tag); });
    finish("recv", [&] { return group_->recv(incoming, sender, tag); });
    finish("send", [&] { return sent; });
  }

  /// cost: size() send_receives, to ranks further and further off: Gloo has no all-to-all of unequal shares.
  template <class Space>
  void all_to_all(Space const& where, std::span<std::byte const> out, std::span<std::size_t const> out_sizes,
                  std::span<std::byte> in, std::span<std::size_t const> in_sizes) const {
    for (auto const& [sizes, bytes] : {std::pair{out_sizes, out.size()}, std::pair{in_sizes, in.size()}}) {
      require("all_to_all", static_cast<std::size_t>(size()), sizes.size());
      require("all_to_all", std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), bytes);
    }
    auto const place = [](auto all, std::span<std::size_t const> sizes, int r) {
      return all.subspan(std::accumulate(sizes.begin(), sizes.begin() + r, std::size_t{0}),
                         sizes[static_cast<std::size_t>(r)]);
    };
    for (int far = 0; far < size(); ++far) {
      int const to = (rank() + far) % size();
      int const sender = (rank() + size() - far) % size();
      send_receive(where, place(out, out_sizes, to), to, place(in, in_sizes, sender), sender);
    }
  }

 private:
  static constexpr int tag = 26483;

  /// Where tensors lie, and in which stream collectives run while this lives.
  struct on_host {
    at::TensorOptions options = at::TensorOptions{}.device(at::kCPU);

    /// A tensor of this memory. What collectives only read is not written through it.
    template <class T>
    [[nodiscard]] at::Tensor around(std::span<T> memory) const {
      return tensor(memory, options);
    }
  };
  [[nodiscard]] static on_host enter(gs::host const&) { return {}; }
  static void copy(gs::host const&, std::span<std::byte const> from, std::span<std::byte> to) {
    std::ranges::copy(from, to.begin());
  }

#if defined(GRADSIEVE_TORCH_CUDA)
  struct on_device {
    c10::cuda::CUDAStreamGuard stream;
    at::TensorOptions options;

    template <class T>
    [[nodiscard]] at::Tensor around(std::span<T> memory) const {
      return tensor(memory, options);
    }
  };
  [[nodiscard]] static on_device enter(gs::device const& where) {
    auto const device = c10::cuda::current_device();
    return {c10::cuda::CUDAStreamGuard{c10::cuda::getStreamFromExternal(where.stream, device)},
            at::TensorOptions{}.device(at::kCUDA, device)};
  }
  static void copy(gs::device const& where, std::span<std::byte const> from, std::span<std::byte> to) {
    where.copy(from, to);
  }
#endif

  template <class T>
  [[nodiscard]] static at::Tensor tensor(std::span<T> memory, at::TensorOptions const& options) {
    using value = std::remove_const_t<T>;
    constexpr auto type = std::is_same_v<value, float>           ? at::kFloat
                          : std::is_same_v<value, double>        ? at::kDouble
                          : std::is_same_v<value, std::uint32_t> ? at::kInt
                                                                 : at::kByte;
    return at::from_blob(const_cast<value*>(memory.data()), {static_cast<std::int64_t>(memory.size())},
                         options.dtype(type));
  }

  [[nodiscard]] static c10d::BroadcastOptions from(int root) {
    auto options = c10d::BroadcastOptions{};
    options.rootRank = root;
    return options;
  }

  static void require(char const* call, std::size_t expected, std::size_t found) {
    if (expected != found)
      throw gs::mismatch("gradsieve: " + std::string{call} + ": " + std::to_string(found) + " given, expected " +
                         std::to_string(expected));
  }

  template <class Start>
  [[nodiscard]] static c10::intrusive_ptr<c10d::Work> started(char const* call, Start const& start) {
    try {
      return start();
    } catch (std::exception const& error) {
      throw gs::communication_error("gradsieve: the process group's " + std::string{call} + ": " + error.what());
    }
  }

  template <class Start>
  static void finish(char const* call, Start const& start) {
    static_cast<void>(started(call, [&] {
      auto work = start();
      if (work) work->wait();
      return work;
    }));
  }

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};
static_assert(gs::has_all_reduce<process_group, gs::host, float> && gs::has_all_gather<process_group, gs::host> &&
              gs::has_broadcast<process_group, gs::host> && gs::has_send_receive<process_group, gs::host> &&
              gs::has_all_to_all<process_group, gs::host>);
static_assert(gs::has_all_reduce<process_group, gs::host, std::uint32_t> &&
              !gs::has_reduce_scatter<process_group, gs::host, float>);

}  // namespace example
