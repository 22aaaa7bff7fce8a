// The accumulate pass of selectors that choose in short bins, and a bin as they see it, in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/kth.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

/// A tile made of bins, which are counted from the segment's first element.
struct binned_tile {
  std::uint32_t bin_length = 1;
  std::uint64_t offset = 0;    ///< of the tile's first element in its segment
  std::uint64_t position = 0;  ///< as offset, without elements in passthrough ranges
  std::uint64_t elements = 0;  ///< of all the segment's bins
  index_type k = 0;            ///< entries that the segment is to give
  std::uint64_t phase = 0;     ///< of share_of()
  /// Elements to accumulate before their bins are processed.
  std::size_t strip = streamed_strip;
};

/// Words that put_marks() may write for `count` elements.
[[nodiscard]] constexpr std::size_t mark_words(std::size_t count) noexcept { return count / block + 2; }

/// Sets the bits from `at` on to those of `found`. @pre they were 0
GRADSIEVE_INLINE void put_marks(mark_word* marks, std::size_t at, mark_word found) noexcept {
  marks[at / block] |= found << (at % block);
  marks[at / block + 1] |= found >> 1 >> (block - 1 - at % block);
}

/// One worker's scratch: room for a tile's elements and a group more, and mark_words() of that many marks, zero between
/// tiles. On cache lines of its own, as every tile writes to it.
struct alignas(128) bin_scratch {
  float* scores = nullptr;  ///< may alias found.values: a selector with scores does not use `found`
  key_type* keys = nullptr;
  mark_word* marks = nullptr;
  candidate_list found;                 ///< elements of a tile that reach `likely`
  key_type likely = 0;                  ///< `margin` below the smallest rank's key in the previous tile; 0: unknown
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

/// Loops whose count is visibly a multiple of this need no remainder loop, which in short bins would be half the work.
inline constexpr std::size_t lanes = 16;
[[nodiscard]] constexpr std::size_t whole_vectors(std::size_t count) noexcept { return count & ~(lanes - 1); }

/// One bin as a selector sees it.
template <simd Level>
class host_bin {
 public:
  /// The bin's values whose key reaches `least`.
  struct reaching {
    float const* values;
    std::size_t count;
    key_type least;
  };

  /// `readable` >= size: values that may be read. `scratch`: room for the bin and a block. `least_rank`: lowered to the
  /// smallest key that kth_largest() finds.
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

  /// The threshold that keeps the k largest, ties to the smaller index. Cost: O(k) if the previous tile had about the
  /// same threshold, else one to three reads.
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
    for (std::size_t i = 0; i < lanes; ++i) scratch_[inside + i] = low;  // as small as any: these change no rank
    key_type const key = kth_key::run<Level>(scratch_, whole, k);
    least_rank_ = smaller(least_rank_, key);
    return {key, k - static_cast<index_type>(count_keys(scratch_, whole, key_above(key)))};
  }

 private:
  static constexpr key_type unknown = ~key_type{0};

  /// Writes the keys of at least `low` to the scratch; returns how many.
  [[nodiscard]] GRADSIEVE_INLINE std::uint64_t collect(key_type low) const noexcept {
    return split_keys::run<Level>(values_, size_, low, infinite_key - 1, scratch_, size_ + block).inside;
  }

  /// A key that about 1.5 k elements reach; 0 if a sample would not help.
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
  std::uint64_t position_;  // in the segment, without elements in passthrough ranges
  reaching likely_;
  key_type* scratch_;
  key_type& least_rank_;
  mutable key_type largest_ = unknown;
};

/// Removes pending entries and accumulates at most a tile, as accumulate_tile without candidates; writes the scores of
/// the new accumulators. A gradient that is not finite counts as zero.
struct accumulate_scored {
  template <simd Level, class Chosen, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static std::uint64_t run(Chosen const chosen, Residual const policy,
                                            std::array<float*, States> states, T const* gradient, float factor,
                                            std::size_t count, std::uint64_t first, bool asks, pending_list* pending,
                                            float* scores) noexcept {
    remove_before(policy, states, first, count + remove_ahead, *pending);
    std::uint64_t bad = 0;
    float widened[block];
    for (; count >= block; count -= block, gradient += block, scores += block) {
      auto const* const from = readable<Level>(gradient, widened);
      if (asks) {
        prefetch(gradient + prefetch_ahead, block);
        for (auto const* const state : states) prefetch(state + prefetch_ahead, block);
      }
      auto const here = accumulate_in_place(policy, states, from, factor);
      score(chosen, states[0], from, factor, block, here == 0, scores);
      bad += here;
      for (auto& state : states) state += block;
    }
    auto const here = accumulate_elements<true>(policy, states, gradient, factor, count);
    score(chosen, states[0], gradient, factor, count, here == 0, scores);
    return bad + here;
  }

