// Samples of a segment: as selectors see them, and how they are drawn.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/simd/kth.hpp>
#include <gradsieve/host/tuning.hpp>
#include <gradsieve/residual/accumulate_element.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Keys from a segment, in the memory of their workspace. Each query reads all of them once, unless stated otherwise.
class key_sample {
 public:
  explicit key_sample(std::span<key_type> keys, simd level = host_kernels::best_simd()) noexcept
      : keys_{keys}, level_{level} {}

  [[nodiscard]] std::uint64_t size() const noexcept { return keys_.size(); }

  /// The key of a rank; the largest has rank 1. Cost: as kth_key's. @pre 1 <= rank <= size()
  [[nodiscard]] key_type kth_largest(std::uint64_t rank) const noexcept {
    return host_kernels::run<host_kernels::kth_key>(level_, static_cast<key_type const*>(keys_.data()), keys_.size(),
                                                    rank);
  }

  [[nodiscard]] std::uint64_t count_at_least(key_type key) const noexcept {
    return count_if([&](key_type each) { return each >= key; });
  }

  [[nodiscard]] std::uint64_t nonzero() const noexcept {
    return count_if([](key_type each) { return each != 0; });
  }

  /// Sum of the magnitudes, in key order.
  [[nodiscard]] double sum_abs() const noexcept {
    double sum = 0;
    for (key_type const key : keys_) add_in_order(sum, static_cast<double>(magnitude_of(key)));
    return sum;
  }

  [[nodiscard]] std::span<key_type> keys() const noexcept { return keys_; }

 private:
  template <class Wanted>
  [[nodiscard]] std::uint64_t count_if(Wanted const& wanted) const noexcept {
    return static_cast<std::uint64_t>(std::ranges::count_if(keys_, wanted));
  }

  std::span<key_type> keys_;
  simd level_;
};

}  // namespace gradsieve::detail

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

struct from_memory {
  accumulator_ref acc;

  [[nodiscard]] float operator()(std::uint64_t i) const noexcept { return acc.values[i - acc.first]; }
  void prefetch(std::uint64_t i) const noexcept { host_kernels::prefetch(acc.values.data() + (i - acc.first), 1); }
};

/// A gradient, times `factor`, to be accumulated. Reads what the accumulate pass will write. @pre Nothing is pending.
template <class T, class Residual>
struct incoming {
  std::array<float*, Residual::states> states;
  gradient_ref<T const> gradient;
  float factor;
  Residual policy;

  [[nodiscard]] float operator()(std::uint64_t i) const noexcept {
    element_state<Residual::states> now{};
    for (std::size_t s = 0; s < now.size(); ++s) now[s] = states[s][i];
    accumulate_element(policy, multiply(to_float(gradient[i]), factor), now);
    return now[0];
  }
  void prefetch(std::uint64_t i) const noexcept {
    host_kernels::prefetch(&gradient[i], 1);
    for (auto const* const state : states) host_kernels::prefetch(state + i, 1);
  }

  [[nodiscard]] std::array<float*, Residual::states> states_from(std::uint64_t first) const noexcept {
    auto all = states;
    for (auto& each : all) each += first;
    return all;
  }
};

}  // namespace gradsieve::host_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// As host_workspace::sample(), of read(i) for the segment's elements i. Prefetches, as they are far apart.
template <class Read>
[[nodiscard]] key_sample draw_sample(host_scope const& scope, accumulator_ref const acc, std::uint64_t count,
                                     std::uint64_t seed, Read const& read) {
  std::uint64_t const n = acc.values.size();
  auto const keys = scope.keys.first(std::min({count, n, host_scope::most_samples}));
  sample_places const places{n, keys.size(), mix(seed ^ mix(acc.step ^ mix(acc.first)))};
  constexpr auto ahead = host_kernels::sample_ahead;
  scope.split(keys.size(), keys.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
    for (auto j = begin; j < std::min(begin + ahead, end); ++j) read.prefetch(acc.first + places[j]);
    for (auto j = begin; j < end; ++j) {
      if (j + ahead < end) read.prefetch(acc.first + places[j + ahead]);
      keys[j] = magnitude_key(read(acc.first + places[j]));
    }
  });
  return key_sample{keys, scope.level};
}

/// The argument of predict() before the accumulate pass: it can only draw samples. `Read` gives the accumulators; those
/// in excluded ranges are 0. `flush_pending` is called once, before the first sample. @pre the workspace stays in
/// place.
template <class Read, class Flush>
class host_preview {
 public:
  host_preview(host_scope const& scope, Read const& read, Flush const& flush_pending)
      : scope_{scope}, read_{read}, flush_{flush_pending} {}

  /// As host_workspace::sample().
  [[nodiscard]] key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    if (!std::exchange(flushed_, true)) flush_();
    return draw_sample(scope_, acc, count, seed, outside_excluded{scope_, read_});
  }

 private:
  struct outside_excluded {
    host_scope const& scope;
    Read const& read;

    [[nodiscard]] float operator()(std::uint64_t i) const noexcept {
      return scope.tiles.is_excluded(i) ? 0.0f : read(i);
    }
    void prefetch(std::uint64_t i) const noexcept { read.prefetch(i); }
  };

  host_scope const& scope_;
  Read read_;
  Flush flush_;
  bool flushed_ = false;
};

}  // namespace gradsieve::detail
