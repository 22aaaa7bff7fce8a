// Simulates a plan: the events on one worker, and the time of an iteration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gradsieve/core/error.hpp>
#include <gradsieve/plan/cost.hpp>
#include <gradsieve/plan/plan.hpp>
#include <gradsieve/plan/trace.hpp>

#include "optimal_sparse.hpp"
#include "slow_workers.hpp"
#include "timeline.hpp"

namespace tools {

using namespace gradsieve;

/// What is simulated.
struct simulation_options {
  int workers = 1;     ///< number of workers
  int iterations = 1;  ///< 3 or more for a steady state
  int streams = 1;     ///< concurrent collectives; after its startup, the cost of 1 byte, each has an equal share of
                       ///< the bandwidth; if that cost is infinite or NaN, they do not slow each other down
  double interference = 1;       ///< factor by which computation is slower while a collective runs
  double jitter = 0;             ///< relative deviation of every layer's time on every worker; all wait for the slowest
  double straggler = 1;          ///< factor by which one worker's computation is slower
  std::uint64_t seed = 1;        ///< seed of the jitter
  bool overlap_forward = false;  ///< whether a layer's next forward pass waits only for its own group
  bool priority = false;         ///< whether the ready group nearest to the input is sent first
  std::uint64_t chunk = 0;       ///< bytes of the pieces in which groups are sent; 0: whole groups
  bool two_halves = false;  ///< reduce-scatter in the backward pass, all-gather in the next forward; each half the cost
  selection_seconds selection{};  ///< of selecting, on the compute lane, when a group's last gradient is ready

  /// Collectives in which a group of so many bytes is sent.
  [[nodiscard]] std::uint64_t pieces(std::uint64_t bytes) const noexcept {
    if (bytes == 0) return 0;
    return chunk == 0 ? 1 : (bytes - 1) / chunk + 1;
  }
  /// Checks all options. @throws invalid_argument naming the first that is out of its limits.
  void check() const {
    require_between("number of workers", workers, 1, 1 << 24);
    require_between("iterations", iterations, 1, 1'000'000);
    require_between("streams", streams, 1, 1024);
    require_between("interference", interference, 1, 1e6);
    require_between("jitter", jitter, 0, 10);
    require_between("straggler", straggler, 1, 1e6);
    selection.check();
  }
};

namespace parts {

using gradsieve::detail::planned_seconds_of;

/// A loop over the next event that ends, on the compute lane or on one of the streams.
template <cost_model Cost>
class simulation {
 public:
  simulation(trace const& of, plan const& by, Cost const& cost, simulation_options const& options)
      : of_{of}, by_{by}, cost_{cost}, options_{options}, streams_(static_cast<std::size_t>(options.streams)) {}

  [[nodiscard]] timeline run() {
    for (iteration_ = 0; iteration_ < options_.iterations; ++iteration_) one_iteration();
    while (advance()) start_collectives();
    auto& metrics = result_.metrics;
    metrics.workers = options_.workers;
    metrics.compute = of_.compute();
    metrics.communication = busy_ / options_.iterations;
    bool const steady = across() && options_.iterations > 1;  // from one end of a backward pass to the next
    metrics.iteration =
        steady ? (last_backward_ - first_backward_) / (options_.iterations - 1) : now_ / options_.iterations;
    std::sort(result_.events.begin(), result_.events.end(), [](auto const& x, auto const& y) {
      return std::tie(x.begin, x.lane, x.end, x.iteration, x.layer) <
             std::tie(y.begin, y.lane, y.end, y.iteration, y.layer);
    });
    return std::move(result_);
  }

 private:
  struct collective {
    activity kind = activity::all_reduce;
    std::size_t group = 0;
    std::uint64_t bytes = 0;
    double share = 1;
  };
  struct stream {
    collective job;
    double begin = 0;
    double startup = 0;  // seconds left
    double work = 0;     // seconds left if it had the link alone
    int iteration = 0;
    bool running = false;
  };

  [[nodiscard]] bool across() const noexcept { return options_.overlap_forward || options_.two_halves; }

