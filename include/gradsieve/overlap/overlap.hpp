// Exchanges gradients while the backward pass still computes others.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/skipped_layers.hpp>
#include <gradsieve/host/workspace.hpp>
#include <gradsieve/overlap/group_exchange.hpp>
#include <gradsieve/overlap/group_map.hpp>
#include <gradsieve/overlap/group_queue.hpp>
#include <gradsieve/overlap/overlapped_group.hpp>
#include <gradsieve/overlap/tracker.hpp>
#include <gradsieve/plan/plan.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Broadcasts rank 0's plan to every rank; other plans are not read. (Plans that ranks make separately may differ if a
/// rounding decides a tie.) Collective. @throws corrupt_message, on every rank that got damaged bytes; mismatch, on
/// every rank, if the plans' hashes differ.
template <communicator Comm, space Space>
[[nodiscard]] plan agree(Space const& where, Comm const& comm, plan const& mine) {
  static_assert(has_broadcast<Comm, Space> && has_all_gather<Comm, Space>,
                "this communicator needs broadcast and all_gather");
  auto const world = static_cast<std::size_t>(world_of(comm));
  auto bytes = comm.rank() == 0 ? mine.to_bytes() : std::vector<std::byte>{};
  std::uint64_t size = bytes.size();
  comm.broadcast(where, std::as_writable_bytes(std::span{&size, 1}), 0);
  bytes.resize(size);
  comm.broadcast(where, std::span{bytes}, 0);

  std::vector<std::uint64_t> hashes(world);
  plan agreed;
  std::exception_ptr damage;
  try {
    agreed = plan::from_bytes(bytes);
  } catch (...) {
    damage = std::current_exception();
  }
  std::uint64_t const hash = damage ? 0 : agreed.hash();
  comm.all_gather(where, std::as_bytes(std::span{&hash, 1}), std::as_writable_bytes(std::span{hashes}));
  if (damage) std::rethrow_exception(damage);
  for (std::size_t r = 0; r < hashes.size(); ++r)
    if (hashes[r] != hashes[0])
      throw mismatch("gradsieve: rank " + std::to_string(r) + " and rank 0 differ in their plan");
  return agreed;
}

/// Non-atomic members belong to the caller's thread before begin() and after wait(), and to the exchanging one between.
template <class T>
struct overlap_step {
  std::vector<unsigned char> skipped;  ///< layers of the layout; empty: none
  gradient_ref<T> gradient;
  std::exception_ptr failure;
  std::size_t not_ready = 0;  ///< layers
  std::atomic<bool> open{false};
  std::atomic<bool> ended{false};  ///< true once the backward pass has ended, so that the last group may start
  std::atomic<bool> cancelled{false};

  void begin(gradient_ref<T> const of, skipped_layers const without) {
    not_ready = 0;
    cancelled.store(false);
    ended.store(false);
    gradient = of;
    skipped.clear();
    for (std::size_t i = 0; i < without.size(); ++i) skipped.push_back(without[i] ? 1 : 0);
    failure = nullptr;
    open.store(true);
  }

  /// @throws invalid_argument unless a step is open, or none is, as `is_open` requires
  void require(bool is_open, char const* otherwise) const {
    if (open.load() != is_open) throw invalid_argument("gradsieve: " + std::string{otherwise});
  }

  /// @throws invalid_argument
  void require_layer(std::size_t layer, std::size_t count) const {
    if (!open.load())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) +
                             " is ready, but no step is open: call begin() first");
    if (layer >= count)
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, the layout has " +
                             std::to_string(count) + " layers");
  }
};

}  // namespace gradsieve::detail

