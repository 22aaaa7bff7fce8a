// Exact ranks: the threshold that keeps k elements, and the elements that a threshold keeps.
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

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/sample.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/simd/append.hpp>
#include <gradsieve/host/simd/kth.hpp>
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

/// Number of a part's elements above a threshold's key and equal to it; after place(): the position of its first entry,
/// and the ties it takes.
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

/// Writes the candidates that a threshold keeps to [at.above, end). A block may be read behind the candidates.
struct write_candidates {
  template <simd Level>
  GRADSIEVE_INLINE static void run(float const* values, index_type const* from, std::size_t count, key_type key,
                                   kept at, std::uint64_t end, index_type* indices, float* out) noexcept {
    if (at.above >= end) return;  // earlier workers have filled the list
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
  /// pack() of at most `capacity` elements, without writing behind them.
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

/// A histogram of digits for each worker, and their sum. Memory: 8 KiB per worker.
class digit_histograms {
 public:
  explicit digit_histograms(host_team const& team)
      : counts_(static_cast<std::size_t>(team.size() + 1) * digit_search::bins) {}

  /// Runs a search; pass(counter) must call counter(w)(key) for every key, w being the worker.
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
  /// A worker's histogram; index team.size() is their sum.
  [[nodiscard]] std::span<std::uint32_t> of(int worker) noexcept {
    return counts_.span().subspan(static_cast<std::size_t>(worker) * digit_search::bins, digit_search::bins);
  }

  host_buffer<std::uint32_t> counts_;
};

/// Ranks the candidates if they suffice, else the elements.
class host_ranking {
 public:
  using kept = host_kernels::kept;

  explicit host_ranking(host_team const& team)
      : worker_counts_(static_cast<std::size_t>(team.size())),
        worker_splits_(worker_counts_.size()),
        histograms_{team} {}

  /// Allocates 16 bytes per tile.
  void plan(host_scope const& scope) { tile_counts_.assign(scope.tiles.size(), {}), forget(); }

  /// Invalidates the counts, as the accumulators change.
  void forget() noexcept { counted_ = {}; }

  template <class Keep>
  [[nodiscard]] threshold kth_largest(host_scope const& scope, accumulator_ref const acc, index_type k, key_type low,
                                      Keep const& keep) {
    ranked_range range{low, infinite_key - 1, k};
    if constexpr (std::is_same_v<Keep, keep_all>) {
      auto const found = scope.found.collected(acc);
      if (found.complete && (found.count >= k || found.threshold == 1))
        return kth_of_candidates(scope, acc, k, found.count);
      if (found.count >= k) range.low = std::max(low, found.threshold);
      range = probe_ties(scope, acc, range);
      if (range.tie) return {range.low, range.wanted};
    }
    return histograms_.search({range.low, range.high, range.wanted}, scope.team, [&](auto const& counter) {
      scope.over_tiles(acc, [&](std::uint64_t, float const* values, std::size_t size, int worker) {
        auto const count = counter(worker);
        for (std::size_t i = 0; i < size; ++i)
          if (keep(values[i])) count(magnitude_key(values[i]));
      });
    });
  }

  template <class Keep>
  index_type compact(host_scope& scope, accumulator_ref const acc, threshold const at, selection_span out,
                     Keep const& keep) {
    if constexpr (std::is_same_v<Keep, keep_all>) {
      key_type const needed = std::max<key_type>(at.ties > 0 ? at.key : key_above(at.key), 1);
      auto found = scope.found.collected(acc);
      if ((found.complete ? needed < found.threshold : needed > found.threshold) && !lie_in_few_tiles(scope, acc, at)) {
        scope.collect_again(acc, needed);
        found = scope.found.collected(acc);
      }
      if (found.complete && needed >= found.threshold) return compact_candidates(scope, acc, at, out, found.count);
    }
    auto const bounds = scope.tiles.of(acc.id);
    if (counted_ != counted{acc.id, at.key, true} || !std::is_same_v<Keep, keep_all>)
      count_by_tile(scope, acc, at.key, keep);
    forget();
    auto const written = place(std::span{tile_counts_}.subspan(bounds.first, bounds.count()), at.ties);
    scope.over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      auto const end = t + 1 < bounds.last ? tile_counts_[t + 1].above : std::uint64_t{written};
      host_kernels::write_kept(values, size, at.key, keep, tile_counts_[t],
                               std::min<std::uint64_t>(end, out.indices.size()), out,
                               [&](std::size_t i) { return static_cast<index_type>(scope.tiles[t].begin + i); });
    });
    return written;
  }

  template <class Body>
  index_type take_candidates(host_scope const& scope, accumulator_ref const acc, selection_span out,
                             Body const& body) noexcept {
    for (int w = 0; w < scope.team.size(); ++w) count_of(w) = {scope.found.of(acc, w).values.size(), 0};
    index_type const total = place(worker_counts_, 0);
    scope.team.run(total, [&](int worker) {
      auto const mine = scope.found.of(acc, worker);
      std::uint64_t const to = std::min<std::uint64_t>(count_of(worker).above, out.indices.size());
      std::uint64_t const count = std::min<std::uint64_t>(mine.values.size(), out.indices.size() - to);
      std::copy_n(mine.indices.data(), count, out.indices.data() + to);
      for (std::uint64_t i = 0; i < count; ++i) out.values[to + i] = body(mine.values[i]);
    });
    return total;
  }

