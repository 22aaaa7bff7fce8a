// Exchanges gradients while the backward pass still computes others.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/error.hpp>
#include <gradsieve/layout.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/schedule/agree.hpp>
#include <gradsieve/schedule/arrivals.hpp>
#include <gradsieve/schedule/group_exchange.hpp>
#include <gradsieve/schedule/group_map.hpp>
#include <gradsieve/schedule/group_thread.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/tracker.hpp>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// Between begin() and wait() the backward pass calls ready(layer) as gradients are complete. A group of the plan whose
/// layers are all ready is exchanged by a thread of this object's own, in place, one group after the other in the
/// plan's order, also where a later one is complete first: all ranks issue the same collectives in the same order. Only
/// the last group waits for wait(), or flush().
///
///   auto make = [&](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
///   auto exchange = gs::overlap{comm, layers, plan, make};    // one compressor a group, here, once
///   auto report = exchange.run(gradient, [&](auto const& ready) { backward(ready); });  // every step
///
/// or, where the backward pass is no function of one's own:
///
///   exchange.begin(gradient);
///   try {
///     backward([&](std::size_t layer) { exchange.ready(layer); });
///   } catch (...) {
///     exchange.cancel();                                      // the other ranks' wait() throws
///     throw;
///   }
///   auto report = exchange.wait();                            // gradient is now the averaged update
///
/// Every group has an exchange of its own: with compressors each group sends the recipe's density of its own layers.
/// Layers are numbered as in the layout. A group whose layers do not lie side by side in the gradient is exchanged in a
/// buffer of this object's.
///
/// A step comes to its end on all ranks or on none: the last group goes out once wait() says that there is nothing to
/// cancel. A rank that cancels takes part in the groups that are left as one that has failed, so that wait() throws on
/// the others. Groups before these were exchanged and count, on all ranks alike, step counters too; of the others
/// nothing is given up on any rank. As after every exchange that throws, what the other ranks handed over of them is in
/// their residuals. discard_step() on all ranks takes back what counts: then the step has sent nothing.
///
/// The communicator is used by that thread only, from begin() until wait() or cancel() returns: meanwhile it is not for
/// others, nor is an MPI that was not initialised with MPI_THREAD_MULTIPLE (between steps MPI_THREAD_SERIALIZED will
/// do; with less the constructor throws).
/// A step allocates nothing but what its exchanges do. Host memory only; for a device there is device_overlap.
/// threads: ready() from any; all else from one at a time. In a child of fork() that thread does not exist: what would
/// wait for it throws communication_error, and cancel() and the destructor do nothing.
template <class Exchange, communicator Comm, gradient_value T = float>
class overlap {
  static_assert(group_exchange<Exchange, Comm, T>,
                "what makes the exchange of a group must return an object with "
                "step_report exchange(comm, std::span<T> gradient), such as compressor or dense_mean");

 public:
  using exchange_type = Exchange;

  /// Takes rank 0's plan, which agree() hands to all ranks, and calls make(layout of a group) for every group in order.
  /// `ready_order` says for each layer of the plan which one of the layout it is; empty: the last layer is ready first.
  /// Collective. @throws invalid_argument if the plan does not fit the layout; communication_error if the communicator
  /// is not for a thread of this object's; mismatch, if ranks differ in layout or order, or another rank throws; as
  /// agree(), and what make() throws.
  template <std::invocable<layout const&> Make>
  overlap(Comm comm, layout const& layers, plan const& of_rank_0, Make const& make,
          std::vector<std::size_t> const& ready_order = {})
      : comm_{std::move(comm)},
        plan_{agree(host{}, comm_, of_rank_0)},
        size_{layers.size()},
        tracker_{plan_},
        times_(plan_.groups().size()) {
    std::exception_ptr failure;
    try {
      if constexpr (requires { comm_.require_threads(); }) comm_.require_threads();
      group_ = group_map{layers, plan_, ready_order, sizeof(T)};
      parts_.reserve(plan_.groups().size());
      for (auto const& each : group_.groups())
        parts_.push_back({make(each.layers), std::vector<T>(each.packed_size())});
    } catch (...) {
      failure = std::current_exception();
    }
    group_map::require_equal(host{}, comm_, layers, group_, failure);
    for (std::size_t g = 0; g < parts_.size(); ++g)
      if (layers_of(g).size() > 0) last_ = g;
    auto const may = [this](std::size_t g) { return tracker_.frontier() > g && (g < last_ || ended_.load()); };
    thread_.start(parts_.size(), may, [this](std::size_t g) { exchange(g); });
  }

