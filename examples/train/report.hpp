// What a training run came to, as a progress line, a table, and CSV files.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradsieve/plan/planners/arrivals.hpp>

#include "communicator.hpp"
#include "options.hpp"
#include "trace.hpp"

namespace example {

/// Totals up to and with one step.
struct curve_point {
  double loss = 0;  ///< of this step's batch
  double bytes = 0;
  double seconds = 0;
};

/// How many times fewer bytes than binary32 gradients a worker's messages took, for layers whose bins are of one
/// length.
struct bin_rate {
  std::uint32_t bin_length = 0;
  double first = 0;  ///< in the first step
  double mean = 0;   ///< of all steps
  double last = 0;   ///< of the last tenth
};

/// What a schedule promised, and how its exchanges were measured.
struct forecast {
  std::string schedule;  ///< empty: none was made
  std::size_t groups = 0;
  std::string cost;
  double compute_ms = 0;  ///< of a step without any exchange
  double step_ms = 0;     ///< of a whole step, predicted
  std::vector<gs::group_times> planned{};
  std::vector<gs::group_times> measured{};  ///< medians on rank 0
};

/// One recipe on one number of workers. Bytes and times are means per step and worker.
struct result {
  std::string recipe;
  int workers = 1;
  double density = 1;
  double loss = 0;  ///< of the batches of the last tenth of the steps
  double accuracy = 0;
  double sent = 0;
  double received = 0;
  double entries_sent = 0;     ///< after the warm-up; of a dense exchange all elements
  double entries_updated = 0;  ///< of the averaged update, likewise
  double dense_sent = 0;
  double select_ms = 0;
  double exchange_ms = 0;
  double step_ms = 0;
  double median_step_ms = 0;
  double exposed_ms = 0;  ///< of the exchange, what came after the backward pass; with --overlap
  double busy_ms = 0;     ///< all of the exchange; with --overlap
  forecast predicted;
  double build_up = 0;              ///< entries of the update / entries asked for, over the steps after the warm-up
  gs::threshold_counts thresholds;  ///< of rank 0, in all steps
  std::vector<bin_rate> rates;      ///< of codecs that can tell
  std::size_t optimiser_bytes = 0;  ///< of the optimiser's state, a worker
  std::vector<curve_point> curve;
  trace_rows rows;
};

/// A number for people or for a file; "-" where there is none.
[[nodiscard]] inline std::string shown(double value, int decimals) {
  if (!std::isfinite(value)) return std::isnan(value) ? "-" : "inf";
  auto text = gs::plain_text();
  text << std::fixed << std::setprecision(decimals) << value;
  return text.str();
}

/// Share of the whole work that is done, on the error stream: one line that is rewritten on a terminal, a
/// line every tenth elsewhere.
class progress {
 public:
  progress(bool speaks, std::uint64_t all_steps) : speaks_{speaks}, total_{all_steps} {}

  void step(std::string const& recipe, int workers, int step, int steps, double loss) {
    ++done_;
    if (!speaks_ || !due()) return;
    auto line = gs::plain_text();
    line << std::setw(3) << done_ * 100 / total_ << " %  " << recipe << ", " << workers
         << (workers == 1 ? " worker" : " workers") << ", step " << step << "/" << steps << ", loss " << shown(loss, 4);
    std::cerr << (terminal_ ? "\r\033[K" : "") << line.str() << (terminal_ ? "" : "\n") << std::flush;
  }

