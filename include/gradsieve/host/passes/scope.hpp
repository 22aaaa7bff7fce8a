// Parts that all passes of a workspace share: the team, the tiles, the candidates, and the loops over them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/passes/tiles.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Candidates of all segments, in one index-ordered list per worker, and a second list per worker for the segment that
/// was last collected again. A second pass's part of a list is ordered by itself. Address space: 8 bytes per entry.
class host_candidates {
 public:
  using list = host_kernels::candidate_list;

  /// A segment's candidates are complete if there are at most `capacity` up to its end, whichever workers find them.
  /// With `shares`, the first list of worker w has room for shares[w] instead. Allocates.
  void plan(int workers, std::size_t segments, std::uint64_t capacity, std::span<std::uint64_t const> shares = {}) {
    workers_ = static_cast<std::size_t>(workers);
    capacity_ = capacity_again_ = capacity;
    if (!shares.empty()) capacity_ = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    lists_.assign(2 * workers_, {});
    kept_.assign(lists_.size(), 0);
    keeps_ = std::vector<bool>(segments);
    std::uint64_t total = 0;
    for (std::size_t l = 0; l < lists_.size(); ++l) {
      lists_[l].capacity = l < shares.size() ? shares[l] : capacity;
      total += lists_[l].capacity + host_kernels::group;
    }
    if (indices_.size() < total) {
      indices_ = host_buffer<index_type>(total);
      values_ = host_buffer<float>(total);
    }
    std::uint64_t at = 0;
    for (auto& each : lists_) {
      each.indices = indices_.data() + at;
      each.values = values_.data() + at;
      at += each.capacity + host_kernels::group;
    }
    candidate_thresholds_.assign(segments, 0);
    again_ = none;
  }

  /// Clears all lists; elements that reach candidate_thresholds[segment] are now wanted.
  void start(std::span<key_type const> candidate_thresholds) noexcept {
    std::copy(candidate_thresholds.begin(), candidate_thresholds.end(), candidate_thresholds_.begin());
    again_ = none;
    for (auto& each : lists_) each.count = 0;
    std::fill(kept_.begin(), kept_.end(), 0);
    std::fill(keeps_.begin(), keeps_.end(), false);
  }

  /// Keeps the candidates of segments with unchanged thresholds; those of the others are now wanted.
  void start_others(std::span<key_type const> candidate_thresholds) noexcept {
    again_ = none;
    for (std::size_t s = 0; s < candidate_thresholds.size(); ++s)
      keeps_[s] = candidate_thresholds[s] == std::exchange(candidate_thresholds_[s], candidate_thresholds[s]);
    for (std::size_t w = 0; w < workers_; ++w) kept_[w] = lists_[w].count;
  }

  /// True if a pass looks for candidates of a segment: wanted, and not kept.
  [[nodiscard]] bool wants(std::uint64_t segment_id) const noexcept {
    return candidate_thresholds_[segment_id] != 0 && !keeps_[segment_id];
  }

  /// True if more was found than the first lists together can hold.
  [[nodiscard]] bool full() const noexcept {
    std::uint64_t total = 0;
    for (std::size_t w = 0; w < workers_; ++w) total += lists_[w].count;
    return total > capacity_;
  }

  /// From now on the segment's candidates are in list_again(), whose former content is dropped.
  void start_again(accumulator_ref const acc, key_type candidate_threshold) noexcept {
    again_ = acc.id;
    candidate_threshold_again_ = candidate_threshold;
    for (std::size_t w = workers_; w < lists_.size(); ++w) lists_[w].count = 0;
  }

  [[nodiscard]] key_type candidate_threshold_of(std::uint64_t segment_id) const noexcept {
    return segment_id == again_ ? candidate_threshold_again_ : candidate_thresholds_[segment_id];
  }
  [[nodiscard]] list& list_of(int worker) noexcept { return lists_[static_cast<std::size_t>(worker)]; }
  [[nodiscard]] list& list_again(int worker) noexcept { return lists_[workers_ + static_cast<std::size_t>(worker)]; }

