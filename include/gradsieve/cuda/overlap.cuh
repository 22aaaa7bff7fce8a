// Exchanges gradients on a second stream while the first still computes others.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/cuda/through_device.cuh>
#include <gradsieve/error.hpp>
#include <gradsieve/layout.hpp>
#include <gradsieve/schedule/agree.hpp>
#include <gradsieve/schedule/group_map.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/tracker.hpp>
#include <gradsieve/space/cuda_device.cuh>
#include <gradsieve/space/cuda_error.cuh>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// As `overlap`, on a GPU: a group of the plan is exchanged on a stream beside that of the backward pass, as soon as
/// the kernels that write its layers are through. The host only enqueues: ready() is called once those kernels are, and
/// wait() makes the backward pass's stream wait, not the host.
///
///   auto aside = gs::device{second_stream};
///   auto make = [&](gs::layout const& part) { return gs::compressor{aside, part, recipe}; };
///   auto exchange = gs::device_overlap{aside, comm, layers, plan, make};
///   exchange.run(gradient, stream, [&](auto const& ready) { backward(stream, ready); });  // every step
///
/// or begin(), ready(), and wait() or, where the backward pass throws, cancel(). What comes next on `stream` finds the
/// averaged update in the gradient. A step that is cancelled is overlap's, but that the other ranks are told as of
/// everything that goes wrong on a device: by the report of an exchange, or from a later step.
///
/// The communicator works in stream order, as a device compressor's: gs::nccl::communicator_ref, or a host's as
/// staged{comm}, which makes ready() wait for the exchange and hides nothing. Every exchange that make() returns works
/// on `aside`. With an exchange and a communicator that a CUDA graph can hold it can hold a step: run two before.
/// memory: an event a layer; a group whose layers do not lie side by side is exchanged in a buffer of this object's.
/// threads: ready() from any, if they share a stream or name theirs; all else from one at a time.
template <class Exchange, communicator Comm, gradient_value T = float>
class device_overlap {
 public:
  using exchange_type = Exchange;

  /// As overlap's. Waits. Collective.
  template <class Make>
    requires std::is_invocable_v<Make const&, layout const&>
  device_overlap(device aside, Comm comm, layout const& layers, plan const& of_rank_0, Make const& make,
                 std::vector<std::size_t> const& ready_order = {})
      : aside_{aside},
        comm_{std::move(comm)},
        plan_{agree(host{}, through_device{aside_, comm_}, of_rank_0)},
        size_{layers.size()},
        tracker_{plan_},
        written_(layers.count()) {
    std::exception_ptr failure;
    try {
      group_ = group_map{layers, plan_, ready_order, sizeof(T)};
      for (auto const& each : group_.groups()) parts_.emplace_back(make, aside_, each);
    } catch (...) {
      failure = std::current_exception();
    }
    group_map::require_equal(host{}, through_device{aside_, comm_}, layers, group_, failure);
    for (std::size_t g = 0; g < parts_.size(); ++g)
      if (layers_of(g).size() > 0) last_ = g;
  }
  device_overlap(device_overlap const&) = delete;
  device_overlap& operator=(device_overlap const&) = delete;
  /// Cancels an open step, as cancel(), and waits for what is enqueued. The exchanges' work on an open step's gradient,
  /// which must outlive that.
  ~device_overlap() {
    if constexpr (cancels) cancel();
    cudaStreamSynchronize(aside_.stream);
  }

  /// A whole step: begin(), backward(ready), wait(). `ready` does what ready() does. @throws as begin() and wait(), and
  /// what `backward` throws, after cancel().
  template <class Backward>
  void run(std::span<T> gradient, cudaStream_t stream, Backward&& backward) {
    begin(gradient, stream);
    try {
      backward([this](auto... which) { ready(which...); });
    } catch (...) {
      cancel();
      throw;
    }
    wait();
  }

