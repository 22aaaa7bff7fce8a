// Measures the cost of a selector on this machine.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/partitioner/selection_cost.hpp>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Times a selector on Laplace data of 2^10 to `largest` elements at densities of 0.1 % and 5 %, and fits fixed +
/// per_element * n + per_selected * k in nanoseconds by least relative squares; no term is negative. Local. Cost: well
/// under a second at the default size. Allocates.
template <space Space, class Selector>
[[nodiscard]] selection_cost measure_selection_cost(Space where, Selector const& chosen,
                                                    std::uint64_t largest = 1u << 20) {
  using clock = std::chrono::steady_clock;
  std::array<std::array<double, 3>, 3> normal{};
  std::array<double, 3> right{};
  for (std::uint64_t n = 1u << 10; n <= largest; n *= 4) {
    typename Space::workspace work{where, n};
    std::vector<float> values(n);
    for (std::uint64_t i = 0; i < n; ++i)
      values[i] = -std::log((static_cast<float>(mix(i) >> 40) + 0.5f) * 0x1p-24f) * (mix(i) % 2 == 0 ? 1.0f : -1.0f);
    for (double const density : {0.001, 0.05}) {
      auto const k = budget_of(density, n);
      segment const all{0, n, k};
      work.plan(std::span{&all, 1}, {}, selection_capacity(chosen, k));
      std::vector<index_type> indices(selection_capacity(chosen, k));
      std::vector<float> sent(indices.size());
      double best = std::numeric_limits<double>::max();
      for (std::uint64_t repeat = 0; repeat < 5; ++repeat) {
        warm_threshold remembered;
        accumulator_ref const acc{values, 0, 0, repeat, &remembered};
        auto const start = clock::now();
        key_type const candidate_threshold = predict_candidate_threshold(chosen, work, acc, k);
        work.collect(values, std::span{&candidate_threshold, 1});
        select(chosen, work, acc, k, {indices, sent, {}});
        best = std::min(best, std::chrono::duration<double, std::nano>(clock::now() - start).count());
      }
      std::array const row{1 / best, static_cast<double>(n) / best, static_cast<double>(k) / best};
      for (std::size_t a = 0; a < 3; ++a) {
        for (std::size_t b = 0; b < 3; ++b) normal[a][b] += row[a] * row[b];
        right[a] += row[a];
      }
    }
  }
  // Coordinate descent on the normal equations: converges to nonnegative least squares.
  std::array<double, 3> fit{};
  for (int round = 0; round < 10'000; ++round)
    for (std::size_t a = 0; a < 3; ++a) {
      double rest = right[a];
      for (std::size_t b = 0; b < 3; ++b) rest -= b == a ? 0 : normal[a][b] * fit[b];
      fit[a] = std::max(0.0, rest / normal[a][a]);
    }
  return {fit[0], fit[1], fit[2]};
}

/// Measures on rank 0 and broadcasts the cost, as all ranks must have the same. Collective.
template <space Space, class Selector, communicator Comm>
[[nodiscard]] selection_cost measure_selection_cost(Space where, Selector const& chosen, Comm const& comm) {
  static_assert(has_broadcast<Comm, Space>, "this communicator needs broadcast");
  auto cost = comm.rank() == 0 ? measure_selection_cost(where, chosen) : selection_cost{};
  comm.broadcast(where, std::as_writable_bytes(std::span{&cost, 1}), 0);
  return cost;
}

}  // namespace gradsieve