namespace gradsieve::inline GRADSIEVE_ABI {

/// Exchanges the groups of a plan while the backward pass still runs. Between begin() and wait() the backward pass
/// calls ready(layer) when a gradient is complete. A group whose layers are all ready is exchanged in place, one group
/// after the other in the plan's order, so that all ranks issue the same collectives in the same order. The last group
/// waits for wait() or flush(). The gradient is then the averaged update. Call run(), or begin(), ready() and wait();
/// call cancel() if the backward pass throws. Every group has an exchange of its own; with compressors each group sends
/// the recipe's density of its own layers. Layers are numbered as in the layout. @include overlap.cpp
///
/// A step ends on all ranks or on none: the last group is sent only once wait() confirms that this rank does not
/// cancel. A rank that cancels takes part in the remaining groups as a failed rank, so that wait() throws on the
/// others. Groups exchanged before count, on all ranks, with their step counters; of the others no rank subtracts
/// anything, and the other ranks' gradients are in their residuals. discard_step() on all ranks then undoes those that
/// count.
///
/// On a host a thread of this object runs the exchanges. From begin() until wait() or cancel() returns, only that
/// thread may use the communicator, and any MPI that was not initialised with MPI_THREAD_MULTIPLE; with less than
/// MPI_THREAD_SERIALIZED the constructor throws. A child of fork() does not have the thread: calls that would wait for
/// it throw communication_error, and cancel() and the destructor do nothing.
///
/// On a device (overlap.cuh): `overlap{device{second_stream}, ...}`, and run(gradient, stream, backward); see the page.
///
/// Memory: a buffer for each group whose layers are not contiguous; a step allocates what its exchanges do.
/// Threads: ready() from any thread, on a device if they share a stream or name theirs; all else from one at a time.
template <space Space, class Exchange, communicator Comm, gradient_value T = float>
class overlap {
  static_assert(group_exchange<Exchange, Comm, T>,
                "what makes the exchange of a group must return an object with "
                "step_report exchange(comm, std::span<T> gradient), such as compressor or dense_mean");
  using queue = detail::group_queue<Space>;

 public:
  /// The exchange of a group.
  using exchange_type = Exchange;
  using writer = typename queue::writer;  ///< the writer of gradients: a stream on a device; empty on a host

  /// Broadcasts rank 0's plan, see agree(), and calls make(layout of a group) for every group in order. `ready_order`
  /// has for each layer of the plan its number in the layout; empty: the last layer is ready first. On a host the
  /// thread that exchanges groups also packs them, whatever host::threads. Collective. Allocates; waits. @throws
  /// invalid_argument if the plan does not fit the layout; communication_error if another thread may not use the
  /// communicator; mismatch if ranks differ in layout or order, or another one throws; corrupt_message as agree();
  /// make()'s exceptions.
  template <class Make>
    requires std::invocable<Make const&, layout const&>
  overlap(Space where, Comm comm, layout const& layers, plan const& of_rank_0, Make const& make,
          std::vector<std::size_t> const& ready_order = {})
      : comm_{std::move(comm)},
        plan_{detail::agree(host{}, queue::setup_communicator(where, comm_), of_rank_0)},
        layers_{layers},
        tracker_{plan_},
        queue_{where} {
    std::exception_ptr failure;
    try {
      if constexpr (thread_checking_communicator<Comm>) comm_.require_threads();
      group_ = detail::group_map{layers, plan_, ready_order, sizeof(T)};
      step_.skipped.reserve(layers.count());
      for (auto const& each : group_.groups()) parts_.emplace_back(make, queue_, each);
      for (auto const& each : parts_) each.check_names_in(layers);
      for (std::size_t g = 0; g < parts_.size(); ++g)
        if (layers_of(g).size() > 0) last_ = g;
      auto const may = [this](std::size_t g) { return tracker_.frontier() > g && (g < last_ || step_.ended.load()); };
      queue_.start(parts_.size(), layers.count(), may, [this](std::size_t g) { exchange(g); });
    } catch (...) {
      failure = std::current_exception();
    }
    detail::group_map::require_equal(host{}, queue::setup_communicator(where, comm_), layers, group_, failure);
  }
  /// As above, on host{}.
  template <class Make>
    requires std::same_as<Space, host> && std::invocable<Make const&, layout const&>
  overlap(Comm comm, layout const& layers, plan const& of_rank_0, Make const& make,
          std::vector<std::size_t> const& ready_order = {})
      : overlap{host{}, std::move(comm), layers, of_rank_0, make, ready_order} {}

  overlap(overlap const&) = delete;
  overlap& operator=(overlap const&) = delete;

  /// Cancels an open step, as cancel(), and waits for work on a device. If the exchanges have no fail(), waits only for
  /// the group that is being exchanged. The gradient of an open step must live until then.
  ~overlap() {
    if constexpr (cancels) cancel();
  }

