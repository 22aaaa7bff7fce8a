// How near the device side comes to the speed of memory, and to what others do. Every row times its job and, in turn
// with it, the floor: the kernel residual[i] += rate * gradient[i] on arrays of the same size. floor_ratio is median
// over median; the time of a row is a median too. A row whose step gave something wrong is an error.
//
//   gradsieve_bench_cuda [--quick] [--n=N,N...] [--samples=N] [--settle=N] [--flush=MiB] [Google Benchmark's options]
//
//   --quick      few sizes and densities
//   --n=N,N...   only these sizes
//   --samples=N  of a row, at least [21]
//   --settle=N   steps before them [24]
//   --flush=MiB  read before each sample, so that L2 holds nothing of use [four times L2]
#include "cuda_bench.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>

namespace bench {

options chosen;

cudaStream_t stream() {
  static cudaStream_t const one = [] {
    cudaStream_t made = nullptr;
    gs::throw_on_error(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return made;
  }();
  return one;
}

namespace {

constexpr std::uint64_t most_blocks = 1 << 14;  // of kernels that stride

unsigned blocks_for(std::uint64_t n, int threads = 256) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>((n + threads - 1) / threads, 1, most_blocks));
}

/// A span that device code may ask for its parts.
template <class T>
struct view {
  T* data;
  std::uint64_t size;
  explicit view(std::span<T> from) : data{from.data()}, size{from.size()} {}
};

void launched() { gs::throw_on_error(cudaGetLastError(), "a launch"); }

__device__ std::uint64_t first_item() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::uint64_t all_threads() { return std::uint64_t{gridDim.x} * blockDim.x; }

// ---- Laws --------------------------------------------------------------------------------------------------------

enum class law { laplace, triangle, equal, zeros90, layers, dense_end, bf16 };

law law_of(std::string const& name) {
  if (name == "doubling") return law::laplace;
  std::array const names{"laplace", "triangle", "equal", "zeros90", "layers", "dense_end", "bf16"};
  for (std::size_t i = 0; i < names.size(); ++i)
    if (name == names[i]) return static_cast<law>(i);
  throw gs::invalid_argument("no law " + name);
}

__device__ float uniform(std::uint64_t name) {  // in (0, 1)
  return (static_cast<float>(gs::mix(name) >> 41) + 0.5f) * 0x1p-23f;
}

__device__ float element(law which, std::uint64_t i, std::uint64_t n, std::uint64_t name) {
  if (which == law::equal) return 1.0f;
  if (which == law::zeros90 && i % 64 % 10 != 0) return 0.0f;
  auto const seed = gs::mix(name) + 2 * i;
  if (which == law::triangle) return uniform(seed) + uniform(seed + 1) - 1;
  float const x = (gs::mix(~seed) % 2 == 0 ? -1.0f : 1.0f) * logf(uniform(seed));
  if (which == law::layers) return x * exp10f(2 * static_cast<float>(min(i * 64 / n, 63ul)) / 63 - 1);
  if (which == law::dense_end && i >= n - n / 64) return 1000 * x;
  return which == law::bf16 ? gs::to_float(gs::from_float<gs::bfloat16>(x)) : x;
}

template <class T>
__global__ void draw_kernel(law which, std::uint64_t n, std::uint64_t name, float scale, view<T> out) {
  for (auto i = first_item(); i < out.size; i += all_threads())
    out.data[i] = gs::from_float<T>(scale * element(which, i, n, name));
}

template <class T>
void draw_any(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<T> out) {
  draw_kernel<<<blocks_for(out.size()), 256, 0, stream()>>>(law_of(law), n, name, scale, view{out});
  launched();
}

__global__ void amplify_kernel(float const* gradient, float const* residual, float gain, view<float> out) {
  for (auto i = first_item(); i < out.size; i += all_threads()) out.data[i] = gradient[i] + gain * residual[i];
}

// ---- The floor ---------------------------------------------------------------------------------------------------

__device__ float widen(float x) { return x; }
__device__ float widen(gs::float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ float widen(gs::bfloat16 x) { return gs::to_float(x); }

template <std::size_t Bytes>
struct words {
  using type = uint4;
};
template <>
struct words<8> {
  using type = uint2;
};

/// Threads take `Unroll` vectors of `Count` values each, a block's length apart.
template <class T, int Count, int Unroll>
__global__ void accumulate_kernel(float* residual, T const* gradient, float rate, std::uint64_t n) {
  std::uint64_t const tile = std::uint64_t{blockDim.x} * Count * Unroll;
  for (std::uint64_t start = blockIdx.x * tile; start < n; start += gridDim.x * tile) {
    std::uint64_t const from = start + std::uint64_t{threadIdx.x} * Count;
    if (start + tile <= n) {
      using word = typename words<Count * sizeof(T)>::type;
      alignas(16) T g[Unroll][Count];
      float4 r[Unroll][Count / 4];
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        auto const at = from + std::uint64_t{blockDim.x} * Count * u;
        *reinterpret_cast<word*>(g[u]) = __ldcs(reinterpret_cast<word const*>(gradient + at));
#pragma unroll
        for (int v = 0; v < Count / 4; ++v) r[u][v] = reinterpret_cast<float4 const*>(residual + at)[v];
      }
#pragma unroll
      for (int u = 0; u < Unroll; ++u) {
        auto const at = from + std::uint64_t{blockDim.x} * Count * u;
#pragma unroll
        for (int v = 0; v < Count / 4; ++v) {
          r[u][v].x += rate * widen(g[u][4 * v]);
          r[u][v].y += rate * widen(g[u][4 * v + 1]);
          r[u][v].z += rate * widen(g[u][4 * v + 2]);
          r[u][v].w += rate * widen(g[u][4 * v + 3]);
          reinterpret_cast<float4*>(residual + at)[v] = r[u][v];
        }
      }
    } else {
      for (auto i = start + threadIdx.x; i < n; i += blockDim.x) residual[i] += rate * widen(gradient[i]);
    }
  }
}

/// One way to launch it.
struct launch {
  int count, unroll, threads;
  bool strides;  ///< as many blocks as fit, instead of one for each tile

