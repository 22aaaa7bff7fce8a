// Exchanges gradients while the backward pass still computes others.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/error.hpp>
#include <gradsieve/layout.hpp>
#include <gradsieve/report.hpp>
#include <gradsieve/schedule/agree.hpp>
#include <gradsieve/schedule/arrivals.hpp>
#include <gradsieve/schedule/group_map.hpp>
#include <gradsieve/schedule/plan.hpp>
#include <gradsieve/schedule/tracker.hpp>
#include <gradsieve/space/host.hpp>

namespace gradsieve {

/// What a group is exchanged by: a compressor for the group's layers, dense_mean, or your own.
template <class E, class Comm, class T>
concept group_exchange = std::movable<E> && requires(E& exchange, Comm const& comm, std::span<T> gradient) {
  { exchange.exchange(comm, gradient) } -> std::same_as<step_report>;
};

/// One step of one rank, all groups together.
struct overlap_report {
  step_report exchanged;
  double busy = 0;     ///< seconds in which groups were exchanged
  double exposed = 0;  ///< seconds that wait() waited: of `busy`, what the backward pass did not hide

  /// Share of the exchange that was hidden; 1 where nothing was exchanged.
  [[nodiscard]] double hidden() const noexcept { return busy > 0 ? std::max(0.0, 1 - exposed / busy) : 1; }
};

/// Between begin() and wait() the backward pass calls ready(layer) as gradients are complete. A group of the plan whose
/// layers are all ready is exchanged by a thread of this object's own, in place, one group after the other in the
/// plan's order, also where a later one is complete first: all ranks issue the same collectives in the same order.
///
///   auto make = [&](gs::layout const& part) { return gs::compressor{gs::host{.threads = 1}, part, recipe}; };
///   auto exchange = gs::overlap{comm, layers, plan, make};    // one compressor a group, here, once
///   exchange.begin(gradient);                                 // every step
///   backward([&](std::size_t layer) { exchange.ready(layer); });
///   auto report = exchange.wait();                            // gradient is now the averaged update
///
/// Every group has an exchange of its own: with compressors each group sends the recipe's density of its own layers.
/// Layers are numbered as in the layout. A group whose layers do not lie side by side in the gradient is exchanged in a
/// buffer of this object's.
///
/// The communicator is used by that thread only, from begin() until wait() returns: meanwhile it is not for others, nor
/// is an MPI that was not initialised with MPI_THREAD_MULTIPLE (between steps MPI_THREAD_SERIALIZED will do).
/// A step allocates nothing but what its exchanges do. Host memory only; for a device there is device_overlap.
/// threads: ready() from any; all else from one at a time.
template <class Exchange, communicator Comm, gradient_value T = float>
class overlap {
  static_assert(group_exchange<Exchange, Comm, T>,
                "what makes the exchange of a group must return an object with "
                "step_report exchange(comm, std::span<T> gradient), such as compressor or dense_mean");

 public:
  using exchange_type = Exchange;

  /// Takes rank 0's plan, which agree() hands to all ranks, and calls make(layout of a group) for every group in order.
  /// `ready_order` says for each layer of the plan which one of the layout it is; empty: the last layer is ready first.
  /// Collective. @throws invalid_argument if the plan does not fit the layout; mismatch, if ranks differ in layout or
  /// order, or another rank throws; as agree(), and what make() throws.
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
      group_ = group_map{layers, plan_, ready_order, sizeof(T)};
      parts_.reserve(plan_.groups().size());
      for (auto const& each : group_.groups())
        parts_.push_back({make(each.layers), std::vector<T>(each.packed_size())});
    } catch (...) {
      failure = std::current_exception();
    }
    group_map::require_equal(host{}, comm_, layers, group_, failure);
    thread_ = std::thread{[this] { communicate(); }};
  }

  overlap(overlap const&) = delete;
  overlap& operator=(overlap const&) = delete;

  /// Waits for the group that is being exchanged, if there is one; others of an open step are left.
  ~overlap() {
    {
      std::scoped_lock const lock{mutex_};
      stopped_ = true;
    }
    work_.notify_one();
    thread_.join();
  }

  /// Begins a step: the gradient's memory is in use until wait() returns.
  /// @throws invalid_argument if its size is not the layout's or a step is open.
  void begin(std::span<T> gradient) {
    if (open_.load()) throw invalid_argument("gradsieve: begin() before wait() has ended the step before");
    if (gradient.size() != size_)
      throw invalid_argument("gradsieve: gradient has " + std::to_string(gradient.size()) +
                             " elements, the layout has " + std::to_string(size_));
    tracker_.reset();
    {
      std::scoped_lock const lock{mutex_};
      gradient_ = gradient;
      report_ = {};
      began_ = clock::now();
      ++steps_begun_;
    }
    open_.store(true);
    work_.notify_one();
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
    if (tracker_.on_ready(group_.place_of(layer)) != before) announce();
  }

  /// Completes all groups: layers that were not ready in this step, as nothing used them, get a gradient of zero. They
  /// may be others on other ranks. @throws invalid_argument if no step is open.
  void flush() {
    if (!open_.load()) throw invalid_argument("gradsieve: flush() or wait(), but no step is open: begin()");
    tracker_.flush([&](std::size_t place) {
      auto const& each = group_.range_of(place);
      std::fill_n(gradient_.begin() + static_cast<std::ptrdiff_t>(each.offset), each.size, T{});
    });
    announce();
  }

  /// Ends the step: flush(), and waits until all groups are exchanged.
  /// @throws invalid_argument if no step is open; else the first exception of this step's exchanges. The groups behind
  /// it have been exchanged none the less, so that other ranks are not left waiting; the next step may begin.
  overlap_report wait() {
    flush();
    auto const start = clock::now();
    std::unique_lock lock{mutex_};
    done_.wait(lock, [&] { return steps_done_ == steps_begun_; });
    report_.exposed = seconds(clock::now() - start);
    open_.store(false);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return report_;
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

  [[nodiscard]] static double seconds(clock::duration time) noexcept {
    return std::chrono::duration<double>(time).count();
  }

  /// The lock orders this after the check of a thread that is about to wait.
  void announce() {
    {
      std::scoped_lock const lock{mutex_};
    }
    work_.notify_one();
  }

  void communicate() noexcept {
    for (std::uint64_t step = 1;; ++step) {
      for (std::size_t g = 0; g <= parts_.size(); ++g) {  // once more for the end, and where there is no group
        std::unique_lock lock{mutex_};
        work_.wait(lock, [&] {
          return stopped_ || (steps_begun_ >= step && (g == parts_.size() || tracker_.frontier() > g));
        });
        if (stopped_) return;
        if (g < parts_.size()) {
          lock.unlock();
          exchange(g);
        } else {
          steps_done_ = step;
          done_.notify_one();
        }
      }
    }
  }

  /// A failed group does not stop the ones behind it: if it failed on this rank only, the others exchange them.
  void exchange(std::size_t g) noexcept {
    auto const start = clock::now();
    try {
      auto& mine = parts_[g];
      auto const& group = group_.groups()[g];
      if (group.layers.size() == 0) {
        // nothing to send, on all ranks alike
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
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  std::uint64_t steps_begun_ = 0;
  std::uint64_t steps_done_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

template <class Comm, class Make>
overlap(Comm, layout const&, plan const&, Make const&)
    -> overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;
template <class Comm, class Make>
overlap(Comm, layout const&, plan const&, Make const&, std::vector<std::size_t> const&)
    -> overlap<std::remove_cvref_t<std::invoke_result_t<Make const&, layout const&>>, Comm>;

}  // namespace gradsieve
