// Loops over a host's memory, for residual stores and exchanges.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/view.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/passes/updates.hpp>
#include <gradsieve/host/space.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The threads and tables of one compressor on the host, and loops that know no segments.
class host_scratch {
 public:
  /// Memory of the host.
  template <class T>
  using buffer = host_buffer<T>;

  /// For a gradient of n elements. Allocates a little. @throws invalid_argument for a negative number of threads.
  host_scratch(host where, std::uint64_t n) : where_{where}, scope_{where.threads, n, where.simd_limit} {
    require_in("a host's number of threads", where.threads, at_least(0));
  }

  [[nodiscard]] host const& where() const noexcept { return where_; }  ///< its space

  /// Replaces each of these values by body(value).
  template <class Body>
  void replace(view<float> const values, Body const& body) const noexcept {
    scope_.each(values.size(), [&](std::uint64_t i) { values[i] = body(values[i]); });
  }

  /// out[i] = values[indices[i]]. Cost: O(indices), scattered.
  void gather(std::span<float const> values, std::span<index_type const> indices, std::span<float> out) const noexcept {
    scope_.each(indices.size(), [&](std::uint64_t i) { out[i] = values[indices[i]]; });
  }

  /// Clamps values beyond `limit` to it, with their signs; returns how many. Cost: one read.
  std::uint64_t saturate(std::span<float> values, float limit) {
    key_type const most = magnitude_key(limit);
    if (most >= infinite_key - 1) return 0;
    return scope_.sum(values.size(), values.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      std::uint64_t beyond = 0;
      for (auto i = begin; i < end; ++i) {
        if (magnitude_key(values[i]) <= most) continue;
        values[i] = with_sign_of(values[i], limit);
        ++beyond;
      }
      return beyond;
    });
  }

  /// Calls body(i, states of element i) for i in [begin, end), and stores the states. Cost: one pass.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::uint64_t begin, std::uint64_t end, Body const& body) {
    scope_.each(end - begin, [&](std::uint64_t i) { update_one(states, begin + i, begin + i, body); });
  }

  /// Calls body(position, states of element indices[position]) for every position, and stores the states.
  /// Cost: O(indices), scattered.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::span<index_type const> indices, Body const& body) {
    scope_.each(indices.size(), [&](std::uint64_t p) { update_one(states, indices[p], p, body); });
  }

  /// Writes the sum of the updates, added in their order and divided by `divisor`, into `out`; zero where none has an
  /// entry. Returns how many elements were written that are in an update, and how many were clamped.
  template <class T>
  applied_update apply(std::span<selection_view const> updates, float divisor, gradient_ref<T> const out) {
    return updates_.apply(scope_.team, scope_.level, updates, divisor, out);
  }

  /// Writes the union of the updates' indices; returns its size.
  std::uint64_t merge(std::span<selection_view const> updates, std::span<index_type> out) {
    return updates_.merge(updates, scope_.n, out);
  }

  /// Room for apply() and merge(). Allocates.
  void reserve_updates(std::size_t updates) { updates_.reserve(scope_.team, updates); }

  /// Calls body(i) for each i below `count`, on all threads; each takes a run of them. `work`: as of host_team::run().
  template <class Body>
  void run_each(std::uint64_t work, std::uint64_t count, Body const& body) const {
    scope_.split(work, count, [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto i = begin; i < end; ++i) body(i);
    });
  }

  /// Writes zeros, by the threads that will use the memory.
  void fill_zero(std::span<float> memory) const noexcept {
    scope_.each(memory.size(), [&](std::uint64_t i) { memory[i] = 0; });
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

 protected:
  host_scope scope_;  ///< team, tiles and candidates, also of the workspace
};

}  // namespace gradsieve::detail
