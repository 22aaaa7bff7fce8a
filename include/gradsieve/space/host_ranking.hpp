// Exact ranks: the cut that keeps k elements, and the elements that a cut keeps.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/search.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_buffer.hpp>
#include <gradsieve/space/host_passes.hpp>

namespace gradsieve {

/// Adds to the passes what selectors end with.
class host_ranking : public host_passes {
 public:
  host_ranking(int threads, std::uint64_t n, simd limit) : host_passes{threads, n, limit} {}

  /// As host_passes::plan(). Allocates: 8 kB a worker more, and 16 bytes a tile.
  void plan(std::span<segment const> segments, std::span<range const> holes, std::uint64_t expected,
            std::span<std::uint32_t const> bins = {}) {
    host_passes::plan(segments, holes, expected, bins);
    tile_counts_.assign(tiles_.size(), {});
    histograms_ = host_buffer<std::uint32_t>(static_cast<std::size_t>(team_.size() + 1) * digit_search::bins);
    worker_splits_.assign(static_cast<std::size_t>(team_.size()), {});
  }

  /// The cut that keeps exactly k elements of a segment, or all that are not zero if those are fewer. From the
  /// candidates where they suffice: O(candidates); else a pass, with many ties two, at most seven. `keep` restricts
  /// the choice. @pre At least k elements, or all that are not zero, have a key of `low` or more; low >= 1.
  template <class Keep = keep_all>
  [[nodiscard]] cut kth_largest(accumulator_ref const acc, index_type k, key_type low = 1, Keep const& keep = {}) {
    ranked_range range{low, infinite_key - 1, k};
    if constexpr (std::is_same_v<Keep, keep_all>) {
      auto const found = collected(acc);
      if (found.complete && (found.count >= k || found.lower == 1)) return kth_of_candidates(acc, k, found.count);
      if (found.count >= k) range.low = std::max(low, found.lower);
      range = probe_ties(acc, range);
      if (range.tie) return {range.low, range.wanted};
    }
    digit_search search{range.low, range.high, range.wanted};
    while (!search.done()) {
      clear_histograms();
      over_tiles(acc, [&](std::uint64_t, float const* values, std::size_t size, int worker) {
        count_digits(search, values, size, worker, keep);
      });
      search.next(merge_histograms());
    }
    return search.result();
  }

