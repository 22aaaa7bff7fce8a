// The passes over a segment's memory that everything else on the host is made of.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/fingerprint.hpp>
#include <gradsieve/float_environment.hpp>
#include <gradsieve/random.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_bins.hpp>
#include <gradsieve/space/host_buffer.hpp>
#include <gradsieve/space/host_candidates.hpp>
#include <gradsieve/space/host_kernels.hpp>
#include <gradsieve/space/host_sample.hpp>
#include <gradsieve/space/host_team.hpp>
#include <gradsieve/space/host_tiles.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve {

/// A "pass" reads every element of its segment once; passes run on the whole team, give the same answer for any team,
/// and allocate nothing. Not for concurrent use.
class host_passes {
 public:
  using statistics = host_kernels::statistics;

  host_passes(int threads, std::uint64_t n, simd limit)
      : team_{threads}, simd_{std::min(host_kernels::best_simd(), limit)}, n_{n} {}

  /// Prepares for segments that are disjoint and in order. What lies between them, or in a hole, is accumulated
  /// but never selected from; accumulators in holes must be zero when selectors look. `expected`: entries that a
  /// step selects at most. Allocates: 56 bytes a tile, and the candidate lists a worker.
  /// `bins`: their length in each segment, for a selector that has them. What they keep is theirs to say, so a worker's
  /// list then has room for all its elements: address space for 8 bytes an element, of which what is used is touched;
  /// and 8 bytes an element of a tile and worker more.
  void plan(std::span<segment const> segments, std::span<range const> holes, std::uint64_t expected,
            std::span<std::uint32_t const> bins = {}) {
    tiles_.plan(n_, segments, holes, bins);
    bins_.assign(bins.begin(), bins.end());
    std::size_t longest = 0;
    for (auto const each : bins) longest = std::max<std::size_t>({longest, each, host_kernels::tile_size});
    bin_room_ = bins.empty() ? 0 : longest + host_kernels::group;
    bin_scores_ = host_buffer<float>(bin_room_ * static_cast<std::size_t>(team_.size()));
    bin_keys_ = host_buffer<key_type>(bin_scores_.size());
    bin_marks_.assign(bins.empty() ? 0 : host_kernels::mark_words(bin_room_) * static_cast<std::size_t>(team_.size()),
                      0);
    tile_statistics_.assign(tiles_.size(), {});
    std::vector<std::uint64_t> shares;
    for (int worker = 0; !bins.empty() && worker < team_.size(); ++worker) {
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      shares.push_back(begin_of(end) - begin_of(begin));
    }
    found_.plan(team_.size(), segments.size(), std::min(n_, 2 * expected + 65536), shares);
    samples_ = host_buffer<key_type>(std::min<std::uint64_t>(n_, most_samples) + host_kernels::group);
    worker_counts_.assign(static_cast<std::size_t>(team_.size()), {});
  }

  // ---- A step's first pass ---------------------------------------------------------------------------------

  /// Enters a gradient into the residual's states, in one read of both and one write. In the same pass: the
  /// statistics of every segment if `measure`, and the elements whose key reaches `lower[segment]` (0: none
  /// wanted) as the segment's candidates. Before an element is entered, what is `owed` of it leaves. Returns the
  /// number of elements that were not finite. Cost: 8 bytes read and 4 written per element and state.
  template <class Residual, class T, std::size_t States>
  std::uint64_t accumulate(Residual const& policy, std::array<float*, States> const& states,
                           std::span<T const> gradient, float factor, bool measure, std::span<key_type const> lower,
                           selection_view owed = {}) {
    found_.start(lower);
    ++epoch_;
    measured_ = measure;
    team_.run(n_, [&](int worker) {
      auto& list = found_.list_of(worker);
      std::uint64_t bad = 0;
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      auto due = between(owed, begin_of(begin), begin_of(end));
      for (auto t = begin; t < end; ++t) {
        auto const& [first, size, segment_id, hole, position] = tiles_[t];
        bool const outside = hole || segment_id == host_tiles::no_segment;
        if (measure && outside) tile_statistics_[t] = {};
        bad += host_kernels::run<host_kernels::accumulate_tile>(
            simd_, policy, advanced(states, first), gradient.data() + first, factor, std::size_t{size}, first,
            outside ? 0 : lower[segment_id], &list, &due, measure && !outside ? &tile_statistics_[t] : nullptr);
      }
      count_of(worker).above = bad;
    });
    return total_above();
  }

