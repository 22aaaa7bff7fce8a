// The host space: one compressor's scratch, and the passes over memory that policies are made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/random.hpp>
#include <gradsieve/search.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_candidates.hpp>
#include <gradsieve/space/host_kernels.hpp>
#include <gradsieve/space/host_team.hpp>
#include <gradsieve/space/host_tiles.hpp>
#include <gradsieve/space/host_updates.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve {

class host_workspace;

/// The memory and the cores of this machine. `threads` 0: as many as OpenMP gives; one without OpenMP.
/// Results do not depend on it.
struct host {
  using workspace = host_workspace;
  int threads = 0;
  friend bool operator==(host const&, host const&) = default;
};

/// Keeps every element: the default of the passes that can be restricted.
struct keep_all {
  constexpr bool operator()(float) const noexcept { return true; }
};

/// Scratch of one compressor. A "pass" reads every element of its segment once; passes run on the whole team,
/// give the same answer for any team, and allocate nothing. Not for concurrent use.
class host_workspace {
 public:
  using statistics = host_kernels::statistics;
  template <class T>
  using buffer = host_buffer<T>;

  host_workspace(host where, std::uint64_t n) : team_{where.threads}, where_{where}, n_{n} {}

  [[nodiscard]] host const& where() const noexcept { return where_; }

  /// Prepares for segments that are disjoint and in order. What lies between them, or in a hole, is accumulated
  /// but never selected from; accumulators in holes must be zero when selectors look. `expected`: entries that a
  /// step selects at most. Allocates: 80 bytes a tile, 8 kB and the candidate lists a worker.
  void plan(std::span<segment const> segments, std::span<range const> holes, std::uint64_t expected) {
    tiles_.plan(n_, segments, holes);
    tile_statistics_.assign(tiles_.size(), {});
    tile_counts_.assign(tiles_.size(), {});
    found_.plan(team_.size(), segments.size(), std::min(n_, 2 * expected + 65536));
    histograms_ = host_buffer<std::uint32_t>(static_cast<std::size_t>(team_.size() + 1) * digit_search::bins);
    samples_ = host_buffer<key_type>(std::min<std::uint64_t>(n_, most_samples) + host_kernels::group);
    worker_counts_.assign(static_cast<std::size_t>(team_.size()), {});
  }

  // ---- A step's first pass ---------------------------------------------------------------------------------

  /// Enters a gradient into the residual's states, in one read of both and one write. In the same pass: the
  /// statistics of every segment if `measure`, and the elements whose key reaches `lower[segment]` (0: none
  /// wanted) as the segment's candidates. Returns the number of elements that were not finite.
  /// Cost: 8 bytes read and 4 written per element and state.
  template <class Residual, class T, std::size_t States>
  std::uint64_t accumulate(Residual const& policy, std::array<float*, States> const& states,
                           std::span<T const> gradient, float factor, bool measure, std::span<key_type const> lower) {
    found_.start(lower);
    measured_ = measure;
    team_.run(n_, [&](int worker) {
      auto& list = found_.list_of(worker);
      std::uint64_t bad = 0;
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      for (auto t = begin; t < end; ++t) {
        auto const& [first, size, segment_id, hole] = tiles_[t];
        bool const outside = hole || segment_id == host_tiles::no_segment;
        if (measure && outside) tile_statistics_[t] = {};
        bad += host_kernels::run<host_kernels::accumulate_tile>(
            simd_, policy, advanced(states, first), gradient.data() + first, factor, std::size_t{size}, first,
            outside ? 0 : lower[segment_id], &list, measure && !outside ? &tile_statistics_[t] : nullptr);
      }
      count_of(worker).above = bad;
    });
    return total_above();
  }

  /// What accumulate() would return, without changing anything. Cost: one read of gradient and states.
  template <class Residual, class T, std::size_t States>
  std::uint64_t count_non_finite(Residual const& policy, std::array<float*, States> const& states,
                                 std::span<T const> gradient, float factor) {
    team_.run(gradient.size(), [&](int worker) {
      auto const [begin, end] = team_.part(gradient.size(), worker);
      count_of(worker).above = host_kernels::run<host_kernels::count_bad>(
          simd_, policy, advanced(states, begin), gradient.data() + begin, factor, std::size_t{end - begin});
    });
    return total_above();
  }