  /// Writes what a cut keeps, in index order, at most out.indices.size() entries; returns how many it keeps.
  /// From the candidates where they suffice, else one pass; two where ties or `keep` leave no other way.
  template <class Keep = keep_all>
  index_type compact(accumulator_ref const acc, cut const at, selection_span out, Keep const& keep = {}) {
    if constexpr (std::is_same_v<Keep, keep_all>) {
      key_type const needed = at.ties > 0 ? at.key : key_above(at.key);
      auto found = collected(acc);
      if (found.complete ? needed < found.lower : needed > found.lower) {
        collect_again(acc, std::max<key_type>(needed, 1));
        found = collected(acc);
      }
      if (found.complete) return compact_candidates(acc, at, out, found.count);
    }
    auto const [first, last] = tiles_.of(acc.id);
    if (counted_ != counted{epoch_, acc.id, at.key} || !std::is_same_v<Keep, keep_all>)
      count_by_tile(acc, at.key, keep);
    counted_ = {};
    auto const written = place(std::span{tile_counts_}.subspan(first, last - first), at.ties);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      auto const end = t + 1 < last ? tile_counts_[t + 1].above : std::uint64_t{written};
      host_kernels::write_kept(values, size, at.key, keep, tile_counts_[t],
                               std::min<std::uint64_t>(end, out.indices.size()), out,
                               [&](std::size_t i) { return static_cast<index_type>(tiles_[t].begin + i); });
    });
    return written;
  }

  /// All candidates of a segment, of which none is zero, in index order, with body(value) for the value of each; at
  /// most out.indices.size() of them. Returns how many there are. @pre collected(acc).complete. Cost: one copy.
  template <class Body>
  index_type take_candidates(accumulator_ref const acc, selection_span out, Body const& body) noexcept {
    std::uint64_t total = 0;
    for (int w = 0; w < team_.size(); ++w) {
      count_of(w).above = total;
      total += found_.of(acc, w).values.size();
    }
    team_.run(total, [&](int worker) {
      auto const mine = found_.of(acc, worker);
      std::uint64_t const to = std::min<std::uint64_t>(count_of(worker).above, out.indices.size());
      std::uint64_t const count = std::min<std::uint64_t>(mine.values.size(), out.indices.size() - to);
      std::copy_n(mine.indices.data(), count, out.indices.data() + to);
      for (std::uint64_t i = 0; i < count; ++i) out.values[to + i] = body(mine.values[i]);
    });
    return static_cast<index_type>(total);
  }

 private:
  /// Keys among which the element of a rank is looked for, the largest being of rank 1. `tie`: there is one key,
  /// shared by that many elements or more.
  struct ranked_range {
    key_type low;
    key_type high;
    index_type wanted;
    bool tie = false;
  };

  /// What tile_counts_ are about.
  struct counted {
    std::uint64_t epoch = ~std::uint64_t{0};
    std::uint64_t segment = 0;
    key_type key = 0;
    friend bool operator==(counted const&, counted const&) = default;
  };

  /// What one worker has found, a cache line each.
  struct alignas(64) worker_split : host_kernels::split_keys::result {
    worker_split& operator=(host_kernels::split_keys::result const& found) noexcept {
      host_kernels::split_keys::result::operator=(found);
      return *this;
    }
  };

  [[nodiscard]] worker_split& split_of(int worker) noexcept { return worker_splits_[static_cast<std::size_t>(worker)]; }

  /// Two keys from a sample of the candidates have the answer between them nearly always: the few there are packed,
  /// and searched. Cost: one read of the candidates' values, else at most four.
  [[nodiscard]] cut kth_of_candidates(accumulator_ref const acc, index_type k, std::uint64_t count) noexcept {
    auto const [low, high] = bracket_of_candidates(acc, k, count);
    auto const room = samples_.size() / static_cast<std::size_t>(team_.size());
    auto const packed = [&](int worker) { return samples_.data() + static_cast<std::size_t>(worker) * room; };
    bool complete = true;
    std::uint64_t above = 0;
    std::uint64_t inside = 0;
    team_.run(count, [&](int worker) {
      auto const mine = found_.of(acc, worker).values;
      split_of(worker) = host_kernels::run<host_kernels::split_keys>(simd_, mine.data(), mine.size(), low, high,
                                                                     packed(worker), std::uint64_t{room});
    });
    for (int w = 0; w < team_.size(); ++w) {
      complete = complete && split_of(w).complete;
      above += split_of(w).above;
      inside += split_of(w).inside;
    }
    bool const hit = complete && above < k && k <= above + inside;
    digit_search search = hit ? digit_search{low, high, static_cast<index_type>(k - above)}
                              : digit_search{found_.lower(acc.id), infinite_key - 1, k};
    while (!search.done()) {
      clear_histograms();
      team_.run(hit ? inside : count, [&](int worker) {
        auto const mine = found_.of(acc, worker).values;
        if (hit)
          for (key_type const key : std::span{packed(worker), split_of(worker).inside})
            count_digit(search, key, histogram_of(worker).data());
        else
          count_digits(search, mine.data(), mine.size(), worker, keep_all{});
      });
      search.next(merge_histograms());
    }
    return search.result();
  }

  /// Keys that have the k-th largest candidate between them: five standard deviations of a sample's rank apart,
  /// and one key where the sample is all there is; the whole range where there is nothing to sample.
  [[nodiscard]] std::pair<key_type, key_type> bracket_of_candidates(accumulator_ref const acc, index_type k,
                                                                    std::uint64_t count) noexcept {
    if (count == 0) return {found_.lower(acc.id), infinite_key - 1};
    auto const size =
        std::min<std::uint64_t>({count, samples_.size(), std::clamp<std::uint64_t>(count / 16, 1024, 4096)});
    std::size_t taken = 0;
    std::uint64_t passed = 0;
    for (int w = 0; w < team_.size(); ++w) {
      auto const mine = found_.of(acc, w).values;
      for (; taken < size && count * taken / size < passed + mine.size(); ++taken)
        samples_[taken] = magnitude_key(mine[count * taken / size - passed]);
      passed += mine.size();
    }
    auto const keys = samples_.first(taken);
    double const share = static_cast<double>(k) / static_cast<double>(count);
    double const rank = share * static_cast<double>(size);
    double const margin = size == count ? 0 : 5 * std::sqrt(rank * std::max(0.0, 1 - share)) + 4;
    auto const ranked = [&](double place, key_type beyond) {
      if (place < 1 || place > static_cast<double>(size)) return beyond;
      auto const nth = keys.begin() + static_cast<std::ptrdiff_t>(place) - 1;
      std::nth_element(keys.begin(), nth, keys.end(), std::greater{});
      return *nth;
    };
    key_type const high = ranked(std::floor(rank - margin), infinite_key - 1);
    return {ranked(std::ceil(rank + margin), found_.lower(acc.id)), high};
  }

  /// Elements of a segment above a key and equal to it, by tile and in all. Cost: one pass.
  template <class Keep>
  kept count_by_tile(accumulator_ref const acc, key_type key, Keep const& keep) {
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      tile_counts_[t] = host_kernels::run<host_kernels::count_tile_kept>(simd_, values, size, key, keep);
    });
    counted_ = {epoch_, acc.id, key};
    kept total;
    for (auto t = tiles_.of(acc.id).first; t < tiles_.of(acc.id).last; ++t)
      total = {total.above + tile_counts_[t].above, total.equal + tile_counts_[t].equal};
    return total;
  }

  /// Where candidates do not suffice, mostly because many elements are equal: a few counting passes at sampled keys
  /// find the tie, or narrow the range for a search by digits.
  [[nodiscard]] ranked_range probe_ties(accumulator_ref const acc, ranked_range range) {
    auto const k = range.wanted;
    auto const keys = sample(acc, 4096).keys();
    std::sort(keys.begin(), keys.end(), std::greater{});
    auto const rank =
        static_cast<std::ptrdiff_t>(static_cast<double>(keys.size()) * k / static_cast<double>(acc.values.size()));
    for (int pass = 0; pass < 4; ++pass) {
      auto const first = std::partition_point(keys.begin(), keys.end(), [&](key_type key) { return key > range.high; });
      auto const last = std::partition_point(first, keys.end(), [&](key_type key) { return key >= range.low; });
      if (first == last) break;
      key_type const probe = *std::clamp(keys.begin() + rank, first, last - 1);
      auto const total = count_by_tile(acc, probe, keep_all{});
      std::uint64_t const above = total.above - (k - range.wanted);  // less those above range.high
      if (above >= range.wanted) {
        range.low = probe + 1;
        continue;
      }
      range.wanted -= static_cast<index_type>(above);
      if (range.wanted <= total.equal) return {probe, probe, range.wanted, true};
      range.wanted -= static_cast<index_type>(total.equal);
      range.high = probe - 1;
    }
    return range;
  }

  /// A worker's histogram; behind the last one stands their sum.
  [[nodiscard]] std::span<std::uint32_t> histogram_of(int worker) noexcept {
    return histograms_.span().subspan(static_cast<std::size_t>(worker) * digit_search::bins, digit_search::bins);
  }

  void clear_histograms() noexcept { std::fill_n(histograms_.data(), histograms_.size(), 0u); }

  [[nodiscard]] std::span<std::uint32_t const> merge_histograms() noexcept {
    auto const total = histogram_of(team_.size());
    for (int w = 0; w < team_.size(); ++w)
      for (std::size_t b = 0; b < digit_search::bins; ++b) total[b] += histogram_of(w)[b];
    return total;
  }

  static void count_digit(digit_search const& search, key_type key, std::uint32_t* histogram) noexcept {
    if (search.inside(key)) ++histogram[search.bin(key)];
  }

  template <class Keep>
  void count_digits(digit_search const& search, float const* values, std::size_t count, int worker,
                    Keep const& keep) noexcept {
    auto* const histogram = histogram_of(worker).data();
    for (std::size_t i = 0; i < count; ++i)
      if (keep(values[i])) count_digit(search, magnitude_key(values[i]), histogram);
  }

  /// Turns counts of kept elements into the place where each part writes and the ties it may take.
  template <class Kept>
  [[nodiscard]] static index_type place(std::span<Kept> parts, index_type ties) noexcept {
    std::uint64_t written = 0;
    for (auto& part : parts) {
      auto const taken = std::min<std::uint64_t>(part.equal, ties);
      auto const above = part.above;
      part = kept{written, taken};
      written += above + taken;
      ties -= static_cast<index_type>(taken);
    }
    return static_cast<index_type>(written);
  }

  index_type compact_candidates(accumulator_ref const acc, cut const at, selection_span out,
                                std::uint64_t work) noexcept {
    team_.run(work, [&](int worker) {
      auto const mine = found_.of(acc, worker).values;
      count_of(worker) = host_kernels::run<host_kernels::count_candidates>(simd_, mine.data(), mine.size(), at.key);
    });
    auto const written = place(std::span<worker_count>{worker_counts_}, at.ties);
    team_.run(work, [&](int worker) {
      auto const mine = found_.of(acc, worker);
      auto const end = worker + 1 < team_.size() ? count_of(worker + 1).above : std::uint64_t{written};
      host_kernels::run<host_kernels::write_candidates>(
          simd_, mine.values.data(), mine.indices.data(), mine.values.size(), at.key,
          static_cast<kept const&>(count_of(worker)), std::min<std::uint64_t>(end, out.indices.size()),
          out.indices.data(), out.values.data());
    });
    return written;
  }

  std::vector<kept> tile_counts_;
  counted counted_;
  std::vector<worker_split> worker_splits_;
  host_buffer<std::uint32_t> histograms_;
};

}  // namespace gradsieve