  [[nodiscard]] std::string text() const {
    return std::to_string(threads) + " threads, " + std::to_string(unroll) + " x " + std::to_string(count) +
           (strides ? ", strides" : "");
  }

  template <class T>
  void run(float* residual, std::span<T const> gradient) const {
    auto const go = [&](auto kernel) {
      auto const tile = std::uint64_t(threads) * count * unroll;
      auto blocks = (gradient.size() + tile - 1) / tile;
      if (strides) blocks = std::min<std::uint64_t>(blocks, multiprocessors() * (2048 / threads));
      kernel<<<static_cast<unsigned>(std::max<std::uint64_t>(blocks, 1)), threads, 0, stream()>>>(
          residual, gradient.data(), 1.0f, gradient.size());
      launched();
    };
    auto const with_count = [&]<int Count> {
      if (unroll == 1) return go(accumulate_kernel<T, Count, 1>);
      if (unroll == 2) return go(accumulate_kernel<T, Count, 2>);
      go(accumulate_kernel<T, Count, 4>);
    };
    if constexpr (sizeof(T) == 2)
      if (count == 8) return with_count.template operator()<8>();
    with_count.template operator()<4>();
  }

  static std::uint64_t multiprocessors() {
    static int const number = [] {
      int device = 0;
      int value = 0;
      gs::throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
      gs::throw_on_error(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device),
                         "cudaDeviceGetAttribute");
      return value;
    }();
    return static_cast<std::uint64_t>(number);
  }
};

/// The fastest of all, by the median of a few runs on memory of its own.
template <class T>
launch tune(std::uint64_t n) {
  gs::cuda_buffer<float> residual{gs::device{stream()}, n};
  gs::cuda_buffer<T> gradient{gs::device{stream()}, n};
  draw_any<float>("laplace", n, 1, 1, residual.span());
  draw_any<T>("laplace", n, 2, 1, gradient.span());
  stopwatch watch;
  launch best{};
  double least = std::numeric_limits<double>::infinity();
  for (int count = 4; count <= static_cast<int>(16 / sizeof(T)); count *= 2)
    for (int unroll = 1; unroll <= 4; unroll *= 2)
      for (int threads = 256; threads <= 1024; threads *= 2)
        for (bool const strides : {false, true}) {
          launch const here{count, unroll, threads, strides};
          std::vector<double> times;
          for (int i = 0; i < (chosen.samples > 2 ? 7 : 1); ++i)
            times.push_back(watch.seconds([&] { here.run(residual.data(), std::span<T const>{gradient.span()}); }));
          if (double const time = quantile(times, 0.5); time < least) {
            least = time;
            best = here;
          }
        }
  return best;
}

template <class T>
launch best_launch(std::uint64_t n) {
  static std::map<std::uint64_t, launch> known;
  auto const found = known.find(n);
  return found != known.end() ? found->second : known.emplace(n, tune<T>(n)).first->second;
}

// ---- The clock ---------------------------------------------------------------------------------------------------

__global__ void read_kernel(view<uint4> values, unsigned* out) {
  unsigned sum = 0;
  for (auto i = first_item(); i < values.size; i += all_threads()) sum |= values.data[i].x;
  if (sum != 0) *out = sum;
}

