// A timeline as Chrome trace JSON, which Perfetto and chrome://tracing open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/text.hpp>
#include <gradsieve/plan/csv.hpp>
#include <gradsieve/plan/plan.hpp>
#include <gradsieve/plan/trace.hpp>

#include "timeline.hpp"

namespace tools {

using namespace gradsieve;

/// Writes a timeline as one JSON object with the array `traceEvents`: every span as "X" on its lane, in microseconds;
/// the names of process and lanes; an arrow from the last event before a group's exchange to it. `rank` is the process.
inline void write_chrome_trace(std::ostream& out, timeline const& run, trace const& of, plan const& by, int rank = 0) {
  plain_output const plain{out};
  auto const text = [&out](std::string_view value) { gradsieve::detail::write_json_text(out, value); };
  std::string_view separator = "\n";
  auto const open = [&](char const* phase, std::uint32_t lane) {
    out << separator << "{\"ph\": \"" << phase << "\", \"pid\": " << rank << ", \"tid\": " << lane;
    separator = ",\n";
  };
  auto const at = [&out](double seconds) { out << ", \"ts\": " << shortest{1e6 * seconds}; };

  out << "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  open("M", 0);
  out << ", \"name\": \"process_name\", \"args\": {\"name\": ";
  text("rank " + std::to_string(rank) + (of.name().empty() ? "" : ", " + of.name()));
  out << "}}";
  std::uint32_t lanes = 0;
  for (auto const& each : run.events) lanes = each.lane > lanes ? each.lane : lanes;
  for (std::uint32_t lane = 0; lane <= lanes; ++lane) {
    open("M", lane);
    out << ", \"name\": \"thread_name\", \"args\": {\"name\": ";
    text(lane == 0 ? "compute" : "communication " + std::to_string(lane));
    out << "}}";
    open("M", lane);
    out << ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": " << lane << "}}";
  }

  std::vector<timeline_event const*> last(by.groups().size());  // of each group: the event its exchange waited for
  std::size_t flow = 0;
  for (auto const& each : run.events) {
    bool const computes = each.kind == activity::forward || each.kind == activity::backward;
    open("X", each.lane);
    out << ", \"cat\": \"" << name_of(each.kind) << "\", \"name\": ";
    text(computes ? of[each.layer].name + ' ' + std::string{name_of(each.kind)}
                  : std::string{name_of(each.kind)} + " group " + std::to_string(each.group));
    at(each.begin);
    auto const& group = by.groups()[each.group];
    out << ", \"dur\": " << shortest{1e6 * (each.end - each.begin)} << ", \"args\": {\"bytes\": " << each.bytes
        << ", \"group\": " << each.group << ", \"layers\": \"" << group.begin << '-' << group.end - 1
        << "\", \"iteration\": " << each.iteration << "}}";
    if (each.kind == activity::select || (each.kind == activity::backward && each.bytes > 0)) last[each.group] = &each;
    if (each.lane == 0 || last[each.group] == nullptr) continue;
    timeline_event const& from = *last[each.group];
    last[each.group] = nullptr;  // the first piece only
    ++flow;
    open("s", from.lane);
    out << ", \"cat\": \"ready\", \"name\": \"ready\", \"id\": " << flow;
    at((from.begin + from.end) / 2);
    out << '}';
    open("f", each.lane);
    out << ", \"bp\": \"e\", \"cat\": \"ready\", \"name\": \"ready\", \"id\": " << flow;
    at(each.begin);
    out << '}';
  }
  out << "\n]}\n";
}

}  // namespace tools