  /// Lets sample() look at what accumulate() would write, for as long as `body` runs.
  template <class Residual, class T, std::size_t States, class Body>
  void before_accumulate(Residual const& policy, std::array<float*, States> const& states, std::span<T const> gradient,
                         float factor, Body const& body) {
    auto const at = [&](std::uint64_t i) {
      std::array<float, States> now{};
      for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
      host_kernels::enter_one(policy, multiply(to_float(gradient[i]), factor), now);
      return now[0];
    };
    peek_ = {&at, [](void const* context, std::uint64_t i) { return (*static_cast<decltype(at) const*>(context))(i); }};
    body();
    peek_ = {};
  }

  /// Candidates of all segments with lower != 0, from memory. Cost: one pass over those segments.
  void collect(std::span<float const> accumulator, std::span<key_type const> lower) {
    found_.start(lower);
    std::uint64_t active = 0;
    for (std::size_t s = 0; s < lower.size(); ++s) active += lower[s] != 0 ? tiles_.of(s).count() : 0;
    team_.run(active * host_kernels::tile_size, [&](int worker) {
      auto [begin, end] = team_.part(active, worker);
      for (std::size_t s = 0; s < lower.size() && end > 0; ++s) {
        if (lower[s] == 0) continue;
        auto const [first, last] = tiles_.of(s);
        for (auto t = first + std::min(begin, last - first); t < first + std::min(end, last - first); ++t)
          append(accumulator.data() + tiles_[t].begin, t, lower[s], found_.list_of(worker));
        begin -= std::min(begin, last - first);
        end -= std::min(end, last - first);
      }
    });
  }

