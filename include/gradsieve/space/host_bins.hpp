// The accumulate pass of selectors that choose in short bins, while these are in the nearest cache.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>

#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_kernels.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve::host_kernels {

/// A tile that is made of bins: they are counted from the segment's first element.
struct binned_tile {
  std::uint32_t bin_length = 1;
  std::uint64_t position = 0;      ///< of the tile's first element in its segment
  std::uint64_t segment_size = 0;  ///< of all its bins
  index_type k = 0;                ///< entries that the segment is to give
};

/// What one worker needs of memory: as many places as a tile has elements, and a block more.
struct bin_scratch {
  float* kept = nullptr;
  key_type* keys = nullptr;
};

/// One bin as a selector sees it: its accumulators, and how many entries it may give.
template <simd Level>
class host_bin {
 public:
  host_bin(float const* values, std::size_t size, index_type budget, key_type* scratch) noexcept
      : values_{values}, size_{size}, budget_{budget}, scratch_{scratch} {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] index_type budget() const noexcept { return budget_; }
  [[nodiscard]] GRADSIEVE_INLINE key_type max_key() const noexcept { return host_kernels::max_key(values_, size_); }

  /// The cut that keeps the k largest, ties to the smaller index. Cost: two reads, and O(k).
  [[nodiscard]] GRADSIEVE_INLINE cut kth_largest(index_type k) const noexcept {
    if (k == 0) return {infinite_key, 0};
    if (k >= size_) return {};
    key_type low = sampled_bound(k);
    auto found = split_keys::run<Level>(values_, size_, low, infinite_key - 1, scratch_, size_ + block);
    if (found.inside < k)
      found = split_keys::run<Level>(values_, size_, low = 0, infinite_key - 1, scratch_, size_ + block);
    auto* const nth = scratch_ + (k - 1);
    std::nth_element(scratch_, nth, scratch_ + found.inside, std::greater{});
    auto const above = std::count_if(scratch_, nth, [&](key_type key) { return key > *nth; });
    return {*nth, k - static_cast<index_type>(above)};
  }

 private:
  /// A key that about half as many again as k elements reach; 0 where a sample would not help.
  [[nodiscard]] GRADSIEVE_INLINE key_type sampled_bound(index_type k) const noexcept {
    constexpr std::size_t samples = 256;
    std::size_t const rank = k * samples * 3 / 2 / size_ + 8;
    if (size_ < 4 * samples || rank >= samples) return 0;
    for (std::size_t i = 0; i < samples; ++i) scratch_[i] = magnitude_key(values_[i * size_ / samples]);
    std::nth_element(scratch_, scratch_ + rank, scratch_ + samples, std::greater{});
    return scratch_[rank];
  }

  float const* values_;
  std::size_t size_;
  index_type budget_;
  key_type* scratch_;
};

/// Enters a tile's gradient, then keeps in each of its bins what the selector's cut keeps.
struct accumulate_bins {
  struct result {
    std::uint64_t bad = 0;
    double sum_of_maxima = 0;
    std::uint64_t bins = 0;
  };

  template <simd Level, class Chosen, class Residual, class T, std::size_t States>
  GRADSIEVE_INLINE static result run(Chosen const chosen, Residual const policy, std::array<float*, States> states,
                                     T const* gradient, float factor, std::size_t count, std::uint64_t first,
                                     binned_tile const tile, bin_scratch const scratch, candidate_list* list,
                                     owed_list* owed) noexcept {
    result sums;
    sums.bad = accumulate_tile::run<Level>(policy, states, gradient, factor, count, first, 0, list, owed, nullptr);
    float const* const values = states[0];
    std::uint64_t given = share(tile, tile.position);
    for (std::size_t at = 0; at < count;) {
      std::uint64_t const place = tile.position + at;
      auto const size = std::min<std::size_t>(tile.bin_length - place % tile.bin_length, count - at);
      std::uint64_t const due = share(tile, place + size);
      host_bin<Level> const bin{values + at, size, static_cast<index_type>(due - given), scratch.keys};
      cut const kept = chosen.cut_of(bin);
      keep<Level>(chosen, values + at, gradient + at, factor, size, kept, scratch.kept + at);
      if constexpr (requires { chosen.sent(0.0f, 0.0f); }) {
        sums.sum_of_maxima += static_cast<double>(magnitude_of(bin.max_key()));
        ++sums.bins;
      }
      given = due;
      at += size;
    }
    append<Level>(scratch.kept, count, first, 1, *list);
    return sums;
  }

 private:
  /// Of a segment's k entries, those of its first `position` elements: whole numbers that add up to k.
  [[nodiscard]] static std::uint64_t share(binned_tile const& tile, std::uint64_t position) noexcept {
    return position * tile.k / tile.segment_size;
  }

  /// What a cut keeps of a bin; 0 in place of what it does not.
  template <simd Level, class Chosen, class T>
  GRADSIEVE_INLINE static void keep(Chosen const& chosen, float const* values, T const* gradient, float factor,
                                    std::size_t size, cut const at, float* to) noexcept {
    auto const score = [&](std::size_t i) {
      if constexpr (requires { chosen.score(0.0f, 0.0f); }) {
        float const entered = multiply(to_float(gradient[i]), factor);
        return chosen.score(values[i], is_finite(entered) ? entered : 0.0f);
      } else {
        return values[i];
      }
    };
    key_type const least = at.ties > 0 ? at.key : at.key + 1;
    std::uint32_t equal = 0;
    GRADSIEVE_INDEPENDENT
    for (std::size_t i = 0; i < size; ++i) {
      key_type const key = magnitude_key(score(i));
      to[i] = key >= least ? values[i] : 0.0f;
      equal += key == at.key ? 1u : 0u;
    }
    if (at.ties == 0 || equal <= at.ties) return;
    index_type left = at.ties;
    for (std::size_t i = 0; i < size; ++i)
      if (magnitude_key(score(i)) == at.key && left-- == 0) {
        to[i] = 0;
        ++left;
      }
  }
};

}  // namespace gradsieve::host_kernels