 private:
  /// `finite`: all gradients are.
  template <class Chosen, class T>
  GRADSIEVE_INLINE static void score(Chosen const& chosen, float const* values, T const* gradient, float factor,
                                     std::size_t count, bool finite, float* scores) noexcept {
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i)
      scores[i] = chosen.score(values[i], multiply(to_float(gradient[i]), factor));
    if (finite) [[likely]]
      return;
    for (std::size_t i = 0; i < count; ++i)
      if (!is_finite(multiply(to_float(gradient[i]), factor))) scores[i] = chosen.score(values[i], 0.0f);
  }
};

/// Accumulates a tile, then keeps in each of its bins what the selector's threshold keeps.
struct keep_in_bins {
  struct result {
    std::uint64_t bad = 0;
    double sum_of_maxima = 0;
    std::uint64_t bins = 0;
  };

  template <simd Level, class Chosen>
  GRADSIEVE_INLINE static result run(Chosen const chosen, entry const enter, int worker, float const* values,
                                     std::size_t count, std::uint64_t first, binned_tile const tile,
                                     bin_scratch* const scratch, candidate_list* list, pending_list* pending) noexcept {
    result sums;
    std::size_t entered = 0;
    key_type const low = scored<Chosen> ? 0 : scratch->likely;  // of the whole tile
    key_type least_rank = infinite_key;
    bool missed = false;
    auto& found = scratch->found;
    found.count = 0;
    std::size_t read = 0;  // position in `found`
    std::uint64_t const before = list->count;
    std::size_t end = std::min<std::size_t>(tile.bin_length - tile.offset % tile.bin_length, count);
    for (std::size_t at = 0; at < count; at = end, end = std::min<std::size_t>(end + tile.bin_length, count)) {
      std::size_t const size = end - at;
      // Only as far ahead as the bin needs, so that prefetched memory arrives while bins are processed.
      while (entered < end) {
        std::size_t const most = scored<Chosen> ? std::min(tile.strip, scored_strip) : tile.strip;
        std::size_t const next = std::min(most, count - entered);
        sums.bad += enter(entering{first + entered, next, tile.strip, low, &found, pending, worker, nullptr,
                                   scored<Chosen> ? scratch->scores + entered : nullptr});
        entered += next;
      }
      std::size_t const from = read;
      if (entered == end)
        read = found.count;
      else
        while (read < found.count && found.indices[read] < first + end) ++read;
      host_bin<Level> const bin{
          values + at,   size,      count - at, tile, tile.position + at, {found.values + from, read - from, low},
          scratch->keys, least_rank};
      threshold const kept = scored<Chosen> ? chosen.threshold_of(bin) : without_zeros(chosen.threshold_of(bin));
      if constexpr (scored<Chosen>) {  // there is room behind the scores
        mark_kept<Level>(scratch->scores + at, size, size + block, kept, at, scratch->marks);
      } else if (low == 0) {
        mark_kept<Level>(values + at, size, count - at, kept, at, scratch->marks);
      } else if (low <= (kept.ties > 0 ? kept.key : key_above(kept.key))) {
        append_kept<Level>(found.values + from, found.indices + from, read - from, kept, *list);
      } else {
        missed = true;
        mark_kept<Level>(values + at, size, count - at, kept, 0, scratch->marks);
        append_all<Level>(values + at, size, first + at, scratch->marks, *list);
      }
      if constexpr (quantising_selector<Chosen>) {
        detail::add_in_order(sums.sum_of_maxima, static_cast<double>(magnitude_of(bin.max_key())));
        ++sums.bins;
      }
    }
    if (low == 0) append_all<Level>(values, count, first, scratch->marks, *list);
    if constexpr (scored<Chosen>) drop_zeros(*list, before);
    if (least_rank < infinite_key) scratch->expect(least_rank, missed, list->count - before);
    return sums;
  }