  overlap(overlap const&) = delete;
  overlap& operator=(overlap const&) = delete;

  /// Cancels an open step, as cancel(); where the exchanges have no fail() it waits for the group that is being
  /// exchanged and leaves the others. An open step works on the gradient: it must outlive that.
  ~overlap() {
    if constexpr (cancels) cancel();
  }

  /// A whole step: begin(), backward(ready), wait(). `ready` does what ready() does, and may be called from any thread
  /// until `backward` returns. @throws as begin() and wait(), and what `backward` throws, after cancel(): so everything
  /// is safe, in whatever order the gradient and this object were made, and however the exception goes on.
  template <class Backward>
  overlap_report run(std::span<T> gradient, Backward&& backward) {
    begin(gradient);
    try {
      backward([this](std::size_t layer) { ready(layer); });
    } catch (...) {
      cancel();
      throw;
    }
    return wait();
  }

  /// Begins a step: the gradient's memory is in use until wait() or cancel() returns.
  /// @throws invalid_argument if a step is open; or if its size is not the layout's: then, where the exchanges have
  /// fail(), this rank takes part in the step as if it had cancelled, so that the others throw as well.
  void begin(std::span<T> gradient) {
    thread_.require_own_process();
    if (open_.load()) throw invalid_argument("gradsieve: begin() before wait() has ended the step before");
    if (gradient.size() != size_) refuse(gradient.size());
    open(gradient);
  }

  /// The gradient of this layer is complete and will not be touched before wait() returns. Cost: O(1), and a lock where
  /// a group is complete.
  /// @throws invalid_argument if there is no such layer, it was ready before in this step, or no step is open.
  void ready(std::size_t layer) {
    if (!open_.load())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, but no step is open: begin()");
    if (layer >= group_.count())
      throw invalid_argument("gradsieve: layer " + std::to_string(layer) + " is ready, the layout has " +
                             std::to_string(group_.count()) + " layers");
    auto const before = tracker_.frontier();
    if (tracker_.on_ready(group_.place_of(layer)) != before) thread_.announce();
  }

  /// The backward pass has ended: completes all groups. Layers that were not ready in this step, as nothing used them,
  /// get a gradient of zero. They may be others on other ranks. @throws invalid_argument if no step is open.
  void flush() {
    if (!open_.load()) throw invalid_argument("gradsieve: flush() or wait(), but no step is open: begin()");
    tracker_.flush([&](std::size_t place) {
      auto const& each = group_.range_of(place);
      std::fill_n(gradient_.begin() + static_cast<std::ptrdiff_t>(each.offset), each.size, T{});
    });
    ended_.store(true);
    thread_.announce();
  }

  /// Ends the step: flush(), and waits until all groups are exchanged.
  /// @throws invalid_argument if no step is open; else the first exception of this step's exchanges. The groups behind
  /// it have been exchanged none the less, so that other ranks are not left waiting; the next step may begin.
  overlap_report wait() {
    flush();
    auto const start = clock::now();
    thread_.wait();
    report_.exposed = seconds(clock::now() - start);
    open_.store(false);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return report_;
  }

  /// Ends the step without this rank, whose backward pass cannot go on: groups whose turn has not come are exchanged as
  /// failed, so that the other ranks throw communication_error from wait(). Returns when all groups are through, which
  /// takes as long as the other ranks take; the gradient is then free, of no use, and the next step may begin. What the
  /// exchanges throw is dropped. Nothing happens if no step is open. Not after flush(). The exchanges need fail(), see
  /// failing_exchange.
  void cancel() noexcept {
    static_assert(cancels,
                  "cancel() and run() need exchanges with fail(comm, std::span<T> gradient), as compressor and "
                  "dense_mean have it: else the other ranks would wait for this one");
    if (!open_.load()) return;
    if (!thread_.is_child()) {
      cancelled_.store(true);
      ended_.store(true);
      tracker_.flush([](std::size_t) {});
      thread_.announce();
      thread_.wait();
      failure_ = nullptr;
    }
    open_.store(false);
  }

