// The samples, norms and factors of second_moments on a device, and their kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <cub/block/block_reduce.cuh>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/moment_factors.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/tuning.cuh>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Consecutive elements of a layer, whose squares one block sums.
struct moment_tile {
  static constexpr std::uint64_t most = 8192;
  std::uint64_t begin;
  std::uint64_t size;
};

/// Arguments of the kernels: tables, and the ranks' message.
struct moment_view {
  detail::layer_sample const* samples;
  std::uint64_t layers;
  std::uint64_t count;             // samples of all layers
  moment_tile const* tiles;        // in order of the layers
  std::uint64_t const* tile_ends;  // of each layer
  double* tile_squares;
  float* message;  // samples; then as shared_sum each layer's squares over samples, and over all elements
  detail::layer_moments* moments;
  float* factors;
  double* layer_squares;  // of the mean gradient, estimated
  double* norm;

  /// A layer's squares over its samples, and over all elements.
  [[nodiscard]] __device__ float* own(std::uint64_t l) const {
    return message + count + detail::shared_sum::numbers * l;
  }
  [[nodiscard]] __device__ float* all(std::uint64_t l) const { return own(layers + l); }
};

/// Sum of value(i) for i < count, in a fixed order; valid in thread 0.
template <class Value>
__device__ double block_sum(std::uint64_t count, Value const& value) {
  using reduce = CUB_NS_QUALIFIER::BlockReduce<double, moment_threads>;
  __shared__ typename reduce::TempStorage shared;
  double own = 0;
  for (std::uint64_t i = threadIdx.x; i < count; i += moment_threads) own += value(i);
  double const total = reduce{shared}.Sum(own);
  __syncthreads();  // the memory is used again
  return total;
}

[[nodiscard]] __device__ inline double square_of(float x) { return widened(x) * widened(x); }

template <class T>
__global__ void take_samples(moment_view const of, T const* gradient, std::uint64_t seed, std::uint64_t step) {
  for_each(of.count, [&](std::uint64_t s) {
    auto const l = count_before(of.layers, [&](std::uint64_t at) { return of.samples[at].first <= s; }) - 1;
    auto const& it = of.samples[l];
    of.message[s] = to_float(gradient[it.place(seed, step, l, s - it.first)]);
  });
}

/// One block per tile.
template <class T>
__global__ void __launch_bounds__(moment_threads) square_tiles(moment_view const of, T const* gradient) {
  auto const tile = of.tiles[blockIdx.x];
  double const total =
      block_sum(tile.size, [&](std::uint64_t i) { return square_of(to_float(gradient[tile.begin + i])); });
  if (threadIdx.x == 0) of.tile_squares[blockIdx.x] = total;
}

/// One block per layer: this rank's summands.
template <int = 0>
__global__ void __launch_bounds__(moment_threads) square_layers(moment_view const of, bool measures, bool norms) {
  std::uint64_t const l = blockIdx.x;
  auto const& it = of.samples[l];
  if (measures) {
    double const own = block_sum(it.count, [&](std::uint64_t j) { return square_of(of.message[it.first + j]); });
    if (threadIdx.x == 0) detail::shared_sum::write(own, of.own(l));
  }
  std::uint64_t const first = l == 0 ? 0 : of.tile_ends[l - 1];
  double const all =
      norms ? block_sum(of.tile_ends[l] - first, [&](std::uint64_t t) { return of.tile_squares[first + t]; }) : 0.0;
  if (threadIdx.x == 0) detail::shared_sum::write(all, of.all(l));
}

/// One block per layer: factors from the sums over all ranks.
template <int = 0>
__global__ void __launch_bounds__(moment_threads)
    read_moments(moment_view const of, double ranks, bool measures, std::uint32_t window) {
  std::uint64_t const l = blockIdx.x;
  auto const& it = of.samples[l];
  double const sums =
      measures ? block_sum(it.count, [&](std::uint64_t j) { return square_of(of.message[it.first + j]); }) : 0.0;
  if (threadIdx.x != 0) return;
  if (measures) {
    of.moments[l].add(exact::divide(sums, exact::multiply(ranks, ranks)),
                      exact::divide(detail::shared_sum::read(of.own(l)), ranks), window);
    of.factors[l] = of.moments[l].factor(ranks);
  }
  of.layer_squares[l] =
      exact::multiply(widened(of.factors[l]), exact::divide(detail::shared_sum::read(of.all(l)), ranks));
}

template <int = 0>
__global__ void __launch_bounds__(moment_threads) sum_norm(moment_view const of) {  // one block
  double const total = block_sum(of.layers, [&](std::uint64_t l) { return of.layer_squares[l]; });
  if (threadIdx.x == 0) *of.norm = std::sqrt(total);
}

template <int = 0>
__global__ void restore_factors(moment_view const of, double ranks) {
  for_each(of.layers, [&](std::uint64_t l) { of.factors[l] = of.moments[l].factor(ranks); });
}

template <class T>
__global__ void clip_gradient(T* values, std::uint64_t count, double const* norm, float most) {
  float const factor = detail::clipping(*norm, most);
  if (magnitude_key(factor) == magnitude_key(1.0f)) return;
  for_each(count, [&](std::uint64_t i) { values[i] = from_float<T>(multiply(to_float(values[i]), factor)); });
}

}  // namespace gradsieve::cuda_kernels
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Memory of second_moments on a device, with the members of host_moments, which enqueue unless they say otherwise.
class device_moments {
 public:
  struct [[maybe_unused]] arithmetic {};  ///< a device rounds in one way only

