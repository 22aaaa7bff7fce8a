// The common parameters of a parameter_exchange on the host, and the passes over them.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/arguments.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/own_parameter.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/workspace.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// Computes the optimiser's update, times a factor, from own parameters. It may overwrite them.
struct take_updates {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T const* own, float const* common, float const* unsent, float weight, float factor,
                                   float* update, std::size_t count) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i)
      update[i] = detail::own_update<T>(own[i], common[i], unsent[i], weight, factor);
  }
};

/// Moves the common parameters by the mean, or by `scale` times the momentum that it goes into, and writes own ones.
/// `own` may be the mean's memory. `held`: the momentum, or null.
struct move_parameters {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, float* common, float* held, float keep, float scale, float const* unsent,
                                   float weight, float const* mean, std::size_t count) noexcept {
    auto const move = [&](std::size_t i, float by) GRADSIEVE_LAMBDA_INLINE {
      float const moved = detail::moved_common(common[i], by);
      own[i] = detail::own_parameter<T>(moved, unsent[i], weight);
      common[i] = moved;
    };
    if (held == nullptr) {
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) move(i, mean[i]);
      return;
    }
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      held[i] = detail::next_momentum(held[i], mean[i], keep);
      move(i, multiply(scale, held[i]));
    }
  }
};

/// Writes own parameters from the common ones.
struct write_own {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, float const* common, float const* unsent, float weight,
                                   std::size_t count) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) own[i] = detail::own_parameter<T>(common[i], unsent[i], weight);
  }
};

/// Writes own parameters from the common ones and the updates. `own` may be the updates' memory.
struct write_updated {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, float const* common, float const* unsent, float weight, float factor,
                                   float const* update, std::size_t count) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i)
      own[i] = detail::with_update<T>(update[i], common[i], unsent[i], weight, factor);
  }
};

}  // namespace gradsieve::host_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Memory of a parameter_exchange on the host: the common parameters, their momentum if there is one and, for 16-bit
/// own ones, the update, which otherwise replaces the own parameters in place.
template <class T>
class host_parameters {
 public:
  using arithmetic = float_environment;  ///< lives as long as a call that computes

  host_parameters(host where, std::uint64_t n)
      : scope_{where.threads, n, where.simd_limit}, common_(n), update_(std::same_as<T, float> ? 0 : n) {}

  template <class Own>
  [[nodiscard]] static auto span_of(Own& own) {
    return checked_span(own);
  }

  /// Sets the common parameters. Returns how many are not finite.
  std::uint64_t start(std::span<T const> own) {
    float* const to = common_.data();
    return scope_.sum(own.size(), own.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      std::uint64_t bad = 0;
      for (auto i = begin; i < end; ++i) {
        to[i] = to_float(own[i]);
        bad += is_finite(to[i]) ? 0u : 1u;
      }
      return bad;
    });
  }

  [[nodiscard]] std::span<float const> common() const noexcept { return common_.span(); }
  [[nodiscard]] std::span<float const> read() const noexcept { return common_.span(); }
  void write(std::span<float const> values) const { std::ranges::copy(values, common_.data()); }

  /// Sets the momentum, which an empty one begins at 0, and its size after as many means of 1. Allocates at first.
  void set_momentum(std::span<float const> values, float size) {
    if (held_.size() < common_.size()) held_ = host_buffer<float>(common_.size());
    held_size_ = size;
    each_part([&](std::uint64_t begin, std::size_t count) {
      if (values.empty())
        std::fill_n(held_.data() + begin, count, 0.0f);
      else
        std::ranges::copy(values.subspan(begin, count), held_.data() + begin);
    });
  }
  [[nodiscard]] std::span<float const> momentum() const noexcept { return held_.span(); }
  [[nodiscard]] float momentum_size() const noexcept { return held_size_; }

  /// Memory of the computed update.
  [[nodiscard]] std::span<float> update_of(std::span<T> own) const noexcept {
    if constexpr (std::same_as<T, float>)
      return own;
    else
      return update_.span();
  }

  /// Replaces each value by the largest of all ranks. Collective.
  template <class Comm>
  static void reduce_largest(Comm const& comm, host const& where, std::span<double> values) {
    comm.all_reduce(where, values, reduction::max);
  }

  /// The empty gradient of a failed rank.
  [[nodiscard]] static std::span<float> no_update() noexcept { return {}; }

  void take(std::span<T> own, std::span<float const> unsent, float weight, float factor) const {
    auto const update = update_of(own);
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<host_kernels::take_updates>(scope_.level, static_cast<T const*>(own.data() + begin),
                                                    static_cast<float const*>(common_.data() + begin),
                                                    unsent.data() + begin, weight, factor, update.data() + begin,
                                                    count);
    });
  }

  /// `keep`: of the momentum, if there is one. On a device `fault` says in stream order whether the step has failed.
  void put(std::span<T> own, std::span<float const> unsent, float weight, float keep,
           [[maybe_unused]] std::uint64_t const* fault) {
    auto const mean = update_of(own);
    if (keep > 0) held_size_ = next_momentum(held_size_, 1.0f, keep);
    float const scale = keep > 0 ? divide(1.0f, held_size_) : 1.0f;
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<host_kernels::move_parameters>(
          scope_.level, own.data() + begin, common_.data() + begin, keep > 0 ? held_.data() + begin : nullptr, keep,
          scale, unsent.data() + begin, weight, static_cast<float const*>(mean.data() + begin), count);
    });
  }

  void write_own(std::span<T> own, std::span<float const> unsent, float weight) const {
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<host_kernels::write_own>(scope_.level, own.data() + begin,
                                                 static_cast<float const*>(common_.data() + begin),
                                                 unsent.data() + begin, weight, count);
    });
  }

  void write_updated(std::span<T> own, std::span<float const> unsent, float weight, float factor) const {
    auto const update = update_of(own);
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<host_kernels::write_updated>(
          scope_.level, own.data() + begin, static_cast<float const*>(common_.data() + begin), unsent.data() + begin,
          weight, factor, static_cast<float const*>(update.data() + begin), count);
    });
  }

 private:
  template <class Body>
  void each_part(Body const& body) const {
    scope_.split(scope_.n, scope_.n, [&](std::uint64_t begin, std::uint64_t end, int) {
      if (end > begin) body(begin, std::size_t{end - begin});
    });
  }

  host_scope scope_;
  host_buffer<float> common_;
  host_buffer<float> update_;  // for 16-bit own parameters
  host_buffer<float> held_;    // the momentum, if there is one
  float held_size_ = 0;
};

}  // namespace gradsieve::detail
