// The host space: this machine's memory and cores, and one compressor's scratch there.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_buffer.hpp>
#include <gradsieve/space/host_ranking.hpp>
#include <gradsieve/space/host_updates.hpp>

namespace gradsieve {

class host_workspace;
template <class Recipe>
class host_step;

/// The memory and the cores of this machine. Results depend on neither field.
struct host {
  using workspace = host_workspace;
  template <class Recipe>
  using step = host_step<Recipe>;
  template <class>
  using selector_view = host_workspace;
  static constexpr bool stream_ordered = false;
  template <class Stored>
  static constexpr bool keeps = std::same_as<Stored, float>;
  template <class>
  static constexpr bool encodes_with = true;
  template <class Exchange, class Codec>
  static constexpr bool exchanges_with = host_exchange<Exchange, host_workspace, Codec>;
  template <class Codec>
  static constexpr bool sums_with = separable_codec<Codec>;

  int threads = 0;                 ///< 0: as many as OpenMP gives; one without OpenMP
  simd simd_limit = simd::avx512;  ///< the best instruction set up to this one that the processor has
  friend bool operator==(host const&, host const&) = default;
};

/// Scratch of one compressor: its passes, its rankings, and what residual stores and exchanges ask.
class host_workspace : public host_ranking {
 public:
  template <class T>
  using buffer = host_buffer<T>;

  host_workspace(host where, std::uint64_t n) : host_ranking{where.threads, n, where.simd_limit}, where_{where} {}

  [[nodiscard]] host const& where() const noexcept { return where_; }

  /// out[i] = values[indices[i]]. Cost: O(indices), scattered.
  void gather(std::span<float const> values, std::span<index_type const> indices, std::span<float> out) const noexcept {
    team_.run(indices.size(), [&](int worker) {
      auto const [begin, end] = team_.part(indices.size(), worker);
      for (auto i = begin; i < end; ++i) out[i] = values[indices[i]];
    });
  }

  /// Cuts values beyond `limit` to it, with their signs; returns how many. Cost: one read.
  std::uint64_t saturate(std::span<float> values, float limit) {
    key_type const most = magnitude_key(limit);
    if (most >= infinite_key - 1) return 0;
    clear_counts();
    team_.run(values.size(), [&](int worker) {
      auto const [begin, end] = team_.part(values.size(), worker);
      std::uint64_t beyond = 0;
      for (auto i = begin; i < end; ++i) {
        if (magnitude_key(values[i]) <= most) continue;
        values[i] = with_sign_of(values[i], limit);
        ++beyond;
      }
      count_of(worker).above = beyond;
    });
    return total_above();
  }

  /// Calls body(i, states of element i) for i in [begin, end), and stores the states. Cost: one pass.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::uint64_t begin, std::uint64_t end, Body const& body) {
    team_.run(end - begin, [&](int worker) {
      auto const [from, to] = team_.part(end - begin, worker);
      for (auto i = begin + from; i < begin + to; ++i) update_one(states, i, i, body);
    });
  }

  /// Calls body(position, states of element indices[position]) for every position, and stores the states.
  /// Cost: O(indices), scattered.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::span<index_type const> indices, Body const& body) {
    team_.run(indices.size(), [&](int worker) {
      auto const [from, to] = team_.part(indices.size(), worker);
      for (auto p = from; p < to; ++p) update_one(states, indices[p], p, body);
    });
  }

  /// Sum of x^2 over all n elements, ignoring what is not finite; in fixed order. Cost: one read.
  template <class T>
  [[nodiscard]] double sum_squares(std::span<T const> values) {
    team_.run(n_, [&](int worker) {
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      for (auto t = begin; t < end; ++t)
        tile_statistics_[t].sum_squares = host_kernels::sum_squares(values.data() + tiles_[t].begin, tiles_[t].size);
    });
    measured_ = false;
    double total = 0;
    for (auto const& each : tile_statistics_) total += each.sum_squares;
    return total;
  }

  /// As host_updates::apply(): the sum of updates over divisor, into `out`.
  template <class T>
  applied_update apply(std::span<selection_view const> updates, float divisor, std::span<T> out) {
    return updates_.apply(team_, updates, divisor, out);
  }

  /// As host_updates::merge(): the union of the updates' indices.
  std::uint64_t merge(std::span<selection_view const> updates, std::span<index_type> out) {
    return updates_.merge(updates, n_, out);
  }

  /// Room for apply() and merge(). Allocates.
  void reserve_updates(std::size_t updates) { updates_.reserve(team_, updates); }

  /// Zeros, written by the threads that will use them.
  void fill_zero(std::span<float> memory) const noexcept {
    team_.run(memory.size(), [&](int worker) {
      auto const [begin, end] = team_.part(memory.size(), worker);
      std::fill_n(memory.data() + begin, end - begin, 0.0f);
    });
  }

 private:
  template <std::size_t States, class Body>
  static void update_one(std::array<float*, States> const& states, std::uint64_t i, std::uint64_t name,
                         Body const& body) noexcept {
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
    body(name, now);
    for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
  }

  host where_;
  host_updates updates_;
};

}  // namespace gradsieve