/// Reads memory, so that what the caches hold is clean and of no use.
void flush() {
  static gs::cuda_buffer<uint4> const memory = [] {
    int device = 0;
    int cache = 0;
    gs::throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
    gs::throw_on_error(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    auto const bytes = chosen.flush < 0 ? 4 * std::uint64_t(cache) : std::uint64_t(chosen.flush) << 20;
    gs::cuda_buffer<uint4> made{gs::device{stream()}, bytes / sizeof(uint4) + 1};
    gs::throw_on_error(cudaMemsetAsync(made.data(), 0, made.size() * sizeof(uint4), stream()), "cudaMemsetAsync");
    return made;
  }();
  read_kernel<<<static_cast<unsigned>(launch::multiprocessors() * 8), 256, 0, stream()>>>(
      view{memory.span()}, reinterpret_cast<unsigned*>(memory.data()));
  launched();
}

}  // namespace

void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<float> out) {
  draw_any(law, n, name, scale, out);
}
void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<gs::float16> out) {
  draw_any(law, n, name, scale, out);
}
void draw(std::string const& law, std::uint64_t n, std::uint64_t name, float scale, std::span<gs::bfloat16> out) {
  draw_any(law, n, name, scale, out);
}

void amplify(std::span<float const> gradient, std::span<float const> residual, float gain, std::span<float> out) {
  amplify_kernel<<<blocks_for(out.size()), 256, 0, stream()>>>(gradient.data(), residual.data(), gain, view{out});
  launched();
}

void accumulate(float* residual, std::span<float const> gradient) {
  best_launch<float>(gradient.size()).run(residual, gradient);
}
void accumulate(float* residual, std::span<gs::float16 const> gradient) {
  best_launch<gs::float16>(gradient.size()).run(residual, gradient);
}
void accumulate(float* residual, std::span<gs::bfloat16 const> gradient) {
  best_launch<gs::bfloat16>(gradient.size()).run(residual, gradient);
}

template <class T>
std::string accumulate_launch(std::uint64_t n) {
  return best_launch<T>(n).text();
}
template std::string accumulate_launch<float>(std::uint64_t);
template std::string accumulate_launch<gs::float16>(std::uint64_t);
template std::string accumulate_launch<gs::bfloat16>(std::uint64_t);

stopwatch::stopwatch() {
  gs::throw_on_error(cudaEventCreate(&begin_), "cudaEventCreate");
  gs::throw_on_error(cudaEventCreate(&end_), "cudaEventCreate");
}

stopwatch::~stopwatch() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

void stopwatch::start() {
  gs::throw_on_error(cudaStreamSynchronize(stream()), "cudaStreamSynchronize");
  flush();
  gs::throw_on_error(cudaEventRecord(begin_, stream()), "cudaEventRecord");
}

