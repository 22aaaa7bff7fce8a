// The few elements that a pass keeps for selectors to choose from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/kernels.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Candidates of all segments, in one index-ordered list for each worker, and a second list for each worker for
/// the segment that was collected again last. Where a second pass completes a first one, its part of a list is ordered
/// by itself. Address space for 8 bytes an entry and list; touched as used.
class host_candidates {
 public:
  using list = host_kernels::candidate_list;

  /// Room for `capacity` entries of all segments up to one's end, or that segment's are incomplete, whichever workers
  /// find them. With `shares` the first lists hold that many of each worker instead. Allocates.
  void plan(int workers, std::size_t segments, std::uint64_t capacity, std::span<std::uint64_t const> shares = {}) {
    workers_ = static_cast<std::size_t>(workers);
    capacity_ = capacity_again_ = capacity;
    if (!shares.empty()) capacity_ = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    lists_.assign(2 * workers_, {});
    kept_.assign(lists_.size(), 0);
    keeps_.assign(segments, false);
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

  /// Forgets everything; from now on elements that reach candidate_thresholds[segment] are wanted.
  void start(std::span<key_type const> candidate_thresholds) noexcept {
    std::copy(candidate_thresholds.begin(), candidate_thresholds.end(), candidate_thresholds_.begin());
    again_ = none;
    for (auto& each : lists_) each.count = 0;
    std::fill(kept_.begin(), kept_.end(), 0);
    std::fill(keeps_.begin(), keeps_.end(), false);
  }

  /// Keeps the candidates of segments whose threshold has not changed; from now on those of the others are wanted.
  void start_others(std::span<key_type const> candidate_thresholds) noexcept {
    again_ = none;
    for (std::size_t s = 0; s < candidate_thresholds.size(); ++s)
      keeps_[s] = candidate_thresholds[s] == std::exchange(candidate_thresholds_[s], candidate_thresholds[s]);
    for (std::size_t w = 0; w < workers_; ++w) kept_[w] = lists_[w].count;
  }

  /// Whether a pass looks for candidates of a segment: those are wanted, and not kept.
  [[nodiscard]] bool wants(std::uint64_t segment_id) const noexcept {
    return candidate_thresholds_[segment_id] != 0 && !keeps_[segment_id];
  }

  /// Whether more was found than the first lists together can hold.
  [[nodiscard]] bool full() const noexcept {
    std::uint64_t total = 0;
    for (std::size_t w = 0; w < workers_; ++w) total += lists_[w].count;
    return total > capacity_;
  }

  /// From now on a segment's candidates are those of list_again(), which forgets what it held of another.
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

  /// The candidates of a segment that one worker has found, in index order.
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

  /// The same for any number of workers: a list is full only where all of them together hold too many.
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

  /// Which of the lists has a worker's candidates of a segment.
  [[nodiscard]] std::size_t list_for(accumulator_ref const acc, std::size_t worker) const noexcept {
    return (again_ == acc.id ? workers_ : 0) + worker;
  }

  /// How many entries of it stand before an index, in the pass that found the segment's.
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
  std::uint64_t again_ = none;                  // the segment that the second lists are about
  key_type candidate_threshold_again_ = 0;
  std::vector<list> lists_;
  std::vector<std::uint64_t> kept_;  // entries of each list that an earlier pass has left
  std::vector<bool> keeps_;          // segments whose candidates are among them
  host_buffer<index_type> indices_;
  host_buffer<float> values_;
};

}  // namespace gradsieve::detail
