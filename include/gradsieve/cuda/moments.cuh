// The samples, norms and factors of second_moments on a device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/moment_factors.hpp>
#include <gradsieve/cuda/arguments.cuh>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/error.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/moments.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The memory of second_moments on a device, with the members of host_moments. All is enqueued but what says otherwise.
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
  ~device_moments() { cudaStreamSynchronize(where_.stream); }  // what is enqueued works on what goes now

  template <class Gradient>
  [[nodiscard]] static auto span_of(Gradient& gradient) {
    return checked_device_span(gradient);
  }

  /// What the ranks sum up in a step: all, or norms only.
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

  /// Summands of a rank that has no gradient: NaN.
  void write_nothing() const {
    throw_on_error(cudaMemsetAsync(message_.data(), 0xFF, message_.size() * sizeof(float), where_.stream),
                   "cudaMemsetAsync");
  }

  template <class Comm>
  static void reduce(Comm const& comm, device const& where, std::span<float> values) {
    comm.all_reduce(where, values, reduction::sum);
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

  // These wait.

  [[nodiscard]] std::vector<layer_moments> moments() const {
    return downloaded(where_, std::span<layer_moments const>{moments_.span()});
  }
  template <int = 0>
  void set_moments(std::vector<layer_moments> const& moments, int world) const {
    upload(where_, std::span<layer_moments const>{moments}, moments_.span());
    launch_over<cuda_kernels::restore_factors<>>(where_, layers_, view(), static_cast<double>(world));
  }

 private:
  /// Device memory with these values. Allocates, waits.
  template <class T>
  void put(cuda_buffer<T>& to, std::vector<T> const& values) const {
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