  /// The last step's update was not used, or it was cancelled: discard_step() of every group's exchange. Call it on
  /// every rank. Not while a step is open.
  void discard_step()
    requires requires(Exchange& exchange) { exchange.discard_step(); }
  {
    for (auto& each : parts_) each.exchange.discard_step();
  }

  /// The plan that all ranks follow.
  [[nodiscard]] plan const& agreed() const noexcept { return plan_; }

  /// When the groups of the last step were exchanged, in seconds since begin(). Not while a step is open.
  [[nodiscard]] std::span<group_times const> times() const noexcept { return times_; }

  /// The exchange of a group and the layers that it is for: for state(), restore(), discard_step() and the like. Not
  /// while a step is open. @pre group < agreed().groups().size()
  [[nodiscard]] Exchange& exchange_of(std::size_t group) noexcept { return parts_[group].exchange; }
  [[nodiscard]] layout const& layers_of(std::size_t group) const noexcept { return group_.groups()[group].layers; }

 private:
  using clock = std::chrono::steady_clock;

  struct part {
    Exchange exchange;
    std::vector<T> packed;  // empty where the group's layers lie side by side
  };

  static constexpr bool cancels = failing_exchange<Exchange, Comm, T>;

  [[nodiscard]] static double seconds(clock::duration time) noexcept {
    return std::chrono::duration<double>(time).count();
  }

  void open(std::span<T> gradient) {
    tracker_.reset();
    cancelled_.store(false);
    ended_.store(false);
    gradient_ = gradient;
    report_ = {};
    began_ = clock::now();
    open_.store(true);
    thread_.begin();
  }

  /// A gradient of another size.
  [[noreturn]] void refuse(std::size_t size) {
    if constexpr (cancels) {
      std::vector<T> instead(size_);
      open(instead);
      cancel();
    }
    throw invalid_argument("gradsieve: gradient has " + std::to_string(size) + " elements, the layout has " +
                           std::to_string(size_));
  }

  /// A failed group does not stop the ones behind it: if it failed on this rank only, the others exchange them.
  void exchange(std::size_t g) noexcept {
    auto const start = clock::now();
    try {
      auto& mine = parts_[g];
      auto const& group = group_.groups()[g];
      if (group.layers.size() == 0) {
        // nothing to send, on all ranks alike
      } else if (cancelled_.load()) {
        fail(mine, group);
      } else if (mine.packed.empty()) {
        add(mine.exchange.exchange(comm_, gradient_.subspan(group.first(), group.layers.size())));
      } else {
        group.pack(std::span<T const>{gradient_}, std::span{mine.packed});
        add(mine.exchange.exchange(comm_, std::span{mine.packed}));
        group.unpack(std::span<T const>{mine.packed}, gradient_);
      }
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
    auto const finish = clock::now();
    times_[g] = {seconds(start - began_), seconds(finish - began_)};
    report_.busy += seconds(finish - start);
  }

  void fail([[maybe_unused]] part& mine, [[maybe_unused]] group_layers const& group) {
    if constexpr (cancels)
      mine.exchange.fail(
          comm_, mine.packed.empty() ? gradient_.subspan(group.first(), group.layers.size()) : std::span{mine.packed});
  }

  void add(step_report const& report) noexcept { report_.exchanged.add(report); }

  Comm comm_;
  plan plan_;
  std::uint64_t size_;
  group_map group_;
  tracker tracker_;
  std::vector<part> parts_;
  std::vector<group_times> times_;

  std::span<T> gradient_;  // with report_ and failure_: of the caller's thread before begin() and after wait()
  clock::time_point began_;
  overlap_report report_;
  std::exception_ptr failure_;

  std::atomic<bool> open_{false};
  std::atomic<bool> ended_{false};  // the backward pass: the last group may go
  std::atomic<bool> cancelled_{false};
  std::size_t last_ = 0;  // of the groups that have elements
  group_thread thread_;   // the last: it stops before what it works on goes
};

template <class Comm, class Make>
overlap(Comm, layout const&, plan const&, Make const&)
    -> overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;
template <class Comm, class Make>
overlap(Comm, layout const&, plan const&, Make const&, std::vector<std::size_t> const&)
    -> overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;

}  // namespace gradsieve
