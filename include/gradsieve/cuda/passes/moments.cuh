// Kernels of second_moments: samples, norms, and what they amount to.
#pragma once

#include <cub/block/block_reduce.cuh>

#include <cmath>
#include <cstdint>

#include <gradsieve/core/moment_factors.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Consecutive elements of a layer, of which one block sums up the squares.
struct moment_tile {
  static constexpr std::uint64_t most = 8192;
  std::uint64_t begin;
  std::uint64_t size;
};

/// What the kernels work on: tables, and the message of the ranks.
struct moment_view {
  detail::layer_sample const* samples;
  std::uint64_t layers;
  std::uint64_t count;             // samples of all layers
  moment_tile const* tiles;        // in order of the layers
  std::uint64_t const* tile_ends;  // of each layer
  double* tile_squares;
  float* message;  // samples; of each layer the ranks' own squares over them, and over all elements, as shared_sum
  detail::layer_moments* moments;
  float* factors;
  double* layer_squares;  // of the mean gradient, as estimated
  double* norm;

  /// A layer's squares over its samples, and over all of it.
  [[nodiscard]] __device__ float* own(std::uint64_t l) const {
    return message + count + detail::shared_sum::numbers * l;
  }
  [[nodiscard]] __device__ float* all(std::uint64_t l) const { return own(layers + l); }
};

/// The sum of value(i) for i < count, in an order that depends on nothing; right in thread 0.
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
    std::uint64_t low = 0;  // the last layer that does not begin behind s
    for (std::uint64_t high = of.layers; high - low > 1;) {
      std::uint64_t const middle = (low + high) / 2;
      (of.samples[middle].first <= s ? low : high) = middle;
    }
    auto const& it = of.samples[low];
    of.message[s] = to_float(gradient[it.place(seed, step, low, s - it.first)]);
  });
}

/// One block a tile.
template <class T>
__global__ void __launch_bounds__(moment_threads) square_tiles(moment_view const of, T const* gradient) {
  auto const tile = of.tiles[blockIdx.x];
  double const total =
      block_sum(tile.size, [&](std::uint64_t i) { return square_of(to_float(gradient[tile.begin + i])); });
  if (threadIdx.x == 0) of.tile_squares[blockIdx.x] = total;
}

/// One block a layer: this rank's summands.
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

/// One block a layer: factors from the sums over all ranks.
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

/// One block.
template <int = 0>
__global__ void __launch_bounds__(moment_threads) sum_norm(moment_view const of) {
  double const total = block_sum(of.layers, [&](std::uint64_t l) { return of.layer_squares[l]; });
  if (threadIdx.x == 0) *of.norm = std::sqrt(total);
}

/// Factors of moments that were restored.
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