  /// Leaves a clean line for the table.
  void clear() const {
    if (speaks_ && terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  [[nodiscard]] bool due() {
    auto const now = std::chrono::steady_clock::now();
    bool const tenth = done_ * 10 / total_ != (done_ - 1) * 10 / total_;
    if (terminal_ ? now - shown_at_ < std::chrono::milliseconds{100} && !tenth : !tenth) return false;
    shown_at_ = now;
    return true;
  }

  bool speaks_;
  bool terminal_ = isatty(STDERR_FILENO) == 1;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::chrono::steady_clock::time_point shown_at_;
};

using table_row = std::vector<std::string>;

/// Columns as wide as their widest cell, the first flush left.
inline void print_table(std::ostream& out, std::vector<table_row> const& rows) {
  gs::plain_output const plain{out};
  std::vector<std::size_t> widths(rows.front().size());
  for (auto const& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (auto const& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      out << (i == 0 ? std::left : std::right) << std::setw(static_cast<int>(widths[i] + (i == 0 ? 0 : 2))) << row[i];
    out << '\n';
  }
}

inline void print_results(std::ostream& out, std::vector<result> const& results) {
  std::vector<table_row> rows{{"recipe", "workers", "final loss", "test acc %", "sent kB", "received kB", "of dense %",
                               "entries sent", "updated", "select ms", "exchange ms", "step ms", "build-up"}};
  for (auto const& each : results)
    rows.push_back({each.recipe, std::to_string(each.workers), shown(each.loss, 4), shown(100 * each.accuracy, 2),
                    shown(each.sent / 1e3, 1), shown(each.received / 1e3, 1),
                    shown(100 * each.sent / each.dense_sent, 2), shown(each.entries_sent, 0),
                    shown(each.entries_updated, 0), shown(each.select_ms, 3), shown(each.exchange_ms, 3),
                    shown(each.step_ms, 3), shown(each.build_up, 2)});
  print_table(out, rows);
}

/// Effective compression rates, every byte of a message counted.
inline void print_rates(std::ostream& out, std::vector<result> const& results) {
  std::vector<table_row> rows{{"effective rate", "workers", "bins of", "first step", "all steps", "last tenth"}};
  for (auto const& each : results)
    for (auto const& rate : each.rates)
      rows.push_back({each.recipe, std::to_string(each.workers), std::to_string(rate.bin_length), shown(rate.first, 1),
                      shown(rate.mean, 1), shown(rate.last, 1)});
  if (rows.size() == 1) return;
  out << '\n';
  print_table(out, rows);
}

/// What decided on the thresholds of selectors that say it, on rank 0.
inline void print_thresholds(std::ostream& out, std::vector<result> const& results) {
  std::vector<table_row> rows{
      {"thresholds", "workers", "estimated %", "remembered %", "corrected %", "probes a threshold"}};
  for (auto const& each : results) {
    auto const all = static_cast<double>(each.thresholds.all());
    if (all == 0) continue;
    auto const share = [&](gs::threshold_origin origin) {
      return shown(100 * static_cast<double>(each.thresholds.of(origin)) / all, 1);
    };
    rows.push_back({each.recipe, std::to_string(each.workers), share(gs::threshold_origin::estimated),
                    share(gs::threshold_origin::remembered), share(gs::threshold_origin::corrected),
                    shown(static_cast<double>(each.thresholds.probes) / all, 2)});
  }
  if (rows.size() == 1) return;
  out << '\n';
  print_table(out, rows);
}

/// Predicted and measured iterations.
inline void print_forecasts(std::ostream& out, std::vector<result> const& results) {
  std::vector<table_row> rows{{"overlap", "workers", "schedule", "groups", "compute ms", "predicted ms", "measured ms",
                               "error %", "exchange ms", "exposed ms"}};
  for (auto const& each : results) {
    auto const& plan = each.predicted;
    if (!plan.schedule.empty())
      rows.push_back({each.recipe, std::to_string(each.workers), plan.schedule, std::to_string(plan.groups),
                      shown(plan.compute_ms, 2), shown(plan.step_ms, 2), shown(each.median_step_ms, 2),
                      shown(100 * (plan.step_ms / each.median_step_ms - 1), 1), shown(each.busy_ms, 2),
                      shown(each.exposed_ms, 2)});
  }
  if (rows.size() == 1) return;
  out << '\n';
  print_table(out, rows);
  for (auto const& each : results)
    if (!each.predicted.cost.empty()) {
      out << each.recipe << " on this link: " << each.predicted.cost << "\n  groups, ms, planned (measured):";
      for (std::size_t g = 0; g < each.predicted.planned.size(); ++g) {
        auto const& plan = each.predicted.planned[g];
        auto const& real = each.predicted.measured[g];
        out << "  " << shown(1e3 * plan.start, 1) << '-' << shown(1e3 * plan.finish, 1) << " ("
            << shown(1e3 * real.start, 1) << '-' << shown(1e3 * real.finish, 1) << ')';
      }
      out << '\n';
    }
}

/// Build-up against P beside what independent selections would give: n(1 - (1 - density)^P) entries.
inline void print_growth(std::ostream& out, std::vector<result> const& results, options const& chosen) {
  out << "\nbuild-up: entries of the update / entries asked for (and its density in %), as workers are "
         "added\n";
  std::vector<table_row> rows{{"workers", "independent"}};
  for (auto const& each : results)
    if (each.recipe != "dense" && each.workers == chosen.workers.front()) rows.front().push_back(each.recipe);
  for (int const workers : chosen.workers) {
    auto const cell = [&](double growth) {
      return shown(growth, 2) + " (" + shown(100 * growth * chosen.density, 2) + ")";
    };
    rows.push_back({std::to_string(workers), cell((1 - std::pow(1 - chosen.density, workers)) / chosen.density)});
    for (auto const& each : results)
      if (each.recipe != "dense" && each.workers == workers) rows.back().push_back(cell(each.build_up));
  }
  print_table(out, rows);
}

/// A file opened before the work starts: a wrong path is told at once, not after the last step.
[[nodiscard]] inline std::ofstream open_output(std::string const& path) {
  if (auto const folder = std::filesystem::path{path}.parent_path(); !folder.empty()) {
    std::error_code ignored;  // opening the file says it better
    std::filesystem::create_directories(folder, ignored);
  }
  auto file = std::ofstream{path};
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
  return file;
}

inline void write_csv(std::ostream& out, std::vector<result> const& results, int steps) {
  gs::plain_output const plain{out};
  out << "recipe,workers,density,steps,final_loss,test_accuracy,bytes_per_step,dense_bytes_per_step,select_ms,"
         "exchange_ms,step_ms,buildup,overlap,groups,median_step_ms,predicted_ms,compute_ms,received_per_step,entries_"
         "sent,"
         "entries_updated,thresholds_estimated,thresholds_remembered,thresholds_corrected,probes,optimiser_bytes\n";
  for (auto const& each : results)
    out << each.recipe << ',' << each.workers << ',' << each.density << ',' << steps << ',' << shown(each.loss, 6)
        << ',' << shown(each.accuracy, 6) << ',' << shown(each.sent, 1) << ',' << shown(each.dense_sent, 1) << ','
        << shown(each.select_ms, 4) << ',' << shown(each.exchange_ms, 4) << ',' << shown(each.step_ms, 4) << ','
        << shown(each.build_up, 4) << ',' << (each.predicted.schedule.empty() ? "none" : each.predicted.schedule) << ','
        << each.predicted.groups << ',' << shown(each.median_step_ms, 4) << ',' << shown(each.predicted.step_ms, 4)
        << ',' << shown(each.predicted.compute_ms, 4) << ',' << shown(each.received, 1) << ','
        << shown(each.entries_sent, 1) << ',' << shown(each.entries_updated, 1) << ',' << each.thresholds.by[0] << ','
        << each.thresholds.by[1] << ',' << each.thresholds.by[2] << ',' << each.thresholds.probes << ','
        << each.optimiser_bytes << '\n';
}

inline void write_curves(std::ostream& out, std::vector<result> const& results) {
  gs::plain_output const plain{out};
  out << "recipe,step,loss,bytes,seconds,workers\n";
  for (auto const& each : results)
    for (std::size_t i = 0; i < each.curve.size(); ++i)
      out << each.recipe << ',' << i + 1 << ',' << shown(each.curve[i].loss, 6) << ',' << shown(each.curve[i].bytes, 0)
          << ',' << shown(each.curve[i].seconds, 6) << ',' << each.workers << '\n';
}

}  // namespace example
