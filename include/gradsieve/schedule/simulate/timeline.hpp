// What a simulated run did, and when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string_view>
#include <vector>

#include <gradsieve/core/text.hpp>

namespace gradsieve {

enum class activity : std::uint8_t { forward, backward, select, all_reduce, reduce_scatter, all_gather };

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
  activity kind = activity::forward;
  std::uint32_t lane = 0;
  double begin = 0;  ///< seconds from the start of the run
  double end = 0;
  std::uint64_t bytes = 0;
  std::size_t group = 0;
  std::size_t layer = 0;  ///< of forward and backward; of others the last of the group to be ready
  int iteration = 0;
};

/// Seconds of an iteration, where they went, and what that means for all workers together.
struct schedule_metrics {
  int workers = 1;
  double iteration = 0;
  double compute = 0;        ///< forward and backward on one worker alone
  double communication = 0;  ///< of all collectives of an iteration, one after the other

  /// What communication adds to computing.
  [[nodiscard]] double exposed() const noexcept { return iteration > compute ? iteration - compute : 0; }
  /// Share of the communication that computing hides; 1 if there is none.
  [[nodiscard]] double overlap() const noexcept {
    return communication > 0 && exposed() < communication ? 1 - exposed() / communication : (communication > 0 ? 0 : 1);
  }
  /// Throughput over that of one worker.
  [[nodiscard]] double speedup() const noexcept { return workers * efficiency(); }
  [[nodiscard]] double efficiency() const noexcept { return iteration > 0 ? compute / iteration : 1; }

  friend std::ostream& operator<<(std::ostream& out, schedule_metrics const& it) {
    return describe(out, "metrics", std::pair{"workers", it.workers}, std::pair{"iteration", it.iteration},
                    std::pair{"exposed", it.exposed()}, std::pair{"speedup", it.speedup()});
  }
};

struct timeline {
  std::vector<timeline_event> events;  ///< in the order in which they begin
  schedule_metrics metrics;
};

}  // namespace gradsieve