  /// A whole step: begin(), backward(ready), wait(). `ready` may be called by any thread until `backward` returns. If
  /// `backward` throws, calls cancel() and rethrows. @throws exceptions of begin(), wait() and `backward`.
  template <class Backward>
  auto run(gradient_ref<T> gradient, writer by, Backward&& backward) {
    begin(gradient, by);
    try {
      backward([this](std::size_t layer, auto const&... written) { this->ready(layer, written...); });
    } catch (...) {
      cancel();
      throw;
    }
    return wait();
  }
  /// As above, with the default writer.
  template <class Backward>
    requires std::default_initializable<writer>
  auto run(gradient_ref<T> gradient, Backward&& backward) {
    return run(gradient, writer{}, std::forward<Backward>(backward));
  }

  /// Begins a step. The gradient is a vector, array or span, or `pieces`; its memory is in use until wait() or cancel()
  /// returns, on a device until the work that they enqueue is done. @throws invalid_argument if a step is open, or if
  /// the gradient's size is not the layout's; this rank then cancels the step if exchanges have fail(): all throw.
  void begin(gradient_ref<T> gradient, writer by = {}) { begin_step(gradient, {}, by); }
  /// A list of pieces must also live until wait() or cancel() returns.
  void begin(pieces<T>&& list, writer by = {}) = delete;
  /// As above, if the caller will not use the update of some layers, see compressor::exchange(). They become ready like
  /// any other. @throws as begin(); also unless `skipped` is empty or has an element for each layer.
  void begin(gradient_ref<T> gradient, skipped_layers const skipped, writer by = {})
    requires skipping_exchange<Exchange, Comm, T>
  {
    begin_step(gradient, skipped, by);
  }
  /// @copydoc begin(pieces<T>&&, writer)
  void begin(pieces<T>&& list, skipped_layers skipped, writer by = {}) = delete;
  /// The gradient of this layer is complete; on a device, the work that writes it is enqueued on the step's stream or
  /// on the given one. Nothing else may access it before wait() returns. Cost: O(1), and a lock if a group is complete;
  /// on a device an event, and enqueueing complete groups' exchanges. @throws invalid_argument if there is no such
  /// layer, it was ready before in this step, or no step is open.
  void ready(std::size_t layer) { ready(layer, queue_.step_writer()); }
  /// As above, for a layer that is written on another stream.
  void ready(std::size_t layer, writer by) {
    step_.require_layer(layer, group_.count());
    auto const place = group_.place_of(layer);
    if (!tracker_.is_ready(place)) queue_.written(place, by);
    auto const before = tracker_.frontier();
    if (tracker_.on_ready(place) != before) queue_.announce();
  }

  /// The backward pass has ended: completes all groups. Layers that were not ready get a gradient of zero, and the
  /// report counts them; they may differ between ranks. @throws invalid_argument if no step is open.
  void flush() {
    step_.require(true, "flush() or wait(), but no step is open: call begin() first");
    tracker_.flush([&](std::size_t place) {
      ++step_.not_ready;
      auto const& each = group_.range_of(place);
      step_.gradient.for_each_run(each.offset, each.size,
                             [&](std::span<T> const run) { queue_.fill_zero(std::as_writable_bytes(run)); });
      queue_.written(place, queue_.step_writer());
    });
    step_.ended.store(true);
    queue_.announce();
  }

  /// Calls flush(), and waits until all groups are exchanged; on a device the step's stream does. Returns report().
  /// @throws invalid_argument if no step is open; otherwise the first exception of this step's exchanges. Later groups
  /// have been exchanged nevertheless, so that other ranks do not wait for them; the next step may begin.
  auto wait() {
    flush();
    queue_.finish();
    step_.open.store(false);
    if (step_.failure) std::rethrow_exception(std::exchange(step_.failure, nullptr));
    return report();
  }

