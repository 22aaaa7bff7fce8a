// What a threshold keeps: counting it, and writing it; and a search for a key by its digits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/simd/marks.hpp>
#include <gradsieve/host/simd/stream.hpp>
#include <gradsieve/host/team.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::host_kernels {

[[nodiscard]] GRADSIEVE_INLINE std::uint64_t count_at_least(float const* values, std::size_t count,
                                                            key_type key) noexcept {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found += magnitude_key(values[i]) >= key ? 1u : 0u;
  return found;
}

struct count_tile {
  template <simd>
  GRADSIEVE_INLINE static std::uint64_t run(float const* values, std::size_t count, key_type key) noexcept {
    std::uint64_t found = 0;
    for (std::size_t at = 0; at < count; at += count_strip) {
      prefetch(values + at + prefetch_ahead, count_strip);
      found += count_at_least(values + at, smaller(count_strip, count - at), key);
    }
    return found;
  }
};

/// Elements of a part that a threshold keeps: above its key, and equal to it. Later: where the part writes its first
/// entry, and how many ties it takes.
struct kept {
  std::uint64_t above = 0;
  std::uint64_t equal = 0;
};

template <class Keep>
[[nodiscard]] GRADSIEVE_INLINE kept count_kept(float const* values, std::size_t count, key_type key,
                                               Keep const& keep) noexcept {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;
  for (std::size_t i = 0; i < count; ++i) {
    key_type const here = magnitude_key(values[i]);
    std::uint32_t const wanted = keep(values[i]) ? 1 : 0;
    above += here > key ? wanted : 0u;
    equal += here == key ? wanted : 0u;
  }
  return {above, equal};
}

struct count_tile_kept {
  template <simd, class Keep>
  GRADSIEVE_INLINE static kept run(float const* values, std::size_t count, key_type key, Keep const keep) noexcept {
    kept found;
    for (std::size_t at = 0; at < count; at += count_strip) {
      prefetch(values + at + prefetch_ahead, count_strip);
      auto const here = count_kept(values + at, smaller(count_strip, count - at), key, keep);
      found = {found.above + here.above, found.equal + here.equal};
    }
    return found;
  }
};

/// Writes what a threshold keeps of a part to [at.above, end), with the first at.equal ties.
template <class Keep, class Index>
void write_kept(float const* values, std::size_t count, key_type key, Keep const& keep, kept at, std::uint64_t end,
                selection_span out, Index const& index) noexcept {
  for (std::size_t i = 0; i < count && at.above < end; ++i) {
    key_type const here = magnitude_key(values[i]);
    if (here < key || (here == key && at.equal == 0) || !keep(values[i])) continue;
    at.equal -= here == key ? 1u : 0u;
    out.indices[at.above] = index(i);
    out.values[at.above++] = values[i];
  }
}

struct count_candidates {
  template <simd>
  GRADSIEVE_INLINE static kept run(float const* values, std::size_t count, key_type key) noexcept {
    return count_kept(values, count, key, keep_all{});
  }
};

/// Writes the candidates that a threshold keeps to [at.above, end). Behind the candidates a block may be read.
struct write_candidates {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, index_type const* from, std::size_t count, key_type key,
                                   kept at, std::uint64_t end, index_type* indices, float* out) noexcept {
    if (at.above >= end) return;  // workers before have filled the list
    for (std::size_t i = 0; i < count; i += block) {
      mark_word const here = first_marks(count - i);
      mark_word wanted = block_of<Level>::at_least(values + i, key_above(key)) & here;
      if (at.equal > 0) {
        mark_word ties = block_of<Level>::at_least(values + i, key) & here & ~wanted;
        for (; ties != 0 && at.equal > 0; --at.equal, ties &= ties - 1) wanted |= ties & (0 - ties);
      }
      if (at.above + 2 * block <= end) {  // there is room to overwrite
        block_of<Level>::pack(wanted, from + i, indices + at.above);
        block_of<Level>::pack(wanted, values + i, out + at.above);
      } else {
        write_few<Level>(wanted, from + i, indices + at.above, end - at.above);
        write_few<Level>(wanted, values + i, out + at.above, end - at.above);
      }
      at.above = smaller<std::uint64_t>(at.above + count_marks(wanted), end);
    }
  }

 private:
  /// As pack(), at most `capacity` of them, and nothing behind.
  template <simd Level, class Value>
  GRADSIEVE_INLINE static void write_few(mark_word wanted, Value const* from, Value* to,
                                         std::uint64_t capacity) noexcept {
    Value packed[2 * block];
    block_of<Level>::pack(wanted, from, packed);
    std::copy_n(packed, smaller<std::uint64_t>(count_marks(wanted), capacity), to);
  }
};

}  // namespace gradsieve::host_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A histogram of digits for each worker, and their sum. Memory: 8 KiB a worker.
class digit_histograms {
 public:
  explicit digit_histograms(host_team const& team)
      : counts_(static_cast<std::size_t>(team.size() + 1) * digit_search::bins) {}

  /// Goes through a search: pass(counter) counts all keys, those that worker w finds by counter(w)(key).
  template <class Pass>
  [[nodiscard]] threshold search(digit_search at, host_team const& team, Pass const& pass) {
    auto const total = of(team.size());
    auto const counter = [&](int worker) {
      return [&at, to = of(worker).data()](key_type key) {
        if (at.inside(key)) ++to[at.bin(key)];
      };
    };
    while (!at.done()) {
      std::fill_n(counts_.data(), counts_.size(), 0u);
      pass(counter);
      for (int w = 0; w < team.size(); ++w)
        for (std::size_t b = 0; b < digit_search::bins; ++b) total[b] += of(w)[b];
      at.next(total);
    }
    return at.result();
  }

 private:
  /// A worker's histogram; behind the last one stands their sum.
  [[nodiscard]] std::span<std::uint32_t> of(int worker) noexcept {
    return counts_.span().subspan(static_cast<std::size_t>(worker) * digit_search::bins, digit_search::bins);
  }

  host_buffer<std::uint32_t> counts_;
};

}  // namespace gradsieve::detail
