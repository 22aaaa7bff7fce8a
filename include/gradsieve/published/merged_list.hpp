// Lists of entries that are merged up a tree, of which the largest stay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Entries in index order, each with a bit for every rank that has a part in its value.
template <class Workspace>
struct shared_entries {
  typename Workspace::template buffer<index_type> indices;
  typename Workspace::template buffer<float> values;
  typename Workspace::template buffer<std::uint32_t> shares;  // who has a part in the value
  std::size_t count = 0;

  void reserve(std::uint64_t capacity) {
    indices = typename Workspace::template buffer<index_type>(capacity);
    values = typename Workspace::template buffer<float>(capacity);
    shares = typename Workspace::template buffer<std::uint32_t>(capacity);
  }
  void set(std::size_t at, index_type index, float value, std::uint32_t share) noexcept {
    indices[at] = index;
    values[at] = value;
    shares[at] = share;
  }
};

/// The two ranks of a call, where it is one of both that sends; a rank that does neither names itself.
struct tree_place {
  int peer = 0;
  bool is_child = false;
  bool is_parent = false;
};
/// Of this rank at a level of a binomial tree, where pairs of ranks are `distance` apart.
[[nodiscard]] inline tree_place place_at(int distance, int rank, int world) noexcept {
  if (rank % (2 * distance) == distance) return {rank - distance, true, false};
  if (rank % (2 * distance) == 0 && rank + distance < world) return {rank + distance, false, true};
  return {rank, false, false};
}

/// A list of at most as many entries as the budget, to which others are added. Of equal magnitudes those with the
/// smaller index stay.
template <class Workspace>
class merged_list {
 public:
  /// Room for lists of this many entries. Allocates.
  void reserve(std::uint64_t capacity) {
    list_.reserve(capacity);
    merged_.reserve(2 * capacity);
    keys_ = typename Workspace::template buffer<key_type>(2 * capacity);
  }

  [[nodiscard]] shared_entries<Workspace> const& list() const noexcept { return list_; }
  [[nodiscard]] selection_view view() const noexcept {
    return {list_.indices.first(list_.count), list_.values.first(list_.count), {}};
  }

  /// What this rank has selected, but no more than the budget.
  void begin(std::span<index_type const> indices, std::span<float const> values, std::uint32_t share,
             std::uint64_t budget) noexcept {
    budget_ = budget;
    for (std::size_t i = 0; i < indices.size(); ++i) merged_.set(i, indices[i], values[i], share);
    merged_.count = indices.size();
    keep_largest();
  }

  /// Adds a child's list.
  GRADSIEVE_PRECISE void merge(selection_view const from, std::uint32_t share) noexcept {
    std::size_t a = 0;
    std::size_t b = 0;
    std::size_t at = 0;
    while (a < list_.count || b < from.indices.size()) {
      bool const mine = a < list_.count && (b == from.indices.size() || list_.indices[a] <= from.indices[b]);
      bool const theirs = b < from.indices.size() && (a == list_.count || from.indices[b] <= list_.indices[a]);
      if (mine && theirs)
        merged_.set(at, list_.indices[a], add(list_.values[a], from.values[b]), list_.shares[a] | share);
      else if (mine)
        merged_.set(at, list_.indices[a], list_.values[a], list_.shares[a]);
      else
        merged_.set(at, from.indices[b], from.values[b], share);
      a += mine ? 1 : 0;
      b += theirs ? 1 : 0;
      ++at;
    }
    merged_.count = at;
    keep_largest();
  }

 private:
  /// The largest of `merged_` become the list.
  void keep_largest() noexcept {
    auto const keys = keys_.first(merged_.count);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = magnitude_key(merged_.values[i]);
    key_type least = 0;
    std::size_t ties = keys.size();
    if (keys.size() > budget_) {
      least = infinite_key;
      ties = 0;
      if (budget_ > 0) {
        auto const at = keys.begin() + static_cast<std::ptrdiff_t>(budget_ - 1);
        std::ranges::nth_element(keys, at, std::greater{});
        least = *at;
        ties = budget_ -
               static_cast<std::size_t>(std::ranges::count_if(keys, [&](key_type key) { return key > least; }));
      }
    }
    list_.count = 0;
    for (std::size_t i = 0; i < merged_.count; ++i) {
      auto const key = magnitude_key(merged_.values[i]);
      if (key < least || (key == least && ties == 0)) continue;
      if (key == least) --ties;
      list_.set(list_.count++, merged_.indices[i], merged_.values[i], merged_.shares[i]);
    }
  }

  shared_entries<Workspace> list_, merged_;
  typename Workspace::template buffer<key_type> keys_;
  std::uint64_t budget_ = 0;
};

}  // namespace gradsieve::detail
