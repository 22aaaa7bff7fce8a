// What all rows share: settings and their names, the measurement in turn with the floor, the start of a residual.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "floor.hpp"
#include "inputs.hpp"

namespace bench {

/// Whether the program was built with a header of the user's own policies: see own.cpp.
bool has_own_policies();

/// What the command line chose.
struct options {
  bool full = false;
  bool peers = false;
  double seconds = 1;                                        ///< that a row is measured for
  std::vector<std::uint64_t> sizes{std::uint64_t{1} << 25};  ///< elements
  std::vector<int> thread_counts{0};                         ///< resolved: 0 is all
  std::vector<double> densities;                             ///< of a grid
  std::vector<std::uint64_t> ks;                             ///< in place of densities
  std::vector<std::string> selectors;                        ///< of a grid; "all"
  std::vector<std::string> recipes;                          ///< of a grid, as text without a density
  std::uint64_t n = 0;                                       ///< the last of the sizes: of the card's rows
  int threads = 0;                                           ///< the last of their counts

  /// Whether it asks for rows of its own, in place of the card's questions.
  [[nodiscard]] bool is_grid() const {
    return sizes.size() > 1 || thread_counts.size() > 1 || !densities.empty() || !ks.empty() || !selectors.empty() ||
           !recipes.empty() || has_own_policies();
  }
};

/// Reads the options above; what is not one of them goes to `others`. Throws std::invalid_argument.
options parse_command_line(int argc, char** argv, std::vector<char*>& others);
void print_usage();
bool is_selector(std::string_view name);

void add_grid(options const&);
void add_recipes(options const&);  // of a grid: recipes as text, and those of a header of the user's
void add_own(options const&);

// The card's questions, one a file; each adds its rows.
void add_steps(options const&);     // step/, cold/: how near the speed of memory is a step?
void add_selects(options const&);   // select/, select_warm/: and selection alone, from memory?
void add_deft(options const&);      // deft/: which part of a selection is left to each rank?
void add_codecs(options const&);    // codec/, apply/: what do messages cost?
void add_memory(options const&);    // memory/: how much of it beside the residual?
void add_peers(options const&);     // peer/: what does the same job cost in other ways?
void add_torch(options const&);     // peer/libtorch
void add_schedule(options const&);  // plan/: how long does it take to plan an exchange?

/// One point of a sweep.
struct setting {
  std::uint64_t n;
  double density;
  std::string law = "laplace";
  std::string dtype = "fp32";
  int threads;
  double seconds;
  std::uint64_t asked_k = 0;  ///< --k, which the row then names before its density

