// A short bin of a tile, as selectors that choose in bins see it on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/kth.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// A tile that is made of bins: they are counted from the segment's first element.
struct binned_tile {
  std::uint32_t bin_length = 1;
  std::uint64_t offset = 0;    ///< of the tile's first element in its segment
  std::uint64_t position = 0;  ///< the same, elements in passthrough ranges not counted
  std::uint64_t elements = 0;  ///< of all the segment's bins
  index_type k = 0;            ///< entries that the segment is to give
  std::uint64_t phase = 0;     ///< of share_of()
  /// Elements that are accumulated before the bins among them are looked through.
  std::size_t strip = streamed_strip;
};

/// Words for the marks of `count` elements: what put_marks() writes.
[[nodiscard]] constexpr std::size_t mark_words(std::size_t count) noexcept { return count / block + 2; }

/// Sets the bits `at` and following to those of `found`. @pre these were 0
GRADSIEVE_INLINE void put_marks(mark_word* marks, std::size_t at, mark_word found) noexcept {
  marks[at / block] |= found << (at % block);
  marks[at / block + 1] |= found >> 1 >> (block - 1 - at % block);
}

/// What one worker needs of memory: as many places as a tile has elements, and a group more; of marks mark_words() of
/// that many, which are zero between tiles. On cache lines of its own, as every tile writes to it.
struct alignas(128) bin_scratch {
  float* scores = nullptr;  ///< may be where found.values are: a selector with scores sets nothing aside
  key_type* keys = nullptr;
  mark_word* marks = nullptr;
  candidate_list found;                 ///< of a tile, what reaches `likely`
  key_type likely = 0;                  ///< `margin` below the least rank's key in the tile before; 0: not known
  key_type margin = key_type{1} << 20;  ///< an eighth of an octave at first

  /// Sets `likely` for the next tile: about twice as many elements as are `kept` should reach it.
  GRADSIEVE_INLINE void expect(key_type least_rank, bool missed, std::uint64_t kept) noexcept {
    if (missed)
      margin = smaller(2 * margin, key_type{1} << 23);
    else if (found.count > 2 * kept + block)
      margin -= margin / 8;
    likely = least_rank - smaller(least_rank, margin);
  }
};

/// Loops over a multiple of this many elements, and the compiler sees that it is one, need no second loop for a rest;
/// in short bins that would be half of the work.
inline constexpr std::size_t lanes = 16;
[[nodiscard]] constexpr std::size_t whole_vectors(std::size_t count) noexcept { return count & ~(lanes - 1); }

/// One bin as a selector sees it: its accumulators, and how many entries it may give.
template <simd Level>
class host_bin {
 public:
  /// Those of the bin's values whose key reaches `least`.
  struct reaching {
    float const* values;
    std::size_t count;
    key_type least;
  };

  /// Of the values `readable` >= size may be read. `least_rank`: becomes the key of a rank that was asked for, if that
  /// is less. `scratch`: room for the bin and a block.
  host_bin(float const* values, std::size_t size, std::size_t readable, binned_tile const& in, std::uint64_t position,
           reaching const likely, key_type* scratch, key_type& least_rank) noexcept
      : values_{values},
        size_{size},
        readable_{readable},
        in_{in},
        position_{position},
        likely_{likely},
        scratch_{scratch},
        least_rank_{least_rank} {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] index_type budget() const noexcept {
    auto const share = [&](std::uint64_t up_to) { return share_of(in_.k, up_to, in_.elements, in_.phase); };
    return static_cast<index_type>(share(position_ + size_) - share(position_));
  }
  [[nodiscard]] GRADSIEVE_INLINE key_type max_key() const noexcept {
    if (largest_ != unknown) return largest_;
    std::size_t const whole = size_ & ~(block - 1);
    key_type const most = whole > 0 ? host_kernels::max_key(values_, whole) : 0;
    if (whole + block > readable_)
      return largest_ = larger(most, host_kernels::max_key(values_ + whole, size_ - whole));
    return largest_ = larger(most, max_key_in_block(values_ + whole, size_ - whole));
  }

  /// The threshold that keeps the k largest, ties to the smaller index. Cost: O(k) where the tile before had about the
  /// same threshold, else one to three reads more.
  [[nodiscard]] GRADSIEVE_INLINE threshold kth_largest(index_type k) const noexcept {
    if (k == 0) return {infinite_key, 0};
    if (k >= size_) return {};
    std::size_t inside = likely_.count;
    key_type low = likely_.least;
    if (inside >= k && inside <= 4 * std::size_t{k} + 2 * block) {
      for (std::size_t i = 0; i < inside; ++i) scratch_[i] = magnitude_key(likely_.values[i]);
    } else {
      inside = collect(low = sampled_bound(k));
      if (inside < k) inside = collect(low = 0);
    }
    std::size_t const whole = whole_vectors(inside + lanes - 1);
    for (std::size_t i = 0; i < lanes; ++i) scratch_[inside + i] = low;  // as small as any: no rank of these changes
    key_type const key = kth_key::run<Level>(scratch_, whole, k);
    least_rank_ = smaller(least_rank_, key);
    return {key, k - static_cast<index_type>(count_keys(scratch_, whole, key_above(key)))};
  }

 private:
  static constexpr key_type unknown = ~key_type{0};

  /// The keys of at least `low` to the scratch; how many.
  [[nodiscard]] GRADSIEVE_INLINE std::uint64_t collect(key_type low) const noexcept {
    return split_keys::run<Level>(values_, size_, low, infinite_key - 1, scratch_, size_ + block).inside;
  }

  /// A key that about half as many again as k elements reach; 0 where a sample would not help.
  [[nodiscard]] GRADSIEVE_INLINE key_type sampled_bound(index_type k) const noexcept {
    constexpr auto samples = bin_samples;
    std::size_t const rank = k * samples * 3 / 2 / size_ + 8;
    if (size_ < 4 * samples || rank >= samples) return 0;
    for (std::size_t i = 0; i < samples; ++i) scratch_[i] = magnitude_key(values_[i * size_ / samples]);
    return kth_key::run<Level>(scratch_, samples, rank + 1);
  }

  float const* values_;
  std::size_t size_;
  std::size_t readable_;
  binned_tile const& in_;
  std::uint64_t position_;  // in the segment, elements in passthrough ranges not counted
  reaching likely_;
  key_type* scratch_;
  key_type& least_rank_;
  mutable key_type largest_ = unknown;
};

}  // namespace gradsieve::host_kernels
