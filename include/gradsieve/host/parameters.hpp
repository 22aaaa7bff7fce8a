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

/// The updates' memory: that of own parameters of binary32. One name for it, as Clang vectorises no loop over two.
template <class T>
GRADSIEVE_INLINE float* updates(T* own, float* other) noexcept {
  if constexpr (std::same_as<T, float>)
    return own;
  else
    return other;
}

/// Computes the optimiser's update, times a factor, from own parameters.
struct take_updates {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, detail::own_parts<float> from, float factor, float* other,
                                   std::size_t count) noexcept {
    float* const update = updates(own, other);
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) update[i] = detail::own_update<T>(own[i], from.own<T>(i), factor);
  }
};

/// Writes own parameters, with updates that were taken out unless the factor is 0.
struct write_own {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, detail::own_parts<float> from, float factor, float* other,
                                   std::size_t count) noexcept {
    float const* const update = updates(own, other);
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) own[i] = detail::with_update<T>(update[i], from.own<T>(i), factor);
  }
};

/// Moves the common parameters by the mean, which is in the updates' memory, or by `scale` times the momentum that it
/// goes into, and writes own ones. `held`: the momentum, or null.
struct move_parameters {
  template <simd, class T>
  GRADSIEVE_INLINE static void run(T* own, detail::own_parts<float> from, float* common, float* held, float keep,
                                   float scale, float* other, std::size_t count) noexcept {
    float const* const mean = updates(own, other);
    auto const move = [&](std::size_t i, float by, float next) GRADSIEVE_LAMBDA_INLINE {
      float const moved = detail::moved_common(common[i], by);
      own[i] = from.own<T>(i, moved, next);
      common[i] = moved;
    };
    if (held == nullptr) {
      GRADSIEVE_INDEPENDENT
      for (std::size_t i = 0; i < count; ++i) move(i, mean[i], 0.0f);
      return;
    }
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      held[i] = detail::next_momentum(held[i], mean[i], keep);
      move(i, multiply(scale, held[i]), held[i]);
    }
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

  void take(std::span<T> own, std::span<float const> unsent, own_shares shares, float factor) const {
    pass<host_kernels::take_updates>(own, parts_of(unsent, shares), factor);
  }
  /// Factor 0: without updates.
  void write(std::span<T> own, std::span<float const> unsent, own_shares shares, float factor) const {
    pass<host_kernels::write_own>(own, parts_of(unsent, shares), factor);
  }

  /// `keep`: of the momentum, if there is one. On a device `fault` says in stream order whether the step has failed.
  void put(std::span<T> own, std::span<float const> unsent, own_shares shares, float keep,
           [[maybe_unused]] std::uint64_t const* fault) {
    auto const mean = update_of(own);
    if (keep > 0) held_size_ = next_momentum(held_size_, 1.0f, keep);
    float const scale = keep > 0 ? divide(1.0f, held_size_) : 1.0f;
    auto const from = parts_of(unsent, shares);
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<host_kernels::move_parameters>(
          scope_.level, own.data() + begin, from.from(begin), common_.data() + begin,
          keep > 0 ? held_.data() + begin : nullptr, keep, scale, mean.data() + begin, count);
    });
  }

 private:
  [[nodiscard]] own_parts<float> parts_of(std::span<float const> unsent, own_shares shares) const noexcept {
    bool const is_ahead = shares.ahead > 0 && held_size_ > 0;
    shares.ahead = is_ahead ? divide(shares.ahead, held_size_) : 0.0f;
    return {common_.data(), is_ahead ? held_.data() : common_.data(), unsent.data(), shares};
  }

  template <class Pass>
  void pass(std::span<T> own, own_parts<float> from, float factor) const {
    auto const update = update_of(own);
    each_part([&](std::uint64_t begin, std::size_t count) {
      host_kernels::run<Pass>(scope_.level, own.data() + begin, from.from(begin), factor, update.data() + begin, count);
    });
  }

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