  device_moments(device where, layout const& layers, moment_options const& options) : where_{where}, options_{options} {
    auto const samples = layer_samples(layers, options.density);
    std::vector<cuda_kernels::moment_tile> tiles;
    std::vector<std::uint64_t> ends;
    for (auto const& each : samples) {
      constexpr auto most = cuda_kernels::moment_tile::most;
      for (std::uint64_t at = 0; at < each.size; at += most)
        tiles.push_back({each.offset + at, std::min(most, each.size - at)});
      ends.push_back(tiles.size());
    }
    layers_ = samples.size();
    tile_count_ = tiles.size();
    count_ = samples.empty() ? 0 : samples.back().first + samples.back().count;
    put(samples_, samples);
    put(tiles_, tiles);
    put(ends_, ends);
    put(moments_, std::vector<layer_moments>(layers_));
    put(factors_, std::vector<float>(layers_, 1.0f));
    put(norm_, std::vector<double>(1));
    put(message_, std::vector<float>(count_ + 2 * shared_sum::numbers * layers_));
    tile_squares_ = cuda_buffer<double>{where_, tile_count_};
    layer_squares_ = cuda_buffer<double>{where_, layers_};
    kernel_list::load();
  }
  device_moments(device_moments const&) = delete;
  device_moments& operator=(device_moments const&) = delete;
  ~device_moments() { cudaStreamSynchronize(where_.stream); }  // enqueued work uses this memory

  template <class Gradient>
  [[nodiscard]] static auto span_of(Gradient& gradient) {
    return checked_device_span(gradient);
  }

  /// Values that the ranks sum in a step: all, or norms only.
  [[nodiscard]] std::span<float> message(bool measures) const noexcept {
    auto const all = message_.span();
    return measures ? all : options_.norms ? all.last(shared_sum::numbers * layers_) : all.first(0);
  }

  /// Writes this rank's summands.
  template <class T>
  void write(std::span<T const> gradient, std::uint64_t step, bool measures) const {
    auto const of = view();
    if (measures) launch_over<cuda_kernels::take_samples<T>>(where_, count_, of, gradient.data(), options_.seed, step);
    if (options_.norms) launch_blocks<cuda_kernels::square_tiles<T>>(where_, tile_count_, of, gradient.data());
    launch_blocks<cuda_kernels::square_layers<>>(where_, layers_, of, measures, options_.norms);
  }

  /// Writes the summands of a rank without a gradient: NaN.
  void write_nothing() const {
    throw_on_error(cudaMemsetAsync(message_.data(), 0xFF, message_.size() * sizeof(float), where_.stream),
                   "cudaMemsetAsync");
  }

  /// Reads the sums over all ranks. A template, so that a program that does not call it compiles no kernel.
  template <int = 0>
  void read(int world, bool measures) const {
    auto const of = view();
    launch_blocks<cuda_kernels::read_moments<>>(where_, layers_, of, static_cast<double>(world), measures,
                                                options_.window);
    if (options_.norms) launch_blocks<cuda_kernels::sum_norm<>>(where_, 1, of);
  }

  [[nodiscard]] std::span<float const> factors() const noexcept { return factors_.span(); }
  /// Waits.
  [[nodiscard]] float norm() const { return norm_of(downloaded(where_, std::span<double const>{norm_.span()})[0]); }

  template <class T>
  void clip(std::span<T> gradient, float most) const {
    launch_over<cuda_kernels::clip_gradient<T>>(where_, gradient.size(), gradient.data(), gradient.size(), norm_.data(),
                                                most);
  }

  // The following wait.

  [[nodiscard]] std::vector<layer_moments> moments() const {
    return downloaded(where_, std::span<layer_moments const>{moments_.span()});
  }
  template <int = 0>
  void set_moments(std::vector<layer_moments> const& moments, int world) const {
    upload(where_, std::span<layer_moments const>{moments}, moments_.span());
    launch_over<cuda_kernels::restore_factors<>>(where_, layers_, view(), static_cast<double>(world));
  }

 private:
  template <class T>
  void put(cuda_buffer<T>& to, std::vector<T> const& values) const {  // allocates, waits
    to = cuda_buffer<T>{where_, values.size()};
    upload(where_, std::span<T const>{values}, to.span());
  }

  [[nodiscard]] cuda_kernels::moment_view view() const noexcept {
    return {samples_.data(),      layers_,         count_,          tiles_.data(),   ends_.data(),
            tile_squares_.data(), message_.data(), moments_.data(), factors_.data(), layer_squares_.data(),
            norm_.data()};
  }

  device where_;
  moment_options options_;
  std::uint64_t layers_ = 0;
  std::uint64_t tile_count_ = 0;
  std::uint64_t count_ = 0;  // samples
  cuda_buffer<layer_sample> samples_;
  cuda_buffer<cuda_kernels::moment_tile> tiles_;
  cuda_buffer<std::uint64_t> ends_;
  cuda_buffer<layer_moments> moments_;
  cuda_buffer<float> factors_;
  cuda_buffer<double> norm_;
  cuda_buffer<float> message_;
  cuda_buffer<double> tile_squares_;
  cuda_buffer<double> layer_squares_;
};

}  // namespace gradsieve::detail
