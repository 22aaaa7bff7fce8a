// A communicator of C functions that take device memory, and that memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/gradsieve.h>
#include <gradsieve/run_time/any_communicator.hpp>

namespace example {

namespace gs = gradsieve;

/// Calls a table whose functions work in the order of the exchange's stream, as NCCL's do.
class device_transport final : public gs::any_communicator_of<gs::device>::transport {
  using bytes = gs::any_communicator_of<gs::device>::bytes;
  using buffer = gs::any_communicator_of<gs::device>::buffer;
  using sizes = gs::any_communicator_of<gs::device>::sizes;
  using counts = int (*)(void*, std::uint32_t*, std::size_t, int);

 public:
  device_transport(gradsieve_communicator const& table, counts sum_counts) : table_{table}, sum_counts_{sum_counts} {}

  int rank() const override { return table_.rank; }
  int size() const override { return table_.size; }
  void all_reduce(gs::device const&, std::span<float> all, gs::reduction how) const override {
    call("all_reduce_float", table_.all_reduce_float, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_reduce(gs::device const&, std::span<double> all, gs::reduction how) const override {
    call("all_reduce_double", table_.all_reduce_double, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_reduce(gs::device const&, std::span<std::uint32_t> all, gs::reduction how) const override {
    call("all_reduce of counts", sum_counts_, all.data(), all.size(), how == gs::reduction::max);
  }
  void all_gather(gs::device const& where, bytes mine, buffer all) const override {
    all_gather(where, mine, all, std::vector<std::size_t>(static_cast<std::size_t>(table_.size), mine.size()));
  }
  void all_gather(gs::device const&, bytes mine, buffer all, sizes each) const override {
    call("all_gather", table_.all_gather, mine.data(), mine.size(), all.data(), each.data());
  }
  void broadcast(gs::device const&, buffer in_out, int root) const override {
    call("broadcast", table_.broadcast, in_out.data(), in_out.size(), root);
  }
  void send_receive(gs::device const&, bytes out, int to, buffer in, int from) const override {
    call("send_receive", table_.send_receive, out.data(), out.size(), to, in.data(), in.size(), from);
  }
  void all_to_all(gs::device const&, bytes out, sizes out_sizes, buffer in, sizes in_sizes) const override {
    call("all_to_all", table_.all_to_all, out.data(), out_sizes.data(), in.data(), in_sizes.data());
  }

 private:
  template <class Function, class... Arguments>
  void call(char const* what, Function const& function, Arguments const&... arguments) const {
    if (function == nullptr || function(table_.context, arguments...) != 0)
      throw gs::communication_error(std::string{"gradsieve: the communicator's "} + what + " failed");
  }

  gradsieve_communicator table_;
  counts sum_counts_;
};

/// A framework's own pool of device memory, in the order of the exchange's stream.
class pool_memory final : public std::pmr::memory_resource {
 public:
  pool_memory(void* (*take)(std::size_t), void (*give)(void*)) : allocate_{take}, release_{give} {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    auto* const memory = allocate_(bytes);
    if (memory == nullptr && bytes > 0) throw std::bad_alloc{};
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override { release_(memory); }
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }

  void* (*allocate_)(std::size_t);
  void (*release_)(void*);
};

}  // namespace example