  void one_iteration() {
    std::size_t const layers = of_.count();
    slow_workers const workers{options_.workers, options_.jitter, options_.straggler, options_.seed};
    auto const pass = 2 * static_cast<std::uint64_t>(iteration_);
    auto const forward = workers.slowest(of_, &traced_layer::forward, pass);
    auto const backward = workers.slowest(of_, &traced_layer::backward, pass + 1);
    for (std::size_t l = layers; l-- > 0;) {
      while (iteration_ > 0 && !may_compute(l) && advance()) start_collectives();
      compute({activity::forward, 0, 0, 0, of_[l].bytes, by_.group_of(l), l, iteration_}, forward[l]);
    }
    // the previous iteration has ended, as the layers' forward passes have waited for it
    remaining_.assign(by_.groups().size(), 0);
    reduced_ = 0;
    next_ = 0;
    for (std::size_t l = 0; l < layers; ++l) {
      std::size_t const group = by_.group_of(l);
      compute({activity::backward, 0, 0, 0, of_[l].bytes, group, l, iteration_}, backward[l]);
      auto const& all = by_.groups()[group];
      bool const last = all.bytes > 0 && of_[l].bytes > 0 && by_.slot(l).offset + of_[l].bytes == all.bytes;
      if (!last) continue;
      if (double const seconds = options_.selection(all.bytes); seconds > 0)
        compute({activity::select, 0, 0, 0, all.bytes, group, l, iteration_}, seconds);
      enqueue(options_.two_halves ? activity::reduce_scatter : activity::all_reduce, group);
    }
    (iteration_ == 0 ? first_backward_ : last_backward_) = now_;
    backward_over_ = true;
    gather();
    start_collectives();
  }

  /// Whether the gradients of the previous iteration that a layer's forward pass needs have arrived.
  [[nodiscard]] bool may_compute(std::size_t layer) const {
    if (across()) return remaining_[by_.group_of(layer)] == 0;
    return std::all_of(remaining_.begin(), remaining_.end(), [](std::size_t n) { return n == 0; });
  }

  /// Advances time until this much computation is done.
  void compute(timeline_event event, double seconds) {
    event.begin = now_;
    while (seconds > 0) seconds = advance(seconds);
    event.end = now_;
    if (event.end > event.begin || event.kind != activity::select) result_.events.push_back(event);
  }

  /// Adds a complete group to those that wait for a stream.
  void enqueue(activity kind, std::size_t group) {
    std::uint64_t const bytes = by_.groups()[group].bytes;
    if (kind != activity::all_gather) remaining_[group] = options_.two_halves ? 1 : 0;  // 1: the all-gather to come
    if (bytes > 0) waiting_.push_back({kind, group, bytes, options_.two_halves ? 0.5 : 1});
    remaining_[group] += options_.pieces(bytes);
    if (kind == activity::all_gather) --remaining_[group];
    start_collectives();
  }

  /// Starts the all-gathers, in the order of the forward pass, once everything is reduced and the backward pass is
  /// over.
  void gather() {
    auto const& groups = by_.groups();
    auto const with_bytes = static_cast<std::size_t>(
        std::count_if(groups.begin(), groups.end(), [](plan_group const& each) { return each.bytes > 0; }));
    if (!options_.two_halves || !backward_over_ || reduced_ < with_bytes || !waiting_.empty()) return;
    backward_over_ = false;
    for (std::size_t g = groups.size(); g-- > 0;)
      if (groups[g].bytes > 0) enqueue(activity::all_gather, g);
  }

  void start_collectives() {
    for (auto& each : streams_) {
      if (each.running || waiting_.size() == next_) continue;
      auto chosen = waiting_.begin() + static_cast<std::ptrdiff_t>(next_);
      if (options_.priority)
        chosen = std::max_element(chosen, waiting_.end(),
                                  [](collective const& a, collective const& b) { return a.group < b.group; });
      collective job = *chosen;
      if (options_.chunk > 0) job.bytes = std::min(job.bytes, options_.chunk);
      chosen->bytes -= job.bytes;
      if (chosen->bytes == 0) {
        std::rotate(waiting_.begin() + static_cast<std::ptrdiff_t>(next_), chosen, chosen + 1);
        if (++next_ == waiting_.size()) waiting_.clear(), next_ = 0;
      }
      double const all = job.share * planned_seconds_of(cost_, job.bytes);
      double const startup = std::min(all, job.share * seconds_of(cost_, 1));
      each = {job, now_, startup, all - startup, iteration_, true};
    }
  }