  /// Ends the step if this rank's backward pass cannot continue: takes part in the remaining groups as a failed rank,
  /// so that the other ranks throw communication_error from wait(), on a device from the report. Waits as wait() does,
  /// for as long as the others take. Then the gradient's values are invalid, and the next step may begin. Drops
  /// exceptions of the exchanges. Does nothing if no step is open. Not after flush(). Needs exchanges with fail().
  void cancel() noexcept {
    static_assert(cancels,
                  "cancel() and run() need exchanges with fail(comm, std::span<T> gradient), as compressor and "
                  "dense_mean have it: otherwise the other ranks would wait for this one");
    if (!step_.open.load()) return;
    if (queue_.usable()) {
      step_.cancelled.store(true);
      step_.ended.store(true);
      try {
        tracker_.flush([&](std::size_t place) { queue_.written(place, queue_.step_writer()); });
        queue_.announce();
        queue_.finish();
      } catch (...) {  // a device is lost, which the other ranks' transport will report
      }
      step_.failure = nullptr;
    }
    step_.open.store(false);
  }

  /// For an update that was not used, or a cancelled step: calls discard_step() of every group's exchange. Call it on
  /// every rank. Not while a step is open.
  void discard_step()
    requires discarding_exchange<Exchange>
  {
    for (auto& each : parts_) each.exchange.discard_step();
  }

  /// The report of the last step for all groups together: an overlap_report; on a device a device_overlap_report, whose
  /// get() waits for the step and throws its failures. Not while a step is open.
  [[nodiscard]] auto report() const { return queue_.report(parts_, step_.not_ready); }

  [[nodiscard]] plan const& agreed() const noexcept { return plan_; }  ///< the plan that all ranks follow

  /// Start and finish of each group in the last step, in seconds since begin(). Waits on a device. Not in an open step.
  [[nodiscard]] auto times() const { return queue_.times(); }

  /// The exchange of a group, for state() and restore(). Not while a step is open. @pre group <
  /// agreed().groups().size()
  [[nodiscard]] Exchange& exchange_of(std::size_t group) noexcept { return parts_[group].exchange; }
  /// The layers of a group. @pre group < agreed().groups().size()
  [[nodiscard]] layout const& layers_of(std::size_t group) const noexcept { return group_.groups()[group].layers; }

 private:
  static constexpr bool cancels = failing_exchange<Exchange, Comm, T>;

  void begin_step(gradient_ref<T> gradient, skipped_layers const skipped, writer by) {
    queue_.require_usable();
    step_.require(false, "begin() was called before wait() had ended the last step");
    try {
      gradient = gradient.in(layers_);
      gradient.check(layers_);
      skipped.check(group_.count());
      for (auto& each : parts_) each.reserve(queue_, gradient);
    } catch (...) {
      cancel_instead(by);
      throw;
    }
    tracker_.reset();
    step_.begin(gradient, skipped);
    queue_.begin(by);
  }

  /// Cancels a step that cannot begin, so that the others throw.
  void cancel_instead([[maybe_unused]] writer by) {
    if constexpr (cancels) {
      auto const instead = queue_.template allocate<T>(layers_.size());
      begin(instead.span(), by);
      cancel();
      queue_.drain();
    }
  }

  /// A failed group does not stop the next ones: the others exchange them if it failed on this rank only.
  void exchange(std::size_t g) noexcept {
    try {
      auto const& places = plan_.groups()[g];
      for (std::size_t place = places.begin; place < places.end; ++place)
        if (group_.range_of(place).size > 0) queue_.hold(place);
      queue_.start_group(g);
      parts_[g].run(queue_, comm_, step_.gradient, step_.cancelled.load(), step_.skipped);
    } catch (...) {
      if (!step_.failure) step_.failure = std::current_exception();
    }
    queue_.finish_group(g);
  }

  Comm comm_;
  plan plan_;
  layout layers_;
  detail::group_map group_;
  detail::tracker tracker_;
  std::deque<detail::overlapped_group<Exchange, Comm, T, queue>> parts_;  // a deque, as they do not move

  detail::overlap_step<T> step_;
  std::size_t last_ = 0;  // the last group with elements
  queue queue_;           // destroyed first: it stops before its data is destroyed
};

/// Deduces the exchange from what make() returns.
template <space Space, class Comm, class Make>
overlap(Space, Comm, layout const&, plan const&, Make const&, std::vector<std::size_t> const& = {})
    -> overlap<Space, std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;
/// Deduces the exchange; on host{}.
template <class Comm, class Make>
overlap(Comm, layout const&, plan const&, Make const&, std::vector<std::size_t> const& = {})
    -> overlap<host, std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;

}  // namespace gradsieve