  /// One worker's candidates of a segment, in index order.
  struct run {
    std::span<index_type const> indices;
    std::span<float const> values;
  };
  [[nodiscard]] run of(accumulator_ref const acc, int worker) const noexcept {
    auto const w = static_cast<std::size_t>(worker);
    auto const& from = lists_[list_for(acc, w)];
    auto const skipped = count_before(acc, w, acc.first);
    auto const count = count_before(acc, w, acc.first + acc.values.size()) - skipped;
    return {{from.indices + skipped, count}, {from.values + skipped, count}};
  }

  /// Number of a segment's candidates, their threshold, and if they are complete; independent of the number of workers.
  /// Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept {
    std::uint64_t before = 0;
    std::uint64_t up_to_end = 0;
    for (std::size_t w = 0; w < workers_; ++w) {
      before += count_before(acc, w, acc.first);
      up_to_end += count_before(acc, w, acc.first + acc.values.size());
    }
    auto const wanted = candidate_threshold_of(acc.id);
    auto const capacity = again_ == acc.id ? capacity_again_ : capacity_;
    if (wanted == 0 || before > capacity) return {0, wanted, false};
    if (up_to_end > capacity) return {capacity + 1 - before, wanted, false};
    return {up_to_end - before, wanted, true};
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  /// Number of the list that has a worker's candidates of a segment.
  [[nodiscard]] std::size_t list_for(accumulator_ref const acc, std::size_t worker) const noexcept {
    return (again_ == acc.id ? workers_ : 0) + worker;
  }

  /// Number of its entries before an index, in the pass that found the segment's.
  [[nodiscard]] std::size_t count_before(accumulator_ref const acc, std::size_t worker,
                                         std::uint64_t index) const noexcept {
    auto const l = list_for(acc, worker);
    bool const is_kept = again_ != acc.id && keeps_[acc.id];
    auto const* const first = lists_[l].indices + (is_kept ? 0 : kept_[l]);
    auto const* const last = lists_[l].indices + (is_kept ? kept_[l] : lists_[l].count);
    auto const* const at = std::partition_point(first, last, [&](index_type i) { return i < index; });
    return static_cast<std::size_t>(at - lists_[l].indices);
  }

  std::size_t workers_ = 0;
  std::uint64_t capacity_ = 0;  // of the first lists together, and of the second ones
  std::uint64_t capacity_again_ = 0;
  std::vector<key_type> candidate_thresholds_;  // of each segment
  std::uint64_t again_ = none;                  // segment of the second lists
  key_type candidate_threshold_again_ = 0;
  std::vector<list> lists_;
  std::vector<std::uint64_t> kept_;  // entries of each list from an earlier pass
  std::vector<bool> keeps_;          // segments whose candidates are among them
  host_buffer<index_type> indices_;
  host_buffer<float> values_;
};

/// Parts of a workspace take it by reference in each call, so that a workspace can be moved. Not for concurrent use.
struct host_scope {
  host_scope(int threads, std::uint64_t size, simd limit)
      : team{threads}, level{std::min(host_kernels::best_simd(), limit)}, n{size} {}

  /// Calls body(begin, end, worker) for each worker's part of `count` items. `work`: as of host_team::run().
  template <class Body>
  void split(std::uint64_t work, std::uint64_t count, Body const& body) const {
    team.run(work, [&](int worker) {
      auto const [begin, end] = team.part(count, worker);
      body(begin, end, worker);
    });
  }

  template <class Body>
  void each(std::uint64_t count, Body const& body) const {
    split(count, count, [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto i = begin; i < end; ++i) body(i);
    });
  }

  /// As split(); returns the sum of the results of body.
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

  /// As over_tiles(); returns the sum of the results of body.
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

  /// Begin of a tile; of tiles.size(), the end of the gradient.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t t) const noexcept { return t < tiles.size() ? tiles[t].begin : n; }

  void collect(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    found.start(candidate_thresholds);
    collect_wanted(accumulator, candidate_thresholds);
  }

  /// Collects candidates where the thresholds have changed since an earlier pass over this accumulator.
  void collect_others(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    found.start_others(candidate_thresholds);
    collect_wanted(accumulator, candidate_thresholds);
    if (found.full()) collect(accumulator, candidate_thresholds);  // drops what is no longer wanted
  }

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
  host_buffer<key_type> keys;  // of a sample; otherwise scratch

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
