// The samples, norms and factors of second_moments on the host.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/moment_factors.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/measure.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/workspace.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Sum of squares, in lanes whose order is fixed.
struct sum_of_squares {
  template <simd Level, class T>
  GRADSIEVE_INLINE static double run(T const* values, std::size_t count) noexcept {
    running_sums<Level> sums;
    if constexpr (std::same_as<T, float>) {
      return sums.end(values, count).sum_squares;
    } else {
      float widened[block];
      auto const widen = [&](std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) widened[i] = to_float(values[i]);
      };
      for (; count > block; values += block, count -= block) {
        widen(block);
        sums.add(widened, block);
      }
      widen(count);
      return sums.end(widened, count).sum_squares;
    }
  }
};

struct scale_values {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* values, std::size_t count, float factor) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) values[i] = from_float<T>(multiply(to_float(values[i]), factor));
  }
};

}  // namespace gradsieve::host_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Memory of second_moments on the host. The ranks sum up samples of the gradient and, for each layer, as shared_sum,
/// this rank's sum of squares over the samples and over the whole layer.
class host_moments {
 public:
  using arithmetic = float_environment;

  host_moments(host where, layout const& layers, moment_options const& options)
      : scope_{where.threads, layers.size(), where.simd_limit},
        options_{options},
        samples_{layer_samples(layers, options.density)},
        moments_(samples_.size()),
        factors_(samples_.size(), 1.0f) {
    auto const count = samples_.empty() ? 0 : samples_.back().first + samples_.back().count;
    message_ = host_buffer<float>(count + 2 * sums_size());
    for (std::size_t l = 0; l < samples_.size(); ++l)
      for (std::uint64_t at = 0; at < samples_[l].size; at += host_kernels::tile_size)
        tiles_.push_back({l, at, std::min<std::uint64_t>(host_kernels::tile_size, samples_[l].size - at), 0});
  }

  template <class Gradient>
  [[nodiscard]] static auto span_of(Gradient& gradient) {
    return checked_span(gradient);
  }

  /// The values that the ranks sum up in a step: all, or norms only.
  [[nodiscard]] std::span<float> message(bool measures) const noexcept {
    auto const all = message_.span();
    return measures ? all : options_.norms ? all.last(sums_size()) : all.first(0);
  }

  /// Writes this rank's values. Cost: one pass if there are norms; otherwise the samples.
  template <class T>
  void write(std::span<T const> gradient, std::uint64_t step, bool measures) {
    auto const all = message_.span();
    auto const norms = all.last(sums_size());
    if (measures) {
      auto const own = all.last(2 * sums_size());
      scope_.split(all.size() * 32, samples_.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
        for (auto l = begin; l < end; ++l) {
          auto const& it = samples_[l];
          for (std::uint64_t j = 0; j < it.count; ++j)
            all[it.first + j] = to_float(gradient[it.place(options_.seed, step, l, j)]);
          shared_sum::write(squares_of(it), &own[shared_sum::numbers * l]);
        }
      });
    }
    if (options_.norms)
      write_norms(gradient, norms);
    else
      std::ranges::fill(norms, 0.0f);
  }

  /// Writes NaN, for a rank without a gradient: no rank then learns moments or a norm from this step.
  void write_nothing() noexcept { std::ranges::fill(message_.span(), gradsieve::bit_cast<float>(0x7FC0'0000u)); }

  /// Reads the sums over all ranks.
  void read(int world, bool measures) {
    auto const norms = message_.span().last(sums_size());
    auto const own = message_.span().last(2 * sums_size());
    auto const ranks = static_cast<double>(world);
    double squares = 0;
    for (std::size_t l = 0; l < samples_.size(); ++l) {
      auto const at = shared_sum::numbers * l;
      if (measures) {
        moments_[l].add(exact::divide(squares_of(samples_[l]), exact::multiply(ranks, ranks)),
                        exact::divide(shared_sum::read(&own[at]), ranks), options_.window);
        factors_[l] = moments_[l].factor(ranks);
      }
      squares = exact::add(squares, exact::multiply(static_cast<double>(factors_[l]),
                                                    exact::divide(shared_sum::read(&norms[at]), ranks)));
    }
    if (options_.norms) norm_ = root(squares);
  }

  [[nodiscard]] std::span<float const> factors() const noexcept { return factors_; }
  [[nodiscard]] float norm() const noexcept { return norm_of(norm_); }

  template <class T>
  void clip(std::span<T> gradient, float most) const {
    float const factor = clipping(norm_, most);
    if (factor == 1.0f) return;
    scope_.split(gradient.size(), gradient.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      host_kernels::run<host_kernels::scale_values>(scope_.level, gradient.data() + begin, std::size_t{end - begin},
                                                    factor);
    });
  }

  [[nodiscard]] std::vector<layer_moments> const& moments() const noexcept { return moments_; }
  void set_moments(std::vector<layer_moments> moments, int world) noexcept {
    moments_ = std::move(moments);
    for (std::size_t l = 0; l < moments_.size(); ++l) factors_[l] = moments_[l].factor(static_cast<double>(world));
  }

 private:
  struct tile {
    std::size_t layer;
    std::uint64_t begin;
    std::uint64_t size;
    double squares;
  };

  [[nodiscard]] std::size_t sums_size() const noexcept { return shared_sum::numbers * samples_.size(); }

  /// Sum of squares of a layer's samples in the message.
  [[nodiscard]] double squares_of(layer_sample const& it) const {
    return host_kernels::run<host_kernels::sum_of_squares>(
        scope_.level, static_cast<float const*>(message_.data()) + it.first, std::size_t{it.count});
  }

  template <class T>
  void write_norms(std::span<T const> gradient, std::span<float> to) {
    scope_.split(gradient.size(), tiles_.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto t = begin; t < end; ++t)
        tiles_[t].squares = host_kernels::run<host_kernels::sum_of_squares>(
            scope_.level, gradient.data() + samples_[tiles_[t].layer].offset + tiles_[t].begin,
            std::size_t{tiles_[t].size});
    });
    std::vector<tile>::const_iterator at = tiles_.begin();
    for (std::size_t l = 0; l < samples_.size(); ++l) {
      double sum = 0;
      for (; at != tiles_.end() && at->layer == l; ++at) sum = exact::add(sum, at->squares);
      shared_sum::write(sum, &to[shared_sum::numbers * l]);
    }
  }

  [[nodiscard]] GRADSIEVE_PRECISE static double root(double x) noexcept {
    GRADSIEVE_EXACT
    return std::sqrt(x);
  }

  host_scope scope_;
  moment_options options_;
  std::vector<layer_sample> samples_;
  std::vector<layer_moments> moments_;
  std::vector<float> factors_;
  host_buffer<float> message_;
  std::vector<tile> tiles_;
  double norm_ = 0;
};

}  // namespace gradsieve::detail
