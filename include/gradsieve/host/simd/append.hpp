// Appending the few elements that reach a key to a list: as candidates, or as keys between two bounds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// A growing, index-ordered list of one worker's candidates, with room for one group behind `capacity`. On cache lines
/// of its own, as every tile writes its count.
struct alignas(128) candidate_list {
  index_type* indices = nullptr;
  float* values = nullptr;
  std::uint64_t count = 0;
  std::uint64_t capacity = 0;

  [[nodiscard]] GRADSIEVE_INLINE bool full() const noexcept { return count > capacity; }
};

/// Elements of the room behind a list's capacity.
inline constexpr std::size_t group = 4 * block;

/// Appends a block's marked elements; its first has the index `first`. `Many`: usually more than a few, so a branch on
/// their number would be mispredicted.
template <simd Level, bool Many>
GRADSIEVE_INLINE void append_marked(float const* values, index_type first, mark_word marks,
                                    candidate_list& list) noexcept {
  std::size_t const more = count_marks(marks);
  index_type* const indices = list.indices + list.count;
  float* const kept = list.values + list.count;
  list.count += more;
  constexpr std::size_t few = Many ? few_in_dense_block : few_in_block;
  if (more <= few) {  // a fixed number of iterations: the true one would be mispredicted
    for (std::size_t j = 0; j < few; ++j, marks &= marks - 1) {
      std::size_t const i = lowest_mark(marks | mark_word{1} << (block - 1));
      indices[j] = first + static_cast<index_type>(i);
      kept[j] = values[i];
    }
    return;
  }
  block_of<Level>::places(marks, first, indices);
  block_of<Level>::pack(marks, values, kept);
}

/// The marks of up to 64 blocks, and which blocks have any.
class marked_strip {
 public:
  static constexpr std::size_t blocks = 64;

  GRADSIEVE_INLINE void put(std::size_t place, mark_word marks) noexcept {
    marks_[place] = marks;
    any_ |= std::uint64_t{marks != 0 ? 1u : 0u} << place;
  }

  /// Appends the marked elements; `values` and `first` are the first block's.
  template <simd Level>
  GRADSIEVE_INLINE void append(float const* values, index_type first, candidate_list& list) const noexcept {
    if (count_marks(any_) < dense_blocks)
      append_blocks<Level, false>(values, first, list);
    else
      append_blocks<Level, true>(values, first, list);
  }

 private:
  template <simd Level, bool Many>
  GRADSIEVE_INLINE void append_blocks(float const* values, index_type first, candidate_list& list) const noexcept {
    auto to = list;
    for (auto left = any_; left != 0 && !to.full(); left &= left - 1) {
      std::size_t const at = lowest_mark(left);
      append_marked<Level, Many>(values + block * at, first + static_cast<index_type>(block * at), marks_[at], to);
    }
    list.count = to.count;
  }

  std::uint64_t any_ = 0;
  mark_word marks_[blocks];
};

/// Appends those of `count` elements, less than a block, whose key is at least `least`.
GRADSIEVE_INLINE void append_rest(float const* values, std::size_t count, index_type first, key_type least,
                                  candidate_list& list) noexcept {
  for (std::size_t i = 0; i < count && !list.full(); ++i) {
    if (magnitude_key(values[i]) < least) continue;
    list.indices[list.count] = first + static_cast<index_type>(i);
    list.values[list.count++] = values[i];
  }
}

/// Removes the entries from `from` on whose value is zero; does nothing to a full list.
GRADSIEVE_INLINE void drop_zeros(candidate_list& list, std::uint64_t from) noexcept {
  std::uint32_t zeros = 0;
  for (std::uint64_t i = from; i < list.count; ++i) zeros += magnitude_key(list.values[i]) == 0 ? 1u : 0u;
  if (zeros == 0 || list.full()) return;
  std::uint64_t kept = from;
  for (std::uint64_t i = from; i < list.count; ++i) {
    if (magnitude_key(list.values[i]) == 0) continue;
    list.indices[kept] = list.indices[i];
    list.values[kept++] = list.values[i];
  }
  list.count = kept;
}

/// Counts the keys above `high` and writes those in [low, high] to `out`, at most `capacity` of them.
struct split_keys {
  struct result {
    std::uint64_t above = 0;
    std::uint64_t inside = 0;
    bool complete = true;
  };

  template <simd Level>
  GRADSIEVE_INLINE static result run(float const* values, std::size_t count, key_type low, key_type high, key_type* out,
                                     std::uint64_t capacity) noexcept {
    result found;
    std::size_t i = 0;
    for (; i + block <= count && found.inside + block <= capacity; i += block) {
      mark_word const above = block_of<Level>::at_least(values + i, key_above(high));
      mark_word const inside = block_of<Level>::at_least(values + i, low) & ~above;
      block_of<Level>::pack(inside, values + i, out + found.inside);
      found.above += count_marks(above);
      found.inside += count_marks(inside);
    }
    for (std::uint64_t j = 0; j < found.inside; ++j) out[j] &= 0x7FFF'FFFFu;  // remove the signs
    found.complete = i == count || (count - i < block && found.inside + block <= capacity);
    for (; i < count && found.complete; ++i) {
      key_type const key = magnitude_key(values[i]);
      if (key > high) ++found.above;
      if (low <= key && key <= high) out[found.inside++] = key;
    }
    return found;
  }
};

}  // namespace gradsieve::host_kernels