  /// accumulate() for a selector that has bins: a segment's candidates are what it keeps there, of the segments with
  /// lower != 0. @pre plan() was told the bins.
  template <class Chosen, class Residual, class T, std::size_t States>
  std::uint64_t accumulate_bins(Chosen const& chosen, std::span<segment const> segments, Residual const& policy,
                                std::array<float*, States> const& states, std::span<T const> gradient, float factor,
                                std::uint64_t step, std::span<key_type const> lower, selection_view owed) {
    found_.start(lower);
    ++epoch_;
    measured_ = false;
    team_.run(n_, [&](int worker) {
      auto& list = found_.list_of(worker);
      auto const room = static_cast<std::size_t>(worker) * bin_room_;
      auto* const marks = bin_marks_.data() + static_cast<std::size_t>(worker) * host_kernels::mark_words(bin_room_);
      host_kernels::bin_scratch const scratch{bin_scores_.data() + room, bin_keys_.data() + room, marks};
      std::uint64_t bad = 0;
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      auto due = between(owed, begin_of(begin), begin_of(end));
      for (auto t = begin; t < end; ++t) {
        auto const& [first, size, segment_id, hole, position] = tiles_[t];
        if (hole || segment_id == host_tiles::no_segment || lower[segment_id] == 0) {
          bad += host_kernels::run<host_kernels::accumulate_tile>(
              simd_, policy, advanced(states, first), gradient.data() + first, factor, std::size_t{size}, first,
              key_type{0}, &list, &due, static_cast<statistics*>(nullptr));
          tile_statistics_[t] = {};
          continue;
        }
        auto const& whole = segments[segment_id];
        auto const elements = tiles_.elements_of(segment_id);
        host_kernels::binned_tile const tile{bins_[segment_id], first - whole.offset, position, elements,
                                             whole.k,           mix(step) % elements};
        auto const sums = host_kernels::run<host_kernels::accumulate_bins>(
            simd_, chosen, policy, advanced(states, first), gradient.data() + first, factor, std::size_t{size}, first,
            tile, scratch, &list, &due);
        bad += sums.bad;
        tile_statistics_[t] = {sums.sum_of_maxima, 0, 0, sums.bins};
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

  /// Lets sample() look at what accumulate() would write, for as long as `body` runs; calls `settle` before it looks.
  template <class Residual, class T, std::size_t States, class Settle, class Body>
  void before_accumulate(Residual const& policy, std::array<float*, States> const& states, std::span<T const> gradient,
                         float factor, Settle const& settle, Body const& body) {
    auto const at = [&](std::uint64_t i) {
      element_state<States> now{};
      for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
      enter_one(policy, multiply(to_float(gradient[i]), factor), now);
      return now[0];
    };
    struct reset {
      peek& what;
      ~reset() { what = {}; }
    } const afterwards{peek_};
    peek_ = {&at, [](void const* context, std::uint64_t i) { return (*static_cast<decltype(at) const*>(context))(i); },
             &settle, [](void const* context) { (*static_cast<Settle const*>(context))(); }};
    body();
  }

  /// A number that differs where another build or processor rounds otherwise than this one: made of what the accumulate
  /// pass gives for a few elements.
  template <class Residual>
  [[nodiscard]] std::uint8_t arithmetic(Residual const& policy) const noexcept {
    float_environment const mode;
    constexpr std::size_t count = 64;
    std::array<std::array<float, count>, Residual::states> memory;
    std::array<float*, Residual::states> states{};
    std::array<float, count> gradient;
    for (std::size_t i = 0; i < count; ++i) gradient[i] = static_cast<float>(mix(i) >> 40) * 0x1p-24f - 0.5f;
    for (std::size_t s = 0; s < states.size(); ++s) {
      states[s] = memory[s].data();
      for (std::size_t i = 0; i < count; ++i)
        memory[s][i] = static_cast<float>(mix(i + count * (s + 1)) >> 40) * 0x1p-20f - 7.5f;
    }
    host_kernels::run<host_kernels::enter_some>(simd_, policy, states, std::as_const(gradient).data(), 0.7f, count);
    fingerprint all;
    for (auto const& each : memory)
      for (float const x : each) all.add(x);
    return static_cast<std::uint8_t>(all.value() ^ all.value() >> 32);
  }

  /// Candidates of all segments with lower != 0, from memory. Cost: one pass over those segments.
  void collect(std::span<float const> accumulator, std::span<key_type const> lower) {
    found_.start(lower);
    ++epoch_;
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

  /// Candidates of one segment anew, for a key that suits it better; those of the last call are kept.
  /// Cost: one pass over the segment.
  void collect_again(accumulator_ref const acc, key_type lower) {
    found_.start_again(acc, lower);
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

  /// Mean of the largest magnitudes of a segment's bins. @pre accumulate_bins(). Cost: O(n / 4096).
  [[nodiscard]] float mean_of_maxima(accumulator_ref const acc) const noexcept {
    statistics total;
    for (auto t = tiles_.of(acc.id).first; t < tiles_.of(acc.id).last; ++t) total.add(tile_statistics_[t]);
    return total.nonzero == 0 ? 0.0f : static_cast<float>(total.sum_abs / static_cast<double>(total.nonzero));
  }

  /// Calls body(value) for each of these values, which replaces it.
  template <class Body>
  void replace(view<float> const values, Body const& body) const noexcept {
    team_.run(values.size(), [&](int worker) {
      auto const [begin, end] = team_.part(values.size(), worker);
      for (auto i = begin; i < end; ++i) values[i] = body(values[i]);
    });
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
  /// pass will write. At most 2^20 samples. Cost: `count` scattered reads. The sample lives until the next call.
  [[nodiscard]] key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    std::uint64_t const n = acc.values.size();
    count = std::min({count, n, most_samples});
    if (peek_.settle != nullptr) peek_.settle(peek_.settle_context);
    auto const taken = samples_.first(count);
    sample_places const places{n, count, mix(seed ^ mix(acc.step ^ mix(acc.first)))};
    team_.run(count, [&](int worker) {
      auto const [begin, end] = team_.part(count, worker);
      for (auto j = begin; j < end; ++j) {
        std::uint64_t const i = places[j];
        if (peek_.at == nullptr)
          taken[j] = magnitude_key(acc.values[i]);
        else
          taken[j] = tiles_.in_hole(acc.first + i) ? 0 : magnitude_key(peek_.at(peek_.at_context, acc.first + i));
      }
    });
    return key_sample{taken};
  }

 protected:
  static constexpr std::uint64_t most_samples = std::uint64_t{1} << 20;
  using kept = host_kernels::kept;

  struct alignas(64) worker_count : kept {  // a cache line each
    worker_count& operator=(kept const& count) noexcept {
      kept::operator=(count);
      return *this;
    }
  };

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

  host_team team_;
  simd simd_;
  std::uint64_t n_;
  host_tiles tiles_;
  host_candidates found_;
  std::vector<statistics> tile_statistics_;
  std::vector<worker_count> worker_counts_;
  host_buffer<key_type> samples_;
  std::vector<std::uint32_t> bins_;  // their length in each segment, or empty
  std::size_t bin_room_ = 0;         // of one worker
  host_buffer<float> bin_scores_;
  host_buffer<key_type> bin_keys_;
  std::vector<host_kernels::mark_word> bin_marks_;
  std::uint64_t epoch_ = 0;  // what was counted in another one may not be true any more
  bool measured_ = false;    // tile_statistics_ are those of the accumulator

 private:
  struct peek {
    void const* at_context = nullptr;
    float (*at)(void const*, std::uint64_t) = nullptr;
    void const* settle_context = nullptr;
    void (*settle)(void const*) = nullptr;
  };

  template <std::size_t States>
  [[nodiscard]] static std::array<float*, States> advanced(std::array<float*, States> states,
                                                           std::uint64_t by) noexcept {
    for (auto& state : states) state += by;
    return states;
  }

  /// Where a tile begins; behind the last one, the end.
  [[nodiscard]] std::uint64_t begin_of(std::uint64_t t) const noexcept {
    return t < tiles_.size() ? tiles_[t].begin : n_;
  }

  /// The entries of an index-ordered list for elements in [begin, end).
  [[nodiscard]] static host_kernels::owed_list between(selection_view const all, std::uint64_t begin,
                                                       std::uint64_t end) noexcept {
    auto const first = std::lower_bound(all.indices.begin(), all.indices.end(), begin);
    auto const last = std::lower_bound(first, all.indices.end(), end);
    auto const skipped = first - all.indices.begin();
    return {all.indices.data() + skipped, all.values.data() + skipped, static_cast<std::uint64_t>(last - first)};
  }

  void append(float const* values, std::uint64_t t, key_type lower, host_candidates::list& list) const noexcept {
    host_kernels::run<host_kernels::append_tile>(simd_, values, std::size_t{tiles_[t].size}, tiles_[t].begin, lower,
                                                 &list);
  }

  peek peek_;
};

}  // namespace gradsieve
