// The few elements that a pass keeps for selectors to choose from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_buffer.hpp>
#include <gradsieve/space/host_kernels.hpp>

namespace gradsieve {

/// What a pass has kept of one segment: how many elements, the key they all reach, and whether they are all that
/// reach it. `lower` 0: none were wanted.
struct candidates {
  std::uint64_t count = 0;
  key_type lower = 0;
  bool complete = false;
};

/// Candidates of all segments, in one index-ordered list for each worker, and a second list for each worker for
/// segments that are collected again. Address space for 8 bytes an entry, list and worker; touched as used.
class host_candidates {
 public:
  using list = host_kernels::candidate_list;

  /// Room for `capacity` entries a list. Allocates.
  void plan(int workers, std::size_t segments, std::uint64_t capacity) {
    workers_ = static_cast<std::size_t>(workers);
    std::uint64_t const room = capacity + host_kernels::group;
    indices_ = host_buffer<index_type>(2 * workers_ * room);
    values_ = host_buffer<float>(2 * workers_ * room);
    lists_.resize(2 * workers_);
    for (std::size_t l = 0; l < lists_.size(); ++l)
      lists_[l] = {indices_.data() + l * room, values_.data() + l * room, 0, capacity};
    lower_.assign(segments, 0);
    again_.assign(segments, false);
  }

  /// Forgets everything; from now on elements that reach lower[segment] are wanted.
  void start(std::span<key_type const> lower) noexcept {
    std::copy(lower.begin(), lower.end(), lower_.begin());
    std::fill(again_.begin(), again_.end(), false);
    for (auto& each : lists_) {
      each.count = 0;
      each.complete_before = list::all;
    }
  }

  /// From now on a segment's candidates are those of list_again(), which forgets this segment and later ones.
  void start_again(accumulator_ref const acc, key_type lower) noexcept {
    lower_[acc.id] = lower;
    again_[acc.id] = true;
    for (std::size_t w = workers_; w < lists_.size(); ++w) {
      auto& each = lists_[w];
      auto const* const begin = each.indices;
      each.count = static_cast<std::uint64_t>(
          std::partition_point(begin, begin + each.count, [&](index_type i) { return i < acc.first; }) - begin);
      if (each.complete_before >= acc.first) each.complete_before = list::all;
    }
  }

  [[nodiscard]] key_type lower(std::uint64_t segment_id) const noexcept { return lower_[segment_id]; }
  [[nodiscard]] list& list_of(int worker) noexcept { return lists_[static_cast<std::size_t>(worker)]; }
  [[nodiscard]] list& list_again(int worker) noexcept { return lists_[workers_ + static_cast<std::size_t>(worker)]; }

  /// The candidates of a segment that one worker has found, in index order.
  struct run {
    std::span<index_type const> indices;
    std::span<float const> values;
  };
  [[nodiscard]] run of(accumulator_ref const acc, int worker) const noexcept {
    auto const& from = lists_[(again_[acc.id] ? workers_ : 0) + static_cast<std::size_t>(worker)];
    std::span<index_type const> const all{from.indices, from.count};
    auto const begin = std::partition_point(all.begin(), all.end(), [&](index_type i) { return i < acc.first; });
    auto const end =
        std::partition_point(begin, all.end(), [&](index_type i) { return i < acc.first + acc.values.size(); });
    auto const skipped = static_cast<std::size_t>(begin - all.begin());
    auto const count = static_cast<std::size_t>(end - begin);
    return {all.subspan(skipped, count), {from.values + skipped, count}};
  }

  /// Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept {
    candidates found{0, lower_[acc.id], lower_[acc.id] != 0};
    for (std::size_t w = 0; w < workers_; ++w) {
      found.count += of(acc, static_cast<int>(w)).indices.size();
      // Which segments a full list's worker still had to walk is not kept: all later ones count as incomplete.
      auto const complete_before = lists_[(again_[acc.id] ? workers_ : 0) + w].complete_before;
      if (complete_before < acc.first + acc.values.size()) found.complete = false;
    }
    return found;
  }

 private:
  std::size_t workers_ = 0;
  std::vector<key_type> lower_;  // of each segment
  std::vector<bool> again_;      // of each segment
  std::vector<list> lists_;
  host_buffer<index_type> indices_;
  host_buffer<float> values_;
};

}  // namespace gradsieve