 private:
  template <class Chosen>
  static constexpr bool scored = scoring_selector<Chosen>;

  [[nodiscard]] GRADSIEVE_INLINE static threshold without_zeros(threshold const kept) noexcept {
    return kept.key == 0 ? threshold{} : kept;
  }

  /// The first `ties` of a block's marks; decrements `ties` for each.
  [[nodiscard]] GRADSIEVE_INLINE static mark_word take_ties(mark_word marks, index_type& ties) noexcept {
    mark_word taken = 0;
    for (; marks != 0 && ties > 0; --ties, marks &= marks - 1) taken |= marks & (0 - marks);
    return taken;
  }

  /// Marks what a threshold keeps by the scores; the first element has bit `at`. `readable` >= count may be read.
  template <simd Level>
  GRADSIEVE_INLINE static void mark_kept(float const* scores, std::size_t count, std::size_t readable, threshold kept,
                                         std::size_t at, mark_word* marks) noexcept {
    for (std::size_t i = 0; i < count; i += block) {
      std::size_t const size = smaller(block, count - i);
      auto const look = [&](key_type least) GRADSIEVE_LAMBDA_INLINE {
        return i + block <= readable ? block_of<Level>::at_least(scores + i, least) & first_marks(size)
                                     : marks_of(scores + i, size, least);
      };
      mark_word wanted = look(key_above(kept.key));
      if (kept.ties > 0) wanted |= take_ties(look(kept.key) & ~wanted, kept.ties);
      put_marks(marks, at + i, wanted);
    }
  }

  /// Appends the candidates that a threshold keeps. A block may be read behind them.
  template <simd Level>
  GRADSIEVE_INLINE static void append_kept(float const* values, index_type const* indices, std::size_t count,
                                           threshold kept, candidate_list& list) noexcept {
    for (std::size_t i = 0; i < count; i += block) {
      mark_word const here = first_marks(count - i);
      mark_word wanted = block_of<Level>::at_least(values + i, key_above(kept.key)) & here;
      if (kept.ties > 0)
        wanted |= take_ties(block_of<Level>::at_least(values + i, kept.key) & here & ~wanted, kept.ties);
      block_of<Level>::pack(wanted, indices + i, list.indices + list.count);
      block_of<Level>::pack(wanted, values + i, list.values + list.count);
      list.count += count_marks(wanted);
    }
  }

  /// Appends the marked elements of a tile and clears the marks.
  template <simd Level>
  GRADSIEVE_INLINE static void append_all(float const* values, std::size_t count, std::uint64_t first, mark_word* marks,
                                          candidate_list& list) noexcept {
    std::size_t i = 0;
    while (i + block <= count) {
      marked_strip strip;
      std::size_t const from = i;
      for (std::size_t b = 0; b < marked_strip::blocks && i + block <= count; ++b, i += block)
        strip.put(b, std::exchange(*marks++, 0));
      strip.append<Level>(values + from, static_cast<index_type>(first + from), list);
    }
    for (auto left = std::exchange(*marks, 0); left != 0; left &= left - 1)
      append_rest(values + i + lowest_mark(left), 1, static_cast<index_type>(first + i + lowest_mark(left)), 0, list);
  }
};

/// Accumulates elements; states and gradient point to the first one. See entry.
template <class Chosen, class Residual, class T, std::size_t States>
std::uint64_t enter(simd level, Chosen const& chosen, Residual const& policy, std::array<float*, States> const& states,
                    T const* gradient, float factor, entering const& what) noexcept {
  if (what.scores != nullptr)
    return detail::with_chosen(chosen, [&]<class One>([[maybe_unused]] One const& it) -> std::uint64_t {
      if constexpr (scoring_selector<One>)
        return run<accumulate_scored>(level, it, policy, states, gradient, factor, what.count, what.first,
                                      what.strip < tile_size, what.pending, what.scores);
      else
        return 0;
    });
  return run<accumulate_tile>(level, policy, states, gradient, factor, what.count, what.first, what.strip,
                              what.candidate_threshold, what.list, what.pending, what.sums);
}

}  // namespace gradsieve::host_kernels