  /// Begins a step: the gradient, device memory that `stream` writes, is in use until what wait() or cancel() enqueues
  /// there.
  /// @throws invalid_argument if its size is not the layout's or a step is open.
  void begin(std::span<T> gradient, cudaStream_t stream) {
    if (open_) throw invalid_argument("gradsieve: begin() before wait() has ended the step before");
    if (gradient.size() != size_)
      throw invalid_argument("gradsieve: gradient has " + std::to_string(gradient.size()) +
                             " elements, the layout has " + std::to_string(size_));
    tracker_.reset();
    gradient_ = gradient;
    stream_ = stream;
    issued_ = 0;
    failure_ = nullptr;
    ended_ = cancelled_ = false;
    open_ = true;
  }

  /// What writes this layer's gradient is enqueued, on the step's stream or on the one that is named, and nothing else
  /// will touch it before wait(). Cost: an event, and where groups are complete their exchanges, enqueued.
  /// @throws invalid_argument if there is no such layer, it was ready before in this step, or no step is open.
  void ready(std::size_t layer) { ready(layer, stream_); }
  void ready(std::size_t layer, cudaStream_t stream) {
    if (!open_)
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, but no step is open: begin()");
    if (layer >= group_.count())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, the layout has " +
                             std::to_string(group_.count()) + " layers");
    auto const place = group_.place_of(layer);
    if (!tracker_.is_ready(place)) written_[place].record(stream);
    tracker_.on_ready(place);
    issue();
  }

  /// Ends the step: layers that were not ready get a gradient of zero, what is left is exchanged, and what is enqueued
  /// on the step's stream from here on waits for it.
  /// @throws invalid_argument if no step is open; else the first exception of this step's exchanges. The groups behind
  /// it have been exchanged none the less; the next step may begin.
  void wait() {
    if (!open_) throw invalid_argument("gradsieve: wait(), but no step is open: begin()");
    tracker_.flush([&](std::size_t place) {
      auto const& each = group_.range_of(place);
      auto const memory = gradient_.subspan(each.offset, each.size);
      throw_on_error(cudaMemsetAsync(memory.data(), 0, memory.size_bytes(), stream_), "cudaMemsetAsync");
      written_[place].record(stream_);
    });
    ended_ = true;
    issue();
    join();
    open_ = false;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  /// Ends the step without this rank, whose backward pass cannot go on: groups that were not complete are exchanged as
  /// failed, with gradients of zero, so that the other ranks' exchanges fail as well. What comes next on the step's
  /// stream waits for that; the gradient is of no use then. What the exchanges throw here is dropped. Nothing happens
  /// if no step is open. The exchanges need fail(), see failing_exchange.
  void cancel() noexcept {
    static_assert(cancels,
                  "cancel() and run() need exchanges with fail(comm, std::span<T> gradient), as compressor and "
                  "device_dense_mean have it: else the other ranks would wait for this one");
    if (!open_) return;
    ended_ = cancelled_ = true;
    try {
      tracker_.flush([&](std::size_t place) { written_[place].record(stream_); });
    } catch (...) {  // the device is gone; the other ranks' transport will say so
    }
    issue();
    try {
      join();
    } catch (...) {
    }
    failure_ = nullptr;
    open_ = false;
  }

  /// As overlap's.
  void discard_step()
    requires requires(Exchange& exchange) { exchange.discard_step(); }
  {
    for (auto& each : parts_) each.exchange.discard_step();
  }

  /// The plan that all ranks follow.
  [[nodiscard]] plan const& agreed() const noexcept { return plan_; }

  /// As overlap's. Not while a step is open.
  [[nodiscard]] Exchange& exchange_of(std::size_t group) noexcept { return parts_[group].exchange; }
  [[nodiscard]] layout const& layers_of(std::size_t group) const noexcept { return group_.groups()[group].layers; }

 private:
  static constexpr bool cancels =
      requires(Exchange& exchange, Comm const& comm, std::span<T> gradient) { exchange.fail(comm, gradient); };

  /// Work that one stream has got, for others to wait for.
  class event {
   public:
    event() { throw_on_error(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
    event(event const&) = delete;
    event& operator=(event const&) = delete;
    ~event() { cudaEventDestroy(handle_); }

    void record(cudaStream_t stream) const { throw_on_error(cudaEventRecord(handle_, stream), "cudaEventRecord"); }
    void hold(cudaStream_t stream) const {
      throw_on_error(cudaStreamWaitEvent(stream, handle_, 0), "cudaStreamWaitEvent");
    }

   private:
    cudaEvent_t handle_ = nullptr;
  };

  struct part {
    template <class Make>
    part(Make const& make, device const& where, group_layers const& group)
        : exchange(make(group.layers)), packed{where, group.packed_size()} {}

    Exchange exchange;
    cuda_buffer<T> packed;  // empty where the group's layers lie side by side
  };

  /// Exchanges the groups that are complete, in the plan's order.
  void issue() {
    std::scoped_lock const lock{mutex_};
    for (; issued_ < tracker_.frontier() && (issued_ < last_ || ended_); ++issued_) {
      try {
        exchange(issued_);
      } catch (...) {
        if (!failure_) failure_ = std::current_exception();
      }
    }
  }

  /// What comes next on the step's stream waits for the exchanges.
  void join() const {
    if (size_ == 0) return;
    done_.record(aside_.stream);
    done_.hold(stream_);
  }

  void exchange(std::size_t g) {
    auto& mine = parts_[g];
    auto const& group = group_.groups()[g];
    if (group.layers.size() == 0) return;
    auto const& places = plan_.groups()[g];
    for (std::size_t place = places.begin; place < places.end; ++place)
      if (group_.range_of(place).size > 0) written_[place].hold(aside_.stream);
    auto whole = gradient_.subspan(group.first(), group.packed_size() > 0 ? 0 : group.layers.size());
    if (group.packed_size() > 0) whole = mine.packed.span();
    if constexpr (cancels)
      if (cancelled_) return void(mine.exchange.fail(comm_, whole));
    if (group.packed_size() > 0)
      for_each_piece(group, whole, [&](std::span<T> piece, std::span<T> place) { copy(piece, place); });
    mine.exchange.exchange(comm_, whole);
    if (group.packed_size() > 0)
      for_each_piece(group, whole, [&](std::span<T> piece, std::span<T> place) { copy(place, piece); });
  }

  /// Calls f(a piece of the gradient, its place in `packed`, the group's buffer).
  template <class F>
  void for_each_piece(group_layers const& group, std::span<T> packed, F const& f) const {
    std::size_t at = 0;
    for (auto const& each : group.pieces) {
      f(gradient_.subspan(each.offset, each.size), packed.subspan(at, each.size));
      at += each.size;
    }
  }

  void copy(std::span<T> from, std::span<T> to) const { aside_.copy(std::as_bytes(from), std::as_writable_bytes(to)); }

  device aside_;
  Comm comm_;
  plan plan_;
  std::uint64_t size_;
  group_map group_;
  tracker tracker_;
  std::deque<part> parts_;  // which do not move
  std::vector<event> written_;
  event done_;

  std::span<T> gradient_;
  cudaStream_t stream_ = nullptr;
  bool open_ = false;
  bool ended_ = false;  // the backward pass: the last group may go
  bool cancelled_ = false;
  std::size_t last_ = 0;  // of the groups that have elements
  std::mutex mutex_;
  std::size_t issued_ = 0;  // groups of this step
  std::exception_ptr failure_;
};

template <class Comm, class Make>
device_overlap(device, Comm, layout const&, plan const&, Make const&)
    -> device_overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;
template <class Comm, class Make>
device_overlap(device, Comm, layout const&, plan const&, Make const&, std::vector<std::size_t> const&)
    -> device_overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;

}  // namespace gradsieve