 private:
  using split = host_kernels::split_keys::result;

  /// Range of keys that contains a rank (the largest key has rank 1). `tie`: at least `wanted` elements share one key.
  struct ranked_range {
    key_type low;
    key_type high;
    index_type wanted;
    bool tie = false;
  };

  struct counted {  // segment and key of tile_counts_
    std::uint64_t segment = 0;
    key_type key = 0;
    bool valid = false;
    friend bool operator==(counted const&, counted const&) = default;
  };

  [[nodiscard]] kept& count_of(int worker) noexcept { return worker_counts_[static_cast<std::size_t>(worker)]; }
  [[nodiscard]] split& split_of(int worker) noexcept { return worker_splits_[static_cast<std::size_t>(worker)]; }

  /// Searches few candidates directly. Of many, packs and searches those between two sampled keys, which almost always
  /// bracket the answer. Cost: one read of the candidates' values, at most four.
  [[nodiscard]] threshold kth_of_candidates(host_scope const& scope, accumulator_ref const acc, index_type k,
                                            std::uint64_t count) noexcept {
    auto const lowest = scope.found.candidate_threshold_of(acc.id);
    if (k == 0) return {infinite_key - 1, 0};
    if (count < k) return {lowest - 1, 0};
    if (count <= host_kernels::few_candidates) {
      std::uint64_t taken = 0;
      for (int w = 0; w < scope.team.size(); ++w)
        taken += pack(scope, acc, w, {lowest, infinite_key - 1}, taken, scope.keys.size() - taken).inside;
      return kth_of(scope.level, scope.keys.first(taken), k);
    }
    auto const between = bracket_of_candidates(scope, acc, k, count);
    auto const capacity = scope.keys.size() / static_cast<std::size_t>(scope.team.size());
    scope.team.run(count, [&](int worker) {
      split_of(worker) = pack(scope, acc, worker, between, static_cast<std::uint64_t>(worker) * capacity, capacity);
    });
    split all;
    for (int w = 0; w < scope.team.size(); ++w) {
      auto const& part = split_of(w);
      std::copy_n(scope.keys.data() + static_cast<std::size_t>(w) * capacity, part.inside,
                  scope.keys.data() + all.inside);
      all = {all.above + part.above, all.inside + part.inside, all.complete && part.complete};
    }
    if (all.complete && all.above < k && k <= all.above + all.inside)
      return kth_of(scope.level, scope.keys.first(all.inside), static_cast<index_type>(k - all.above));
    return histograms_.search({lowest, infinite_key - 1, k}, scope.team, [&](auto const& counter) {
      scope.team.run(count, [&](int worker) {
        auto const add = counter(worker);
        for (float const value : scope.found.of(acc, worker).values) add(magnitude_key(value));
      });
    });
  }

  /// Writes a worker's candidate keys within a range to scope.keys, at most `capacity` from `at` on.
  [[nodiscard]] static split pack(host_scope const& scope, accumulator_ref const acc, int worker,
                                  std::pair<key_type, key_type> const between, std::uint64_t at,
                                  std::uint64_t capacity) noexcept {
    auto const from = scope.found.of(acc, worker).values;
    return host_kernels::run<host_kernels::split_keys>(scope.level, from.data(), from.size(), between.first,
                                                       between.second, scope.keys.data() + at, capacity);
  }

  /// The threshold that keeps k of these keys. @pre 1 <= k <= keys.size()
  [[nodiscard]] static threshold kth_of(simd level, std::span<key_type const> keys, index_type k) noexcept {
    auto const key = host_kernels::run<host_kernels::kth_key>(level, keys.data(), keys.size(), std::uint64_t{k});
    auto const count = [&](key_type least) {
      return static_cast<index_type>(
          host_kernels::run<host_kernels::count_least>(level, keys.data(), keys.size(), least));
    };
    auto const above = count(key_above(key));
    return count(key) == k ? threshold{key - 1, 0} : threshold{key, k - above};
  }

  /// Two keys that bracket the k-th largest candidate, by bracket_deviations to each side.
  [[nodiscard]] static std::pair<key_type, key_type> bracket_of_candidates(host_scope const& scope,
                                                                           accumulator_ref const acc, index_type k,
                                                                           std::uint64_t count) noexcept {
    auto const wanted = std::clamp(count / host_kernels::bracket_share, host_kernels::least_bracket_samples,
                                   host_kernels::most_bracket_samples);
    auto const size = std::min<std::uint64_t>({count, scope.keys.size(), wanted});
    std::size_t taken = 0;
    std::uint64_t passed = 0;
    for (int w = 0; w < scope.team.size(); ++w) {
      auto const mine = scope.found.of(acc, w).values;
      for (; taken < size && count * taken / size < passed + mine.size(); ++taken)
        scope.keys[taken] = magnitude_key(mine[count * taken / size - passed]);
      passed += mine.size();
    }
    double const share = static_cast<double>(k) / static_cast<double>(count);
    double const rank = share * static_cast<double>(size);
    double const margin = host_kernels::bracket_deviations * std::sqrt(rank * std::max(0.0, 1 - share)) + 4;
    auto const ranked = [&](double place, key_type beyond) {
      if (place < 1 || place > static_cast<double>(size)) return beyond;
      return host_kernels::run<host_kernels::kth_key>(scope.level, static_cast<key_type const*>(scope.keys.data()),
                                                      taken, static_cast<std::uint64_t>(place));
    };
    key_type const high = ranked(std::floor(rank - margin), infinite_key - 1);
    return {ranked(std::ceil(rank + margin), scope.found.candidate_threshold_of(acc.id)), high};
  }