  /// Candidates of one segment anew, for a key that suits it better. @pre Called for segments in rising order.
  /// Cost: one pass over the segment.
  void collect_again(accumulator_ref const acc, key_type lower) {
    found_.start_again(acc.id, lower);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t, int worker) {
      append(values, t, lower, found_.list_again(worker));
    });
  }

  // ---- What selectors ask ----------------------------------------------------------------------------------

  /// A segment's candidates. Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept { return found_.collected(acc); }

  /// Sums over a segment. Cost: one pass, or O(n / 4096) if the accumulate pass has measured already.
  [[nodiscard]] statistics measure(accumulator_ref const acc) {
    if (!measured_)
      over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
        tile_statistics_[t] = host_kernels::run<host_kernels::measure_tile>(simd_, values, size);
      });
    statistics total;
    for (auto t = tiles_.of(acc.id).first; t < tiles_.of(acc.id).last; ++t) total.add(tile_statistics_[t]);
    return total;
  }

  /// Mean of |x| over a segment, 0 if it is empty. Cost: as measure().
  [[nodiscard]] float mean_abs(accumulator_ref const acc) {
    auto const n = static_cast<double>(acc.values.size());
    return acc.values.empty() ? 0.0f : static_cast<float>(measure(acc).sum_abs / n);
  }

  /// Number of elements whose key is at least `key`. Cost: one pass.
  [[nodiscard]] std::uint64_t count_at_least(accumulator_ref const acc, key_type key) {
    clear_counts();
    over_tiles(acc, [&](std::uint64_t, float const* values, std::size_t size, int worker) {
      count_of(worker).above += host_kernels::run<host_kernels::count_tile>(simd_, values, size, key);
    });
    return total_above();
  }

  /// Keys of `count` elements, one at a random place in each of `count` equal strips; all of them if `count`
  /// reaches the size. Depends on `seed`, step and segment only. Before the accumulate pass it sees what that
  /// pass will write. At most 2^20 samples. Cost: `count` scattered reads. The span lives until the next call.
  [[nodiscard]] std::span<key_type> sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    std::uint64_t const n = acc.values.size();
    count = std::min({count, n, most_samples});
    auto const taken = samples_.first(count);
    std::uint64_t const stream = mix(seed ^ mix(acc.step ^ mix(acc.first)));
    team_.run(count, [&](int worker) {
      auto const [begin, end] = team_.part(count, worker);
      for (auto j = begin; j < end; ++j) {
        std::uint64_t const from = n * j / count;
        std::uint64_t const width = n * (j + 1) / count - from;
        std::uint64_t const i = from + (width == 1 ? 0 : mix(stream + j) % width);
        if (peek_.at == nullptr)
          taken[j] = magnitude_key(acc.values[i]);
        else
          taken[j] = tiles_.in_hole(acc.first + i) ? 0 : magnitude_key(peek_.at(peek_.context, acc.first + i));
      }
    });
    return taken;
  }

  /// The cut that keeps exactly k elements of a segment, or all that are not zero if those are fewer. From the
  /// candidates where they suffice: O(candidates); else at most three passes. `keep` restricts the choice.
  /// @pre At least k elements, or all that are not zero, have a key of `low` or more; low >= 1.
  template <class Keep = keep_all>
  [[nodiscard]] cut kth_largest(accumulator_ref const acc, index_type k, key_type low = 1, Keep const& keep = {}) {
    auto const found = collected(acc);
    constexpr bool unrestricted = std::is_same_v<Keep, keep_all>;
    if (unrestricted && found.complete && (found.count >= k || found.lower == 1))
      return kth_of_candidates(acc, k, found.count);
    if (unrestricted && found.count >= k) low = std::max(low, found.lower);
    digit_search search{low, infinite_key - 1, k};
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
  /// From the candidates where they suffice, else two passes.
  template <class Keep = keep_all>
  index_type compact(accumulator_ref const acc, cut const at, selection_span out, Keep const& keep = {}) {
    auto const found = collected(acc);
    key_type const needed = at.ties > 0 ? at.key : at.key + 1;
    if (std::is_same_v<Keep, keep_all> && found.complete && needed >= found.lower)
      return compact_candidates(acc, at, out, found.count);
    auto const [first, last] = tiles_.of(acc.id);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      tile_counts_[t] = host_kernels::count_kept(values, size, at.key, keep);
    });
    auto const written = place(std::span{tile_counts_}.subspan(first, last - first), at.ties);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
      host_kernels::write_kept(values, size, at.key, keep, tile_counts_[t], out,
                               [&](std::size_t i) { return static_cast<index_type>(tiles_[t].begin + i); });
    });
    return written;
  }

  // ---- What stores and exchanges ask -----------------------------------------------------------------------

  /// out[i] = values[indices[i]]. Cost: O(indices), scattered.
  void gather(std::span<float const> values, std::span<index_type const> indices, std::span<float> out) const noexcept {
    team_.run(indices.size(), [&](int worker) {
      auto const [begin, end] = team_.part(indices.size(), worker);
      for (auto i = begin; i < end; ++i) out[i] = values[indices[i]];
    });
  }

  /// Calls body(i, states of element i) for i in [begin, end), and stores the states. Cost: one pass.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::uint64_t begin, std::uint64_t end, Body const& body) {
    team_.run(end - begin, [&](int worker) {
      auto const [from, to] = team_.part(end - begin, worker);
      for (auto i = begin + from; i < begin + to; ++i) update_one(states, i, i, body);
    });
  }

  /// Calls body(position, states of element indices[position]) for every position, and stores the states.
  /// Cost: O(indices), scattered.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::span<index_type const> indices, Body const& body) {
    team_.run(indices.size(), [&](int worker) {
      auto const [from, to] = team_.part(indices.size(), worker);
      for (auto p = from; p < to; ++p) update_one(states, indices[p], p, body);
    });
  }

  /// Sum of x^2 over all n elements, ignoring what is not finite; in fixed order. Cost: one read.
  template <class T>
  [[nodiscard]] double sum_squares(std::span<T const> values) {
    team_.run(n_, [&](int worker) {
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      for (auto t = begin; t < end; ++t)
        tile_statistics_[t].sum_squares = host_kernels::sum_squares(values.data() + tiles_[t].begin, tiles_[t].size);
    });
    measured_ = false;
    double total = 0;
    for (auto const& each : tile_statistics_) total += each.sum_squares;
    return total;
  }

  /// As host_updates::apply(): the sum of updates over divisor, into `out`. Returns the size of their union.
  template <class T>
  std::uint64_t apply(std::span<selection_view const> updates, float divisor, std::span<T> out) {
    return updates_.apply(team_, updates, divisor, out);
  }

  /// As host_updates::merge(): the union of the updates' indices.
  std::uint64_t merge(std::span<selection_view const> updates, std::span<index_type> out) {
    return updates_.merge(updates, n_, out);
  }

  /// Room for apply() and merge(). Allocates.
  void reserve_updates(std::size_t updates) { updates_.reserve(team_, updates); }

  /// Zeros, written by the threads that will use them.
  void fill_zero(std::span<float> memory) const noexcept {
    team_.run(memory.size(), [&](int worker) {
      auto const [begin, end] = team_.part(memory.size(), worker);
      std::fill_n(memory.data() + begin, end - begin, 0.0f);
    });
  }

 private:
  static constexpr std::uint64_t most_samples = std::uint64_t{1} << 20;
  using kept = host_kernels::kept;

  struct alignas(64) worker_count : kept {  // a cache line each
    worker_count& operator=(kept const& count) noexcept {
      kept::operator=(count);
      return *this;
    }
  };

  struct peek {
    void const* context = nullptr;
    float (*at)(void const*, std::uint64_t) = nullptr;
  };

  template <std::size_t States>
  [[nodiscard]] static std::array<float*, States> advanced(std::array<float*, States> states,
                                                           std::uint64_t by) noexcept {
    for (auto& state : states) state += by;
    return states;
  }

  void append(float const* values, std::uint64_t t, key_type lower, host_candidates::list& list) const noexcept {
    host_kernels::run<host_kernels::append_tile>(simd_, values, std::size_t{tiles_[t].size}, tiles_[t].begin, lower,
                                                 &list);
  }

  [[nodiscard]] worker_count& count_of(int worker) noexcept { return worker_counts_[static_cast<std::size_t>(worker)]; }

  void clear_counts() noexcept { std::fill(worker_counts_.begin(), worker_counts_.end(), worker_count{}); }

  [[nodiscard]] std::uint64_t total_above() const noexcept {
    std::uint64_t total = 0;
    for (auto const& each : worker_counts_) total += each.above;
    return total;
  }

  /// Calls body(tile, values, size, worker) for the tiles of a segment.
  template <class Body>
  void over_tiles(accumulator_ref const acc, Body const& body) const {
    auto const bounds = tiles_.of(acc.id);
    team_.run(acc.values.size(), [&](int worker) {
      auto const [begin, end] = team_.part(bounds.count(), worker);
      for (auto t = bounds.first + begin; t < bounds.first + end; ++t)
        body(t, acc.values.data() + (tiles_[t].begin - acc.first), tiles_[t].size, worker);
    });
  }

  /// One histogram of all candidates finds the bin, the rest is done on that bin's few.
  [[nodiscard]] cut kth_of_candidates(accumulator_ref const acc, index_type k, std::uint64_t work) noexcept {
    team_.run(work, [&](int worker) {
      auto const mine = found_.of(acc, worker).values;
      count_of(worker).above = host_kernels::run<host_kernels::largest_key>(simd_, mine.data(), mine.size());
    });
    key_type largest = found_.lower(acc.id);
    for (auto const& each : worker_counts_) largest = std::max(largest, static_cast<key_type>(each.above));
    digit_search search{found_.lower(acc.id), largest, k};
    if (search.done()) return search.result();
    clear_histograms();
    team_.run(work, [&](int worker) {
      auto const mine = found_.of(acc, worker).values;
      count_digits(search, mine.data(), mine.size(), worker, keep_all{});
    });
    search.next(merge_histograms());
    if (search.done()) return search.result();

    std::uint64_t few = 0;  // counts become places
    for (int w = 0; w < team_.size(); ++w) {
      count_of(w).above = few;
      few += histogram_of(w)[search.chosen()];
    }
    bool const fits = few <= std::min(n_, most_samples);
    if (fits)
      team_.run(work, [&](int worker) {
        auto const mine = found_.of(acc, worker).values;
        host_kernels::run<host_kernels::gather_keys>(simd_, mine.data(), mine.size(), search,
                                                     samples_.data() + count_of(worker).above);
      });
    while (!search.done()) {
      clear_histograms();
      if (fits)
        for (key_type const key : samples_.first(few)) count_digit(search, key, histogram_of(0).data());
      else
        team_.run(work, [&](int worker) {
          auto const mine = found_.of(acc, worker).values;
          count_digits(search, mine.data(), mine.size(), worker, keep_all{});
        });
      search.next(merge_histograms());
    }
    return search.result();
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

  template <std::size_t States, class Body>
  static void update_one(std::array<float*, States> const& states, std::uint64_t i, std::uint64_t name,
                         Body const& body) noexcept {
    std::array<float, States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
    body(name, now);
    for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
  }

  host_team team_;
  host where_;
  host_kernels::simd simd_ = host_kernels::best_simd();
  std::uint64_t n_;
  host_tiles tiles_;
  host_candidates found_;
  host_updates updates_;
  std::vector<statistics> tile_statistics_;
  std::vector<kept> tile_counts_;
  std::vector<worker_count> worker_counts_;
  host_buffer<std::uint32_t> histograms_;
  host_buffer<key_type> samples_;
  peek peek_;
  bool measured_ = false;  // tile_statistics_ are those of the accumulator
};

}  // namespace gradsieve
