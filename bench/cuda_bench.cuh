// What all device rows share: settings and their names, gradients by law, the floor, the clock, the check of a step.
#pragma once

#include <benchmark/benchmark.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/device.cuh>

namespace bench {

namespace gs = gradsieve;

/// What the command line chose.
struct options {
  bool quick = false;
  std::vector<std::uint64_t> n;  ///< the only sizes, unless there are none
  int samples = 21;              ///< of a row, at least; small sizes take twice as many
  int settle = 24;               ///< steps before them
  int flush = -1;                ///< MiB that are read before each sample; below 0: four times the L2 cache
};
extern options chosen;

/// A file's rows: at the command line's choices, main() calls what the files have named in a static part{add_rows}.
class part {
 public:
  explicit part(void (*add_rows)()) { all().push_back(add_rows); }
  static std::vector<void (*)()>& all() {
    static std::vector<void (*)()> parts;
    return parts;
  }
};

/// The stream that everything runs in.
cudaStream_t stream();

/// One point of a sweep.
struct setting {
  std::uint64_t n = 0;
  double density = 0.001;
  std::string law = "laplace";
  std::string dtype = "fp32";
  std::string run = "eager";  ///< or graph: a captured step, replayed

  [[nodiscard]] std::string name() const {
    char digits[32];
    std::string const text{digits,
                           std::to_chars(digits, digits + sizeof digits, density, std::chars_format::general, 6).ptr};
    return "n:" + std::to_string(n) + "/density:" + text + "/law:" + law + "/dtype:" + dtype + "/run:" + run;
  }
  [[nodiscard]] gs::index_type k() const { return gs::budget_of(density, n); }
};

inline constexpr std::uint64_t bucket = 25 * (std::uint64_t{1} << 20) / 4;  ///< 25 MiB of floats

/// The sizes of a sweep, all or a few, that are not above `most`.
inline std::vector<std::uint64_t> sizes(std::vector<std::uint64_t> all, std::vector<std::uint64_t> few) {
  if (!chosen.n.empty()) return chosen.n;
  return chosen.quick ? few : all;
}

// ---- On the device: defined in cuda_bench.cu ---------------------------------------------------------------------

/// Draws from a law: laplace, triangle (of half-width 1), equal, zeros90 (nine of ten are 0, always the same ones),
/// layers (64 of them, scales over two decades), dense_end (a thousand times as large in the last 64th), bf16 (Laplace
/// on the grid of bfloat16), doubling (Laplace; what doubles is up to amplify()). `name` makes one draw differ from
/// another.
void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<float> out);
void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<gs::float16> out);
void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<gs::bfloat16> out);

/// out = gradient + gain * residual: what error feedback makes of it is `gain + 1` times as large.
void amplify(std::span<float const> gradient, std::span<float const> residual, float gain, std::span<float> out);

/// The floor: residual += rate * gradient, with the fastest of some launches for this size and type, found on first
/// use.
void accumulate(float* residual, std::span<float const> gradient);
void accumulate(float* residual, std::span<gs::float16 const> gradient);
void accumulate(float* residual, std::span<gs::bfloat16 const> gradient);

/// The launch that it found, in words.
template <class T>
std::string accumulate_launch(std::uint64_t n);

/// A step's entries, in device memory.
struct entries {
  gs::index_type const* indices;
  float const* values;
  gs::index_type const* count;
};

struct audit_counters {
  unsigned long long wrong_entries = 0, wrong_rest = 0, nonzero = 0;
  gs::key_type least_sent = 0xFFFF'FFFF, most_left = 0;
  gs::index_type count = 0;
};

/// Whether a step gave what it must. before() and after() are outside of what is timed.
class audit {
 public:
  explicit audit(std::uint64_t n) : expected_{gs::device{stream()}, n}, found_{gs::device{stream()}, 1} {}

  /// Notes residual + gradient.
  template <class T>
  void before(float const* residual, std::span<T const> gradient) {
    gs::throw_on_error(cudaMemcpyAsync(expected_.data(), residual, gradient.size() * sizeof(float),
                                       cudaMemcpyDeviceToDevice, stream()),
                       "cudaMemcpyAsync");
    accumulate(expected_.data(), gradient);
  }

  /// Empty, or what is wrong: an entry that is not the accumulator's value, one that is there twice, a residual that
  /// is not the rest bit by bit, a count outside of least...most, and, if `largest`, something left that is larger
  /// than something sent.
  [[nodiscard]] std::string after(entries sent, float const* residual, std::uint64_t least, std::uint64_t most,
                                  bool largest);

  /// How many entries there were.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

  /// Differs from zero in what before() noted.
  [[nodiscard]] std::uint64_t nonzero();

  /// What before() noted. Spoilt by after().
  [[nodiscard]] std::span<float> expected() const noexcept { return expected_.span(); }

 private:
  gs::cuda_buffer<float> expected_;
  gs::cuda_buffer<audit_counters> found_;
  std::uint64_t count_ = 0;
};

/// Seconds that the stream is busy with what body() puts into it. The L2 cache holds nothing of use when it begins:
/// other memory is read before, and while that goes on the host has time to put the launches into the stream.
class stopwatch {
 public:
  stopwatch();
  ~stopwatch();
  stopwatch(stopwatch&&) = delete;

  template <class Body>
  double seconds(Body const& body) {
    start();
    body();
    return stop();
  }

 private:
  void start();
  double stop();
  cudaEvent_t begin_{}, end_{};
};