  /// Counts a segment's elements above a key and equal to it, by tile and in total. Cost: one pass.
  template <class Keep>
  kept count_by_tile(host_scope const& scope, accumulator_ref const acc, key_type key, Keep const& keep) {
    scope.over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      tile_counts_[t] = host_kernels::run<host_kernels::count_tile_kept>(scope.level, values, size, key, keep);
    });
    counted_ = {acc.id, key, true};
    kept total;
    for (auto t = scope.tiles.of(acc.id).first; t < scope.tiles.of(acc.id).last; ++t)
      total = {total.above + tile_counts_[t].above, total.equal + tile_counts_[t].equal};
    return total;
  }

  /// True if the tiles have been counted for this threshold, and few of them have entries: the others need no read.
  [[nodiscard]] bool lie_in_few_tiles(host_scope const& scope, accumulator_ref const acc, threshold at) const noexcept {
    if (at.key == 0 || counted_ != counted{acc.id, at.key, true}) return false;
    auto const bounds = scope.tiles.of(acc.id);
    std::uint64_t with_entries = 0, ties = at.ties;
    for (auto const& each : std::span{tile_counts_}.subspan(bounds.first, bounds.count())) {
      with_entries += each.above > 0 || (each.equal > 0 && ties > 0) ? 1 : 0;
      ties -= std::min(each.equal, ties);
    }
    return with_entries <= bounds.count() / 8;
  }

  /// If candidates do not suffice, mostly because of ties: counting passes at sampled keys find the tie or narrow the
  /// range.
  [[nodiscard]] ranked_range probe_ties(host_scope const& scope, accumulator_ref const acc, ranked_range range) {
    auto const k = range.wanted;
    auto const keys = draw_sample(scope, acc, host_kernels::tie_samples, 0, host_kernels::from_memory{acc}).keys();
    std::sort(keys.begin(), keys.end(), std::greater{});
    auto const rank =
        static_cast<std::ptrdiff_t>(static_cast<double>(keys.size()) * k / static_cast<double>(acc.values.size()));
    for (int pass = 0; pass < host_kernels::tie_passes; ++pass) {
      auto const first = std::partition_point(keys.begin(), keys.end(), [&](key_type key) { return key > range.high; });
      auto const last = std::partition_point(first, keys.end(), [&](key_type key) { return key >= range.low; });
      if (first == last) break;
      key_type const probe = *std::clamp(keys.begin() + rank, first, last - 1);
      auto const total = count_by_tile(scope, acc, probe, keep_all{});
      std::uint64_t const above = total.above - (k - range.wanted);  // without those above range.high
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

  /// Converts counts to write positions and taken ties; returns the total.
  [[nodiscard]] static index_type place(std::span<kept> parts, index_type ties) noexcept {
    std::uint64_t written = 0;
    for (kept& part : parts) {
      auto const taken = std::min<std::uint64_t>(part.equal, ties);
      auto const above = std::exchange(part.above, written);
      part.equal = taken;
      written += above + taken;
      ties -= static_cast<index_type>(taken);
    }
    return static_cast<index_type>(written);
  }

  index_type compact_candidates(host_scope const& scope, accumulator_ref const acc, threshold const at,
                                selection_span out, std::uint64_t work) noexcept {
    scope.team.run(work, [&](int worker) {
      auto const mine = scope.found.of(acc, worker).values;
      count_of(worker) =
          host_kernels::run<host_kernels::count_candidates>(scope.level, mine.data(), mine.size(), at.key);
    });
    auto const written = place(worker_counts_, at.ties);
    scope.team.run(work, [&](int worker) {
      auto const mine = scope.found.of(acc, worker);
      auto const end = worker + 1 < scope.team.size() ? count_of(worker + 1).above : std::uint64_t{written};
      host_kernels::run<host_kernels::write_candidates>(
          scope.level, mine.values.data(), mine.indices.data(), mine.values.size(), at.key, count_of(worker),
          std::min<std::uint64_t>(end, out.indices.size()), out.indices.data(), out.values.data());
    });
    return written;
  }

  std::vector<kept> tile_counts_;
  counted counted_;  // what tile_counts_ belong to
  std::vector<kept> worker_counts_;
  std::vector<split> worker_splits_;
  digit_histograms histograms_;
};

}  // namespace gradsieve::detail
