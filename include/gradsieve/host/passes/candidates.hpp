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

namespace gradsieve {

/// Candidates of all segments, in one index-ordered list for each worker, and a second list for each worker for
/// the segment that was collected again last. Address space for 8 bytes an entry and list; touched as used.
class host_candidates {
 public:
  using list = host_kernels::candidate_list;

  /// Room for `capacity` entries of all segments up to one's end, or that segment's are incomplete, whichever workers
  /// find them. With `shares` the first lists have room for so many of each worker instead. Allocates.
  void plan(int workers, std::size_t segments, std::uint64_t capacity, std::span<std::uint64_t const> shares = {}) {
    workers_ = static_cast<std::size_t>(workers);
    capacity_ = capacity_again_ = capacity;
    if (!shares.empty()) capacity_ = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
    lists_.assign(2 * workers_, {});
    std::uint64_t room = 0;
    for (std::size_t l = 0; l < lists_.size(); ++l) {
      lists_[l].capacity = l < shares.size() ? shares[l] : capacity;
      room += lists_[l].capacity + host_kernels::group;
    }
    indices_ = host_buffer<index_type>(room);
    values_ = host_buffer<float>(room);
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
    auto const& from = lists_[(again_ == acc.id ? workers_ : 0) + static_cast<std::size_t>(worker)];
    auto const skipped = count_before(from, acc.first);
    auto const count = count_before(from, acc.first + acc.values.size()) - skipped;
    return {{from.indices + skipped, count}, {from.values + skipped, count}};
  }

  /// The same for any number of workers: a list is full only where all of them together hold too many.
  /// Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept {
    std::uint64_t before = 0;
    std::uint64_t up_to_end = 0;
    for (std::size_t w = 0; w < workers_; ++w) {
      auto const& from = lists_[(again_ == acc.id ? workers_ : 0) + w];
      before += count_before(from, acc.first);
      up_to_end += count_before(from, acc.first + acc.values.size());
    }
    auto const wanted = candidate_threshold_of(acc.id);
    auto const capacity = again_ == acc.id ? capacity_again_ : capacity_;
    if (wanted == 0 || before > capacity) return {0, wanted, false};
    if (up_to_end > capacity) return {capacity + 1 - before, wanted, false};
    return {up_to_end - before, wanted, true};
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  [[nodiscard]] static std::size_t count_before(list const& from, std::uint64_t index) noexcept {
    return static_cast<std::size_t>(
        std::partition_point(from.indices, from.indices + from.count, [&](index_type i) { return i < index; }) -
        from.indices);
  }

  std::size_t workers_ = 0;
  std::uint64_t capacity_ = 0;  // of the first lists together, and of the second ones
  std::uint64_t capacity_again_ = 0;
  std::vector<key_type> candidate_thresholds_;  // of each segment
  std::uint64_t again_ = none;                  // the segment that the second lists are about
  key_type candidate_threshold_again_ = 0;
  std::vector<list> lists_;
  host_buffer<index_type> indices_;
  host_buffer<float> values_;
};

}  // namespace gradsieve