// ---- Gradients ---------------------------------------------------------------------------------------------------

template <class T>
inline constexpr char const* dtype_name = "fp32";
template <>
inline constexpr char const* dtype_name<gs::float16> = "fp16";
template <>
inline constexpr char const* dtype_name<gs::bfloat16> = "bf16";

/// A gradient that is another one at each step, at the cost of three arrays: steps read them from different offsets.
template <class T>
class gradient_source {
 public:
  gradient_source(std::string const& law, std::uint64_t n) : n_{n}, values_{gs::device{stream()}, copies * room()} {
    for (std::uint64_t c = 0; c < copies; ++c) draw(law, n, c, 1, values_.span().subspan(c * room(), room()));
  }

  [[nodiscard]] std::span<T const> next() noexcept {
    ++step_;
    auto const from = step_ % copies * room() + gs::mix(step_) % (shifts / 64) * 64;
    return std::span<T const>{values_.span()}.subspan(from, n_);
  }

 private:
  static constexpr std::uint64_t copies = 3;
  static constexpr std::uint64_t shifts = std::uint64_t{1} << 16;
  [[nodiscard]] std::uint64_t room() const noexcept { return (n_ + shifts + 63) / 64 * 64; }

  std::uint64_t n_;
  gs::cuda_buffer<T> values_;
  std::uint64_t step_ = 0;
};

// ---- Rows --------------------------------------------------------------------------------------------------------

inline double quantile(std::vector<double> values, double part) {
  auto const at = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// Registers a row. Google Benchmark calls the body once: a row takes its own samples, in turn with the floor, and the
/// reported time is a median. What goes wrong makes an error of the row, not of the run.
template <class Body>
void add(std::string const& name, Body body) {
  static std::set<std::string> known;
  if (!known.insert(name).second) return;
  auto const guarded = [body](benchmark::State& state) {
    try {
      body(state);
    } catch (std::exception const& error) {
      state.SkipWithError(error.what());
      cudaGetLastError();  // memory that was not there is no lasting error
    }
  };
  benchmark::RegisterBenchmark(name.c_str(), guarded)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
}

/// One row at work.
template <class T>
class row {
 public:
  row(benchmark::State& state, setting const& at)
      : gradients{at.law, at.n}, state_{state}, at_{at}, residual_{gs::device{stream()}, at.n} {
    gs::throw_on_error(cudaMemsetAsync(residual_.data(), 0, at.n * sizeof(float), stream()), "cudaMemsetAsync");
  }

  gradient_source<T> gradients;

  /// Brings a residual to where error feedback ends up, by calling step(gradient). An element walks until it is sent,
  /// so after about 1 / density steps the residual's law is a triangle of half-width sqrt(2 / density), for Laplace
  /// gradients: the first one is drawn from that, and the steps after it shape the edge. Other laws start from zero.
  template <class Step>
  void settle(Step const& step) {
    if (at_.law == "laplace" || at_.law == "doubling") {
      gs::cuda_buffer<T> first{gs::device{stream()}, at_.n};
      draw("triangle", at_.n, 7, static_cast<float>(std::sqrt(2 / at_.density)), first.span());
      step(std::span<T const>{first.span()});
      gs::throw_on_error(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
    }
    for (int i = 0; i < chosen.settle; ++i) step(gradients.next());
  }

  /// Times the floor and job(gradient) in turn; prepare(gradient), before each job, is not timed. A sample is the mean
  /// of `period` jobs. `bytes`: that a job must move.
  template <class Job, class Prepare>
  void measure(std::uint64_t bytes, Job const& job, Prepare const& prepare, int period = 1) {
    std::vector<double> jobs, floors;
    int const samples = chosen.samples * (at_.n <= bucket && chosen.samples > 2 ? 2 : 1);
    for (auto _ : state_) {
      for (int i = -2; i < samples; ++i) {  // two to warm up
        double time = 0;
        for (int p = 0; p < period; ++p) {
          auto const gradient = gradients.next();
          prepare(gradient);
          time += watch_.seconds([&] { job(gradient); }) / period;
        }
        double const floor = watch_.seconds([&] { accumulate(residual_.data(), gradients.next()); });
        if (i < 0) continue;
        jobs.push_back(time);
        floors.push_back(floor);
      }
      state_.SetIterationTime(quantile(jobs, 0.5));
    }
    double const time = quantile(jobs, 0.5);
    state_.SetBytesProcessed(static_cast<std::int64_t>(bytes));
    count("ns_per_element", time * 1e9 / static_cast<double>(at_.n));
    count("floor_ratio", time / quantile(floors, 0.5));
    count("floor_ms", quantile(floors, 0.5) * 1e3);
    count("q1_ms", quantile(jobs, 0.25) * 1e3);
    count("q3_ms", quantile(jobs, 0.75) * 1e3);
    count("samples", static_cast<double>(jobs.size()));
  }
  template <class Job>
  void measure(std::uint64_t bytes, Job const& job) {
    measure(bytes, job, [](auto) {});
  }

  /// One more figure for this row.
  void count(std::string const& name, double value) { state_.counters[name] = value; }

  /// An error of this row, unless the text is empty.
  void fail_if(std::string const& wrong) {
    if (!wrong.empty()) state_.SkipWithError(wrong.c_str());
  }

 private:
  benchmark::State& state_;
  setting at_;
  gs::cuda_buffer<float> residual_;
  stopwatch watch_;
};

}  // namespace bench
