// Runs the groups of a plan on a second stream while the first one still computes gradients; dense_mean on a device.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/exchange/through_device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/overlap/overlap.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

template <int = 0>
__global__ void divide_values(float* values, std::uint64_t count, float divisor) {
  for_each(count, [&](std::uint64_t i) { values[i] = divide(values[i], divisor); });
}

}  // namespace cuda_kernels

/// dense_mean in device memory and stream order. The host does not wait to check the means: if a rank fails, they are
/// NaN on all ranks.
struct device_dense_mean {
  device where;  ///< whose stream it uses

  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws; device_error.
  template <communicator Comm, detail::device_range Gradient>
  step_report exchange(Comm const& comm, Gradient&& values) const {
    std::span<float> const gradient{detail::device_span(values)};
    static_assert(has_all_reduce<Comm, device, float>, "this communicator needs all_reduce for float");
    int const world = detail::world_of(comm);
    detail::kernel_list::load();  // before the collective
    comm.all_reduce(where, gradient, reduction::sum);
    detail::launch_over<cuda_kernels::divide_values<>>(where, gradient.size(), gradient.data(), gradient.size(),
                                                       static_cast<float>(world));
    step_report report;
    report.world = world;
    report.bytes_sent = report.bytes_received = report.baseline_bytes = gradient.size_bytes();
    return report;
  }

  /// Joins an exchange() of the other ranks as a rank that has failed: their means and this gradient, which has the
  /// same size, become NaN. Collective. @throws what the transport throws; device_error.
  template <communicator Comm, detail::device_range Gradient>
  void fail(Comm const& comm, Gradient&& values) const {
    std::span<float> const gradient{detail::device_span(values)};
    throw_on_error(cudaMemsetAsync(gradient.data(), 0xFF, gradient.size_bytes(), where.stream), "cudaMemsetAsync");
    comm.all_reduce(where, gradient, reduction::sum);
  }
};

/// The report of a step of an overlap on a device. Reading it waits for the step. Valid until the overlap's next step.
template <class Read>
class device_overlap_report {
 public:
  /// Created by an overlap.
  explicit device_overlap_report(Read read) : read_{std::move(read)} {}

  /// Reads the report. Waits for the step. @throws the first failure of the step on the device; device_error.
  [[nodiscard]] overlap_report get() const { return read_(); }
  /// Reads the report, as get().
  operator overlap_report() const { return get(); }  // NOLINT: it is one

 private:
  Read read_;
};

}  // namespace gradsieve

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// On a device: announce() enqueues, and events order the streams. Times are the device's; 0 for a step in a CUDA
/// graph. Memory: one event per layer, two per group. Threads: written() and announce() from any thread; all else from
/// one at a time.
template <>
class group_queue<device> {
 public:
  /// The writer of gradients: a stream.
  struct writer {
    template <std::convertible_to<cudaStream_t> Stream>
    writer(Stream const& which) : stream{which} {}  // NOLINT: it is one

    cudaStream_t stream;
  };
  template <class T>
  using buffer = cuda_buffer<T>;

  explicit group_queue(device const& aside) : aside_{aside} {}
  group_queue(group_queue const&) = delete;
  group_queue& operator=(group_queue const&) = delete;
  ~group_queue() { drain(); }

  template <class Comm>
  [[nodiscard]] static through_device<Comm> setup_communicator(device const& aside, Comm const& comm) {
    return {aside, comm};
  }

  /// @throws device_error
  void start(std::size_t groups, std::size_t layers, std::function<bool(std::size_t)> may,
             std::function<void(std::size_t)> body) {
    written_ = std::vector<event>(layers);
    started_ = std::vector<event>(groups);
    finished_ = std::vector<event>(groups);
    may_ = std::move(may);
    body_ = std::move(body);
  }

  [[nodiscard]] static bool usable() noexcept { return true; }
  static void require_usable() noexcept {}

