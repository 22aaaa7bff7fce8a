// The result of a simulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include <gradsieve/core/text.hpp>

namespace tools {

using namespace gradsieve;

/// The activity in a span of time.
enum class activity : std::uint8_t {
  forward,         ///< a layer's forward pass
  backward,        ///< a layer's backward pass
  select,          ///< selecting from a group
  all_reduce,      ///< exchanging a group
  reduce_scatter,  ///< its first half
  all_gather       ///< its second half
};

/// The name of an activity.
[[nodiscard]] constexpr std::string_view name_of(activity kind) noexcept {
  switch (kind) {
    case activity::forward:
      return "forward";
    case activity::backward:
      return "backward";
    case activity::select:
      return "select";
    case activity::all_reduce:
      return "all_reduce";
    case activity::reduce_scatter:
      return "reduce_scatter";
    case activity::all_gather:
      return "all_gather";
  }
  return "unknown";
}

/// A span of time on a lane: 0 computes, 1 and above communicate. Spans of one lane do not overlap.
struct timeline_event {
  activity kind = activity::forward;  ///< the activity
  std::uint32_t lane = 0;             ///< where
  double begin = 0;                   ///< seconds from the start of the run
  double end = 0;                     ///< seconds from the start of the run
  std::uint64_t bytes = 0;            ///< of the group, or the piece of it
  std::size_t group = 0;              ///< of the plan
  std::size_t layer = 0;              ///< for forward and backward; otherwise the last layer of the group to be ready
  int iteration = 0;                  ///< from 0
};

/// The time of an iteration, and its scaling.
struct schedule_metrics {
  int workers = 1;           ///< as simulated
  double iteration = 0;      ///< seconds
  double compute = 0;        ///< seconds of forward and backward on one worker alone
  double communication = 0;  ///< seconds of all collectives of an iteration, one after the other

  /// Seconds that communication adds to computing.
  [[nodiscard]] double exposed() const noexcept { return iteration > compute ? iteration - compute : 0; }
  /// Fraction of the communication that computation hides; 1 if there is none.
  [[nodiscard]] double overlap() const noexcept {
    return communication > 0 && exposed() < communication ? 1 - exposed() / communication : (communication > 0 ? 0 : 1);
  }
  /// Throughput over that of one worker.
  [[nodiscard]] double speedup() const noexcept { return workers * efficiency(); }
  /// speedup() for each worker.
  [[nodiscard]] double efficiency() const noexcept { return iteration > 0 ? compute / iteration : 1; }

  friend std::ostream& operator<<(std::ostream& out, schedule_metrics const& it) {
    return describe(out, "metrics", std::pair{"workers", it.workers}, std::pair{"iteration", it.iteration},
                    std::pair{"exposed", it.exposed()}, std::pair{"speedup", it.speedup()});
  }
};

/// What simulate() returns.
struct timeline {
  std::vector<timeline_event> events;  ///< in the order in which they begin
  schedule_metrics metrics;            ///< of one iteration
};

}  // namespace tools
