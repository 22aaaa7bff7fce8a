// What all passes of a workspace share: the team, the tiles, the candidates, and the loops over them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_buffer.hpp>
#include <gradsieve/space/host_candidates.hpp>
#include <gradsieve/space/host_kernels.hpp>
#include <gradsieve/space/host_simd.hpp>
#include <gradsieve/space/host_team.hpp>
#include <gradsieve/space/host_tiles.hpp>

namespace gradsieve {

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
    auto const bounds = tiles.of(acc.id);
    split(acc.values.size(), bounds.count(), [&](std::uint64_t begin, std::uint64_t end, int worker) {
      for (auto t = bounds.first + begin; t < bounds.first + end; ++t)
        body(t, acc.values.data() + (tiles[t].begin - acc.first), std::size_t{tiles[t].size}, worker);
    });
  }

  /// Where a tile begins; behind the last one, the end.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t t) const noexcept { return t < tiles.size() ? tiles[t].begin : n; }

  /// Candidates of all segments with lower != 0.
  void collect(std::span<float const> accumulator, std::span<key_type const> lower) {
    found.start(lower);
    std::uint64_t active = 0;
    for (std::size_t s = 0; s < lower.size(); ++s) active += lower[s] != 0 ? tiles.of(s).count() : 0;
    split(active * host_kernels::tile_size, active, [&](std::uint64_t begin, std::uint64_t end, int worker) {
      for (std::size_t s = 0; s < lower.size() && end > 0; ++s) {
        if (lower[s] == 0) continue;
        auto const [first, last] = tiles.of(s);
        for (auto t = first + std::min(begin, last - first); t < first + std::min(end, last - first); ++t)
          append(accumulator.data() + tiles[t].begin, t, lower[s], found.list_of(worker));
        begin -= std::min(begin, last - first);
        end -= std::min(end, last - first);
      }
    });
  }

  /// Those of one segment anew.
  void collect_again(accumulator_ref const acc, key_type lower) {
    found.start_again(acc, lower);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t, int worker) {
      append(values, t, lower, found.list_again(worker));
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
  void append(float const* values, std::uint64_t t, key_type lower, host_candidates::list& to) const noexcept {
    host_kernels::run<host_kernels::append_tile>(level, values, std::size_t{tiles[t].size}, tiles[t].begin, lower, &to);
  }
};

}  // namespace gradsieve