  void begin(writer by) noexcept {
    by_ = by;
    issued_ = 0;
    holds_ = false;
    began_.mark(by.stream);
  }
  [[nodiscard]] writer step_writer() const noexcept { return by_; }

  /// Records that the work that writes the gradient of a layer is enqueued on that stream. @throws device_error
  void written(std::size_t layer, writer by) const { written_[layer].record(by.stream); }
  void fill_zero(std::span<std::byte> memory) const {
    throw_on_error(cudaMemsetAsync(memory.data(), 0, memory.size(), by_.stream), "cudaMemsetAsync");
  }

  void announce() {
    std::scoped_lock const lock{mutex_};
    for (; issued_ < started_.size() && may_(issued_); ++issued_) body_(issued_);
  }

  /// Makes the stream that writes the step's gradients wait for the groups. @throws device_error
  void finish() const {
    if (!holds_) return;
    reached_.mark(by_.stream);
    done_.record(aside_.stream);
    done_.hold(by_.stream);
  }

  void hold(std::size_t layer) {
    written_[layer].hold(aside_.stream);
    holds_ = true;
  }
  void start_group(std::size_t group) const noexcept { started_[group].mark(aside_.stream); }
  void finish_group(std::size_t group) const noexcept { finished_[group].mark(aside_.stream); }

  template <class T>
  [[nodiscard]] buffer<T> allocate(std::size_t size) const {
    return {aside_, size};
  }
  void copy(std::span<std::byte const> from, std::span<std::byte> to) const { aside_.copy(from, to); }

  void drain() const noexcept { cudaStreamSynchronize(aside_.stream); }

  /// Waits for the step.
  [[nodiscard]] std::vector<group_times> times() const {
    aside_.synchronize();
    std::vector<group_times> all;
    for (std::size_t g = 0; g < started_.size(); ++g)
      all.push_back({event::seconds(began_, started_[g]), event::seconds(began_, finished_[g])});
    return all;
  }

  template <class Groups>
  [[nodiscard]] auto report(Groups const& groups, std::size_t not_ready) const {
    return device_overlap_report{[this, &groups, not_ready] {
      auto const all = times();
      return report_of(groups, all, holds_ ? event::seconds(reached_, done_) : 0, not_ready);
    }};
  }

 private:
  /// A CUDA event: work of one stream that others can wait for.
  class event {
   public:
    event() { throw_on_error(cudaEventCreate(&handle_), "cudaEventCreate"); }
    event(event const&) = delete;
    event& operator=(event const&) = delete;
    ~event() { cudaEventDestroy(handle_); }

    void record(cudaStream_t stream) const { throw_on_error(cudaEventRecord(handle_, stream), "cudaEventRecord"); }
    void hold(cudaStream_t stream) const {
      throw_on_error(cudaStreamWaitEvent(stream, handle_, 0), "cudaStreamWaitEvent");
    }

    /// As record(), but without exceptions, for times only.
    void mark(cudaStream_t stream) const noexcept {
      if (cudaEventRecord(handle_, stream) != cudaSuccess) cudaGetLastError();
    }
    /// 0 if one of them has no time, or the second one was first.
    [[nodiscard]] static double seconds(event const& from, event const& to) noexcept {
      float milliseconds = 0;
      if (cudaEventElapsedTime(&milliseconds, from.handle_, to.handle_) == cudaSuccess)
        return std::max(0.0, milliseconds / 1e3);
      cudaGetLastError();  // otherwise the next launch would report it
      return 0;
    }

   private:
    cudaEvent_t handle_ = nullptr;
  };

  device aside_;
  std::vector<event> written_, started_, finished_;  // of layers; of groups
  event began_, reached_, done_;                     // the step; its end on the writer's stream and on `aside`
  std::function<bool(std::size_t)> may_;
  std::function<void(std::size_t)> body_;

  writer by_{nullptr};
  bool holds_ = false;  // work of this step: `aside` is in a capture if the writer's stream is
  std::mutex mutex_;
  std::size_t issued_ = 0;  // groups of this step
};

}  // namespace gradsieve::detail