  [[nodiscard]] std::string name() const {
    char digits[32];
    std::string const text{digits,
                           std::to_chars(digits, digits + sizeof digits, density, std::chars_format::general, 6).ptr};
    auto const entries = asked_k > 0 ? "/k:" + std::to_string(asked_k) : std::string{};
    return "n:" + std::to_string(n) + entries + "/density:" + text + "/law:" + law + "/dtype:" + dtype +
           "/threads:" + std::to_string(threads);
  }
  [[nodiscard]] gs::index_type k() const { return gs::budget_of(density, n); }
};

/// The setting that sweeps start from.
inline setting usual(options const& chosen, double density) {
  return {.n = chosen.n, .density = density, .threads = chosen.threads, .seconds = chosen.seconds};
}

/// The points of the grid, or where there is none the usual setting at these densities.
std::vector<setting> settings_of(options const& chosen, std::initializer_list<double> densities);

/// Registers a row, once where sweeps meet. Google Benchmark calls the body once: a row counts its own repetitions, so
/// that the inputs are made once and the reported time is a median.
template <class Body>
void add(std::string const& name, Body body) {
  static std::set<std::string> known;
  if (!known.insert(name).second) return;
  benchmark::RegisterBenchmark(name.c_str(), std::move(body))
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

/// Brings a residual to where error feedback ends up, by calling step(gradient). An element walks until it is sent, so
/// after about 1 / density steps the residual's law is a triangle of half-width deviation / sqrt(density): the first
/// gradient is drawn from that, and the steps after it shape the edge. Ties and jumps (equal, two_values,
/// alternating) start from zero.
template <class T, class Step>
void settle(setting const& at, gradient_source<T>& gradients, Step const& step, int steps = 24) {
  if (double const walk = deviation(at.law) / std::sqrt(at.density); walk > 0)
    step(gradient_source<T>{"triangle", at.n, at.threads, walk}.next());
  for (int i = 0; i < steps; ++i) step(gradients.next());
}

/// Law "ef": accumulators of error feedback, a settled residual and one more Laplace gradient.
inline void fill_with_accumulators(setting at, std::span<float> values) {
  at.n = values.size();
  at.law = "laplace";
  gs::recipe const recipe{.density = at.density};
  gs::compressor reducer{gs::host{at.threads}, gs::layout::flat(at.n), recipe};
  gradient_source<float> gradients{at.law, at.n, at.threads};
  settle(at, gradients, [&](std::span<float const> gradient) { reducer.compress(gradient); });
  auto const residual = reducer.residual();
  auto const last = gradients.next();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = residual[i] + last[i];
}

/// Whether a floor took over 2.5 times as long as the least one of its size in this run: the machine had something else
/// to do. Memory that virtual machines share may differ by a factor of two from minute to minute; a ratio to the floor
/// of the same row holds all the same. Below a millisecond it says little, as caches differ. results.py has the last
/// word: it knows the whole run.
inline bool slow_floor(setting const& at, double floor_seconds) {
  static std::map<std::tuple<std::uint64_t, std::string, int>, double> least;
  double& known = least.try_emplace({at.n, at.dtype, at.threads}, floor_seconds).first->second;
  known = std::min(known, floor_seconds);
  return floor_seconds > 2.5 * known && floor_seconds > 1e-3;
}

/// One row at work: its gradients, and the floor on arrays of the same size with the same threads. The floor of a row
/// of 16-bit gradients is its bytes at the speed of the loop over floats.
template <class T>
class row {
 public:
  row(benchmark::State& state, setting const& at)
      : gradients{at.law, at.n, at.threads}, state_{state}, at_{at}, residual_{zeros(team_, at.n)} {
    if constexpr (std::same_as<T, float>) {
      if (at.law == "ef") fill_with_accumulators(at, gradients.values());
    } else {
      floats_ = zeros(team_, at.n);
    }
  }

  gradient_source<T> gradients;

  /// Times floor and job(gradient), which returns its seconds, in turn; reports medians, and returns the job's.
  /// `bytes`: that the job must move. What was disturbed is measured again, three times at most.
  template <class Job>
  double measure(std::uint64_t bytes, Job const& job) {
    for (int warm = 0; warm < 2; ++warm) sample(job);
    for (auto _ : state_) {
      int again = 0;
      while (disturbed(job) && again < 3) ++again;
      state_.SetIterationTime(median(jobs_));
      count("measured_again", again);
    }
    double const time = median(jobs_);
    state_.SetBytesProcessed(static_cast<std::int64_t>(bytes));
    count("ns_per_element", time * 1e9 / static_cast<double>(at_.n));
    count("floor_ratio", time / median(floors_));
    count("floor_ms", median(floors_) * 1e3);
    count("q1_ms", quantile(jobs_, 0.25) * 1e3);
    count("q3_ms", quantile(jobs_, 0.75) * 1e3);
    count("samples", static_cast<double>(jobs_.size()));
    count("k", at_.k());
    count("kept_waiting", kept_waiting());
    count("disturbed", scheduled_away() ? 1 : 0);
    if (scheduled_away()) state_.SetLabel("disturbed: other processes had the cores");
    return time;
  }

  /// One more figure for this row.
  void count(std::string const& name, double value) { state_.counters[name] = value; }

 private:
  static constexpr std::size_t least = 5;
  static constexpr std::size_t most = 4000;
  static constexpr double meeting_seconds = 1e-4;  // an undisturbed one takes a few microseconds
  static constexpr double most_waiting = 0.1;

  /// Takes samples for the row's time. Returns whether they were disturbed.
  template <class Job>
  bool disturbed(Job const& job) {
    jobs_.clear();
    floors_.clear();
    late_ = 0;
    auto const start = std::chrono::steady_clock::now();
    auto const end = start + std::chrono::duration<double>(at_.seconds);
    while (jobs_.size() < least || (jobs_.size() < most && std::chrono::steady_clock::now() < end)) sample(job);
    return slow_floor(at_, median(floors_)) || (scheduled_away() && at_.seconds > 0);
  }

  template <class Job>
  void sample(Job const& job) {
    int const period = at_.law == "alternating" ? 2 : 1;  // its two kinds of steps differ: a sample is their mean
    double floor = 0;
    double time = 0;
    for (int i = 0; i < period; ++i) {
      auto const gradient = gradients.next();
      floor += floor_of(gradient);
      time += job(gradient);
    }
    floors_.push_back(floor / period);
    jobs_.push_back(time / period);
    // Where other processes run the threads of a pass wait for the scheduler; so they do if there is nothing to do.
    double const meeting = seconds([&] { team_.run(at_.n, [](int) {}); });
    late_ += meeting > meeting_seconds ? 1 : 0;
  }

  double floor_of(std::span<T const> gradient) {
    if constexpr (std::same_as<T, float>)
      return seconds([&] { accumulate(team_, residual_.data(), gradient); });
    else
      return seconds([&] { accumulate<float>(team_, residual_.data(), floats_.span()); }) * (8 + sizeof(T)) / 12;
  }

  /// The part of the samples at whose end the threads did not meet at once.
  [[nodiscard]] double kept_waiting() const { return static_cast<double>(late_) / static_cast<double>(jobs_.size()); }

  /// Whether that was often, or half of the samples took over 2.5 times as long as the least. Below a millisecond steps
  /// differ by nature.
  [[nodiscard]] bool scheduled_away() const {
    double const half = median(jobs_);
    return kept_waiting() > most_waiting || (half > 1e-3 && half > 2.5 * *std::ranges::min_element(jobs_));
  }

  benchmark::State& state_;
  setting at_;
  gs::detail::host_team team_{at_.threads};
  gs::host_buffer<float> residual_;
  gs::host_buffer<float> floats_;  // the floor's gradient, where the row's is not of floats
  std::vector<double> jobs_;
  std::vector<double> floors_;
  std::uint64_t late_ = 0;
};

/// Calls body(a value of the setting's gradient format).
template <class Body>
void with_dtype(setting const& at, Body const& body) {
  if (at.dtype == "fp16") return body(gs::float16{});
  if (at.dtype == "bf16") return body(gs::bfloat16{});
  body(float{});
}

/// Calls body(name, selector).
template <class Body>
void for_each_selector(Body const& body) {
  body("radix", gs::radix{});
  body("laplacian", gs::laplacian{});
  body("laplacian_exact", gs::laplacian{.count = gs::count_mode::exact});
  body("hierarchical", gs::hierarchical{});
}

/// Those that others compare with.
template <class Body>
void for_each_selector_to_compare(Body const& body) {
  body("ldte", gs::ldte{});
  body("sidco", gs::sidco{});
  body("trimmed", gs::trimmed{});
  body("threshold_search", gs::threshold_search{});
}

/// What a grid may be of.
template <class Body>
void for_each_selector_of_grids(Body const& body) {
  for_each_selector(body);
  body("chunked", gs::chunked{});
  for_each_selector_to_compare(body);
}

}  // namespace bench
