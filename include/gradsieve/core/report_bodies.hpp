// The bodies of report.hpp, which units with gradsieve::compiled take from there.
#pragma once

#include <ostream>
#include <string>
#include <string_view>

#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/text.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

GRADSIEVE_BODY std::ostream& operator<<(std::ostream& out, byte_breakdown const& it) {
  plain_output const plain{out};
  if (*it.index_codec != '\0') out << ", indices " << it.index_codec;
  char const* before = ", rate ";
  for (auto const& kind : it.kinds) {
    if (kind.elements == 0) continue;
    out << before << kind.rate();
    if (kind.bin_length == 0)
      out << " passed through";
    else if (kind.bin_length == layer_kind_bytes::several)
      out << " in other bins";
    else
      out << " in bins of " << kind.bin_length;
    before = " and ";
  }
  return out;
}

template <class Write>
std::string step_report::joined(std::string_view separator, Write const& write) const {
  auto out = plain_text();
  std::string_view before;
  each([&](std::string_view name, auto value) {
    out << before;
    write(out, name, value);
    before = separator;
  });
  return out.str();
}

GRADSIEVE_BODY std::string step_report::json() const {
  auto const write = [](std::ostream& out, std::string_view name, auto value) {
    out << '"' << name << "\": " << shortest{value};
  };
  return '{' + joined(", ", write) + '}';
}

GRADSIEVE_BODY std::string step_report::csv() const {
  return joined(",", [](std::ostream& out, std::string_view, auto value) { out << shortest{value}; });
}

GRADSIEVE_BODY std::string step_report::csv_names() {
  return step_report{}.joined(",", [](std::ostream& out, std::string_view name, auto) { out << name; });
}

GRADSIEVE_BODY std::ostream& operator<<(std::ostream& out, step_report const& it) {
  plain_output const plain{out};
  out << "step " << it.step << ": budget " << it.budget << ", entries sent " << it.selected << " (at most "
      << it.capacity << "), in the update " << it.union_size;
  if (it.budget > 0) out << " (build-up " << it.build_up() << ')';
  out << ", layers that pass through " << it.passthrough_layers << ", elements without indices "
      << it.passthrough_elements << ", sent " << it.bytes_sent << " B, received " << it.bytes_received
      << " B (uncompressed " << it.baseline_bytes << " B";
  if (it.bytes_received > 0) out << ", ring ratio " << it.ring_ratio();
  out << "), not finite " << it.non_finite;
  if (it.skipped_elements > 0) out << ", skipped " << it.skipped_elements;
  if (it.saturated > 0) out << ", saturated " << it.saturated;
  if (it.thresholds.all() > 0)
    out << ", thresholds estimated " << it.thresholds.of(threshold_origin::estimated) << ", remembered "
        << it.thresholds.of(threshold_origin::remembered) << ", corrected "
        << it.thresholds.of(threshold_origin::corrected) << " (" << it.thresholds.probes << " probes)";
  return out << it.message << (it.staged ? ", staged through the host, " : ", ") << it.seconds.total() * 1e3 << " ms";
}

}  // namespace gradsieve