  /// Advances to the next event that ends: a phase of a collective, or `compute` seconds of computation, of which it
  /// returns the remainder. Without computation it returns whether a collective was running.
  double advance(double compute) {
    double const slow = running() ? options_.interference : 1;
    double const step = std::min(compute * slow, next_end());
    bool const done = step == compute * slow;
    pass(step);
    return done ? 0 : compute - step / slow;
  }
  bool advance() {
    if (!running()) return false;
    pass(next_end());
    return true;
  }

  [[nodiscard]] bool running() const {
    return std::any_of(streams_.begin(), streams_.end(), [](stream const& each) { return each.running; });
  }
  [[nodiscard]] double sharing() const {
    return static_cast<double>(std::count_if(streams_.begin(), streams_.end(), [](stream const& each) {
      return each.running && each.startup <= 0 && each.work > 0;
    }));
  }
  [[nodiscard]] double next_end() const {
    double const n = sharing();
    double least = never;
    for (auto const& each : streams_)
      if (each.running) least = std::min(least, each.startup > 0 ? each.startup : each.work * n);
    return least;
  }

  void pass(double seconds) {
    double const n = sharing();
    now_ += seconds;
    bool ended = false;
    for (std::size_t s = 0; s < streams_.size(); ++s) {
      auto& each = streams_[s];
      if (!each.running) continue;
      if (each.startup > 0)
        each.startup = each.startup <= seconds ? 0 : each.startup - seconds;
      else
        each.work = each.work * n <= seconds ? 0 : each.work - seconds / n;
      if (each.startup > 0 || each.work > 0) continue;
      each.running = false;
      ended = true;
      busy_ += each.job.share * planned_seconds_of(cost_, each.job.bytes);
      --remaining_[each.job.group];
      if (each.job.kind == activity::reduce_scatter && remaining_[each.job.group] == 1) ++reduced_;
      result_.events.push_back({each.job.kind, static_cast<std::uint32_t>(s + 1), each.begin, now_, each.job.bytes,
                                each.job.group, by_.groups()[each.job.group].end - 1, each.iteration});
    }
    if (!ended) return;
    gather();
    start_collectives();
  }

  trace const& of_;
  plan const& by_;
  Cost const& cost_;
  simulation_options const& options_;
  timeline result_;
  std::vector<stream> streams_;
  std::vector<collective> waiting_;     // groups, with the bytes that no collective has sent yet
  std::size_t next_ = 0;                // of waiting_
  std::vector<std::size_t> remaining_;  // unfinished pieces of each group
  std::size_t reduced_ = 0;             // groups whose reduce-scatter has finished
  bool backward_over_ = false;
  int iteration_ = 0;
  double now_ = 0;
  double busy_ = 0;
  double first_backward_ = 0;
  double last_backward_ = 0;
};

}  // namespace parts

/// Simulates some iterations of forward pass, backward pass and exchange. With one stream, whole groups and no
/// disturbance, an iteration takes the forward seconds plus the later of finish() and the end of the backward pass. If
/// layers of the next forward pass wait only for their own groups, `iteration` is the period of a steady state:
/// simulate 3 or more. Local.
/// Cost: about L + pieces of groups events per iteration, times workers with jitter. Allocates.
/// @throws invalid_argument if the plan is for other layers, the cost or an option is out of its limits, an iteration
/// has more than 2^22 pieces, or the cost of a group or of a piece of one is negative, infinite or NaN.
template <cost_model Cost>
[[nodiscard]] timeline simulate(trace const& of, plan const& by, Cost const& cost,
                                simulation_options const& options = {}) {
  options.check();
  check_cost(cost);
  bool same = by.count() == of.count();
  for (std::size_t l = 0; same && l < of.count(); ++l) same = by.bytes_of(l) == of[l].bytes;
  if (!same)
    throw invalid_argument("gradsieve: a plan for " + std::to_string(by.count()) + " layers and a trace of " +
                           std::to_string(of.count()) + " do not have the same layers");
  std::uint64_t pieces = 0;
  for (auto const& each : by.groups()) pieces += options.pieces(each.bytes);
  if (options.chunk > 0 && pieces > std::uint64_t{1} << 22)
    throw invalid_argument("gradsieve: " + std::to_string(pieces) + " pieces of " + std::to_string(options.chunk) +
                           " bytes in an iteration, 2^22 at most");
  return parts::simulation<Cost>{of, by, cost, options}.run();
}

}  // namespace tools
