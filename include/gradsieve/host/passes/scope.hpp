// What all passes of a workspace share: the team, the tiles, the candidates, and the loops over them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/candidates.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/passes/tiles.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The parts of a workspace take it by reference in each call: a workspace can be moved. It is not for concurrent use.
struct host_scope {
  host_scope(int threads, std::uint64_t size, simd limit)
      : team{threads}, level{std::min(host_kernels::best_simd(), limit)}, n{size} {}

  /// Calls body(begin, end, worker) once for each worker, with its part of `count` items. `work`: as of
  /// host_team::run().
  template <class Body>
  void split(std::uint64_t work, std::uint64_t count, Body const& body) const {
    team.run(work, [&](int worker) {
      auto const [begin, end] = team.part(count, worker);
      body(begin, end, worker);
    });
  }

  /// Calls body(i) for each of `count` elements.
  template <class Body>
  void each(std::uint64_t count, Body const& body) const {
    split(count, count, [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto i = begin; i < end; ++i) body(i);
    });
  }

  /// As split(); returns the sum of what body returns.
  template <class Body>
  std::uint64_t sum(std::uint64_t work, std::uint64_t count, Body const& body) const {
    std::atomic<std::uint64_t> total{0};
    split(work, count, [&](std::uint64_t begin, std::uint64_t end, int worker) { total += body(begin, end, worker); });
    return total;
  }

  /// Calls body(tile, values, size, worker) for the tiles of a segment.
  template <class Body>
  void over_tiles(accumulator_ref const acc, Body const& body) const {
    sum_of_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int worker) {
      body(t, values, size, worker);
      return std::uint64_t{0};
    });
  }

  /// The same; returns the sum of what body returns.
  template <class Body>
  std::uint64_t sum_of_tiles(accumulator_ref const acc, Body const& body) const {
    auto const bounds = tiles.of(acc.id);
    return sum(acc.values.size(), bounds.count(), [&](std::uint64_t begin, std::uint64_t end, int worker) {
      std::uint64_t total = 0;
      for (auto t = bounds.first + begin; t < bounds.first + end; ++t)
        total += body(t, acc.values.data() + (tiles[t].begin - acc.first), std::size_t{tiles[t].size}, worker);
      return total;
    });
  }

  /// Where a tile begins; behind the last one, the end.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t t) const noexcept { return t < tiles.size() ? tiles[t].begin : n; }

  /// Candidates of all segments with candidate_threshold != 0.
  void collect(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    found.start(candidate_thresholds);
    collect_wanted(accumulator, candidate_thresholds);
  }

  /// The same where a pass over this accumulator has collected before, maybe at other thresholds.
  void collect_others(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    found.start_others(candidate_thresholds);
    collect_wanted(accumulator, candidate_thresholds);
    if (found.full()) collect(accumulator, candidate_thresholds);  // what nobody wants any more is dropped
  }

  /// Collects those of one segment once more.
  void collect_again(accumulator_ref const acc, key_type candidate_threshold) {
    found.start_again(acc, candidate_threshold);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t, int worker) {
      append(values, t, candidate_threshold, found.list_again(worker));
    });
  }

  static constexpr std::uint64_t most_samples = std::uint64_t{1} << 20;

  host_team team;
  simd level;
  std::uint64_t n;
  host_tiles tiles;
  host_candidates found;
  host_buffer<key_type> keys;  // of a sample; between two of them, scratch

 private:
  void collect_wanted(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    std::uint64_t active = 0;
    for (std::size_t s = 0; s < candidate_thresholds.size(); ++s) active += found.wants(s) ? tiles.of(s).count() : 0;
    split(active * host_kernels::tile_size, active, [&](std::uint64_t begin, std::uint64_t end, int worker) {
      for (std::size_t s = 0; s < candidate_thresholds.size() && end > 0; ++s) {
        if (!found.wants(s)) continue;
        auto const [first, last] = tiles.of(s);
        for (auto t = first + std::min(begin, last - first); t < first + std::min(end, last - first); ++t)
          append(accumulator.data() + tiles[t].begin, t, candidate_thresholds[s], found.list_of(worker));
        begin -= std::min(begin, last - first);
        end -= std::min(end, last - first);
      }
    });
  }

  void append(float const* values, std::uint64_t t, key_type candidate_threshold,
              host_candidates::list& to) const noexcept {
    host_kernels::run<host_kernels::append_tile>(level, values, std::size_t{tiles[t].size}, tiles[t].begin,
                                                 candidate_threshold, &to);
  }
};

}  // namespace gradsieve::detail