double stopwatch::stop() {
  gs::throw_on_error(cudaEventRecord(end_, stream()), "cudaEventRecord");
  gs::throw_on_error(cudaEventSynchronize(end_), "cudaEventSynchronize");
  float milliseconds = 0;
  gs::throw_on_error(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

// ---- The check ---------------------------------------------------------------------------------------------------

namespace {

constexpr std::uint32_t taken = 0x7FFF'DEAD;  // a NaN that no sum gives

__global__ void count_kernel(view<float> values, audit_counters* found) {
  unsigned long long nonzero = 0;
  for (auto i = first_item(); i < values.size; i += all_threads()) nonzero += gs::magnitude_key(values.data[i]) != 0;
  atomicAdd(&found->nonzero, nonzero);
}

__global__ void sent_kernel(entries sent, view<float> expected, audit_counters* found) {
  gs::index_type const count = *sent.count;
  gs::key_type least = ~gs::key_type{0};
  unsigned long long wrong = 0;
  for (auto e = first_item(); e < count; e += all_threads()) {
    auto const index = sent.indices[e];
    auto const bits = __float_as_uint(sent.values[e]);
    if (index < expected.size) {
      wrong += atomicExch(reinterpret_cast<std::uint32_t*>(expected.data) + index, taken) != bits;
    } else {
      ++wrong;
    }
    least = min(least, gs::magnitude_key(sent.values[e]));
  }
  if (wrong != 0) atomicAdd(&found->wrong_entries, wrong);
  if (least != ~gs::key_type{0}) atomicMin(&found->least_sent, least);
  if (first_item() == 0) found->count = count;
}

__global__ void rest_kernel(float const* residual, view<float> expected, audit_counters* found) {
  gs::key_type most = 0;
  unsigned long long wrong = 0;
  for (auto i = first_item(); i < expected.size; i += all_threads()) {
    auto const bits = __float_as_uint(expected.data[i]);
    wrong += bits == taken ? residual[i] != 0 : __float_as_uint(residual[i]) != bits;
    if (bits != taken) most = max(most, gs::magnitude_key(residual[i]));
  }
  if (wrong != 0) atomicAdd(&found->wrong_rest, wrong);
  atomicMax(&found->most_left, most);
}

audit_counters read(gs::cuda_buffer<audit_counters> const& found) {
  audit_counters result{};
  gs::device{stream()}.copy(std::as_bytes(found.span()), std::as_writable_bytes(std::span{&result, 1}));
  gs::device{stream()}.synchronize();
  return result;
}

}  // namespace

std::uint64_t audit::nonzero() {
  gs::throw_on_error(cudaMemsetAsync(found_.data(), 0, sizeof(audit_counters), stream()), "cudaMemsetAsync");
  count_kernel<<<blocks_for(expected_.size()), 256, 0, stream()>>>(view{expected_.span()}, found_.data());
  launched();
  return read(found_).nonzero;
}

std::string audit::after(entries sent, float const* residual, std::uint64_t least, std::uint64_t most, bool largest) {
  audit_counters const none{};
  gs::device{stream()}.copy(std::as_bytes(std::span{&none, 1}), std::as_writable_bytes(found_.span()));
  sent_kernel<<<blocks_for(most), 256, 0, stream()>>>(sent, view{expected_.span()}, found_.data());
  launched();
  rest_kernel<<<blocks_for(expected_.size()), 256, 0, stream()>>>(residual, view{expected_.span()}, found_.data());
  launched();
  auto const found = read(found_);
  count_ = found.count;
  if (found.wrong_entries != 0) return std::to_string(found.wrong_entries) + " entries are not the accumulator's";
  if (found.wrong_rest != 0) return std::to_string(found.wrong_rest) + " elements of the residual are wrong";
  if (count_ < least || count_ > most)
    return std::to_string(count_) + " entries instead of " + std::to_string(least) + " to " + std::to_string(most);
  if (largest && found.least_sent < found.most_left) return "something left is larger than something sent";
  return {};
}

namespace {

/// Facts that the figures depend on, for the head of the output.
void add_context(int argc, char** argv) {
  std::string command = argv[0];
  for (int i = 1; i < argc; ++i) command.append(" ").append(argv[i]);
  int device = 0;
  int driver = 0;
  cudaDeviceProp about{};
  gs::throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
  gs::throw_on_error(cudaGetDeviceProperties(&about, device), "cudaGetDeviceProperties");
  gs::throw_on_error(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  benchmark::AddCustomContext("command", command);
  benchmark::AddCustomContext("gpu", about.name);
  benchmark::AddCustomContext("multiprocessors", std::to_string(about.multiProcessorCount));
  benchmark::AddCustomContext("l2_bytes", std::to_string(about.l2CacheSize));
  benchmark::AddCustomContext("memory_bytes", std::to_string(about.totalGlobalMem));
  benchmark::AddCustomContext("capability", std::to_string(about.major) + "." + std::to_string(about.minor));
  benchmark::AddCustomContext("driver_cuda", std::to_string(driver));
  benchmark::AddCustomContext("compiler", "nvcc " + std::to_string(__CUDACC_VER_MAJOR__) + "." +
                                              std::to_string(__CUDACC_VER_MINOR__) + ", g++ " __VERSION__);
}

/// Numbers with commas between them.
std::vector<std::uint64_t> sizes_of(char const* text) {
  std::vector<std::uint64_t> sizes;
  for (char* end = nullptr;; text = end + 1) {
    sizes.push_back(std::strtoull(text, &end, 10));
    if (*end != ',') return sizes;
  }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  std::vector<char*> rest;
  for (int i = 0; i < argc; ++i) {
    std::string const argument = argv[i];
    char const* const value = argv[i] + std::min(argument.size(), argument.find('=') + 1);
    if (argument == "--quick")
      bench::chosen.quick = true;
    else if (argument.starts_with("--n="))
      bench::chosen.n = bench::sizes_of(value);
    else if (argument.starts_with("--samples="))
      bench::chosen.samples = std::max(1, std::atoi(value));
    else if (argument.starts_with("--settle="))
      bench::chosen.settle = std::atoi(value);
    else if (argument.starts_with("--flush="))
      bench::chosen.flush = std::atoi(value);
    else
      rest.push_back(argv[i]);
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::cerr << "gradsieve_bench_cuda: no CUDA device\n";
    return 77;  // skipped
  }
  bench::add_context(argc, argv);
  for (auto const add_rows : bench::part::all()) add_rows();
  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  if (benchmark::ReportUnrecognizedArguments(count, rest.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
