// The host space: one compressor's scratch, and the passes over memory that policies are made of.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/search.hpp>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_kernels.hpp>
#include <gradsieve/space/host_team.hpp>
#include <gradsieve/types.hpp>

namespace gradsieve {

class host_workspace;

/// The memory and the cores of this machine. `threads` 0: as many as OpenMP gives, one without OpenMP.
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

/// Scratch of one compressor. A "pass" reads every element of its segment once; all passes run on the whole
/// team, give the same answer for any team, and allocate nothing (plan() allocates). Not for concurrent use.
class host_workspace {
 public:
  using statistics = host_kernels::statistics;
  template <class T>
  using buffer = host_buffer<T>;

  host_workspace(host where, std::uint64_t n) : team_{where.threads}, where_{where}, n_{n} {}

  [[nodiscard]] host const& where() const noexcept { return where_; }

  /// Cuts the work into tiles. `segments` are disjoint and in order; what lies between them, or in a hole, is
  /// accumulated but never selected from: holes must hold zeros when the accumulate pass has been followed up. `expected`: entries that a step selects at most. Memory: 56 bytes for each 4096
  /// elements and segment; for each worker address space (touched only as used) for 12 * `expected` bytes.
  void plan(std::span<segment const> segments, std::span<range const> holes, std::uint64_t expected) {
    holes_.assign(holes.begin(), holes.end());
    tiles_.clear();
    first_tile_.clear();
    last_tile_.clear();
    std::uint64_t at = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      add_tiles(at, segments[s].offset, no_segment);
      first_tile_.push_back(tiles_.size());
      at = segments[s].offset + segments[s].size;
      add_tiles(segments[s].offset, at, static_cast<std::uint32_t>(s));
      last_tile_.push_back(tiles_.size());
    }
    add_tiles(at, n_, no_segment);
    tile_statistics_.assign(tiles_.size(), {});
    tile_counts_.assign(tiles_.size(), {});
    lower_.assign(segments.size(), 0);

    auto const workers = static_cast<std::size_t>(team_.size());
    auto const capacity = std::min(n_, expected + expected / 2 + 65536) + host_kernels::group;
    candidate_indices_ = host_buffer<index_type>(2 * workers * capacity);
    candidate_values_ = host_buffer<float>(2 * workers * capacity);
    lists_.resize(2 * workers);
    for (std::size_t l = 0; l < lists_.size(); ++l)
      lists_[l] = {candidate_indices_.data() + l * capacity, candidate_values_.data() + l * capacity, 0, capacity};
    again_.assign(segments.size(), false);
    histograms_ = host_buffer<std::uint32_t>(workers * digit_search::bins);
    samples_ = host_buffer<key_type>(std::min<std::uint64_t>(n_, most_samples));
    non_finite_.assign(workers, 0);
  }

  // ---- A step's first pass ---------------------------------------------------------------------------------

  /// Enters a gradient into the residual's states, in one read of both and one write. In the same pass: the
  /// statistics of every segment if `measure`, and the elements whose key reaches `lower[segment]` (0: none
  /// wanted) as the segment's candidates. Returns the number of elements that were not finite; they keep their
  /// old state. Cost: 8 bytes read and 4 written per element and state.
  template <class Residual, class T, std::size_t States>
  std::uint64_t accumulate(Residual const& policy, std::array<float*, States> const& states,
                           std::span<T const> gradient, float factor, bool measure, std::span<key_type const> lower) {
    start_collecting(lower);
    measured_ = measure;
    team_.run([&](int worker) {
      auto& list = lists_[static_cast<std::size_t>(worker)];
      std::uint64_t bad = 0;
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      for (auto t = begin; t < end; ++t) {
        auto const [first, size, segment, hole] = tiles_[t];
        std::array<float*, States> here = states;
        for (auto& state : here) state += first;
        bad += host_kernels::enter(policy, here, gradient.data() + first, factor, size);
        if (measure) tile_statistics_[t] = hole ? statistics{} : host_kernels::measure(here[0], size);
        if (!hole && segment != no_segment && lower_[segment] != 0)
          host_kernels::append(here[0], size, first, lower_[segment], list);
      }
      non_finite_[static_cast<std::size_t>(worker)] = bad;
    });
    return sum(non_finite_);
  }

  /// What accumulate() would return, without changing anything. Cost: one read of gradient and states.
  template <class Residual, class T, std::size_t States>
  std::uint64_t count_non_finite(Residual const& policy, std::array<float*, States> const& states,
                                 std::span<T const> gradient, float factor) {
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part(gradient.size(), worker);
      std::array<float*, States> here = states;
      for (auto& state : here) state += begin;
      non_finite_[static_cast<std::size_t>(worker)] =
          host_kernels::enter<false>(policy, here, gradient.data() + begin, factor, end - begin);
    });
    return sum(non_finite_);
  }

  /// Lets sample() look at what accumulate() would write, for as long as `body` runs.
  template <class Residual, class T, std::size_t States, class Body>
  void before_accumulate(Residual const& policy, std::array<float*, States> const& states,
                         std::span<T const> gradient, float factor, Body const& body) {
    auto const at = [&](std::uint64_t i) {
      std::array<float, States> now{};
      for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
      host_kernels::enter_one(policy, to_float(gradient[i]) * factor, now);
      return now[0];
    };
    peek_ = {&at, [](void const* context, std::uint64_t i) { return (*static_cast<decltype(at) const*>(context))(i); }};
    body();
    peek_ = {};
  }

  /// Candidates of segments that have none yet, from memory. Cost: one pass over the segments with lower != 0.
  void collect(std::span<float const> accumulator, std::span<key_type const> lower) {
    start_collecting(lower);
    std::uint64_t active = 0;
    for (std::size_t s = 0; s < lower.size(); ++s)
      if (lower[s] != 0) active += last_tile_[s] - first_tile_[s];
    team_.run([&](int worker) {
      auto [begin, end] = team_.part(active, worker);
      auto& list = lists_[static_cast<std::size_t>(worker)];
      for (std::size_t s = 0; s < lower_.size() && end > 0; ++s) {
        if (lower_[s] == 0) continue;
        auto const count = last_tile_[s] - first_tile_[s];
        for (auto t = first_tile_[s] + std::min(begin, count); t < first_tile_[s] + std::min(end, count); ++t)
          host_kernels::append(accumulator.data() + tiles_[t].begin, tiles_[t].size, tiles_[t].begin, lower_[s], list);
        begin -= std::min(begin, count);
        end -= std::min(end, count);
      }
    });
  }

  /// Candidates of one segment anew, for a key that suits it better. @pre Called for segments in rising order.
  /// Cost: one pass over the segment.
  void collect_again(accumulator_ref const acc, key_type lower) {
    lower_[acc.id] = lower;
    again_[acc.id] = true;
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int worker) {
      host_kernels::append(values, size, tiles_[t].begin, lower, lists_[lists_.size() / 2 + static_cast<std::size_t>(worker)]);
    });
  }

  // ---- What selectors ask ----------------------------------------------------------------------------------

  /// Candidates of a segment: how many, the key they all reach, and whether they are all there are.
  struct candidates {
    std::uint64_t count = 0;
    key_type lower = 0;
    bool complete = false;
  };

  /// Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept {
    candidates found{0, lower_[acc.id], lower_[acc.id] != 0};
    for (auto const& list : lists_of(acc)) {
      auto const [begin, end] = within(list, acc);
      found.count += end - begin;
      // Which segments a full list's worker still had to walk is not kept: all later ones count as incomplete.
      if (list.complete_before < acc.first + acc.values.size()) found.complete = false;
    }
    return found;
  }

  /// Sums over a segment. Cost: one pass, or O(n / 4096) if the accumulate pass has measured already.
  [[nodiscard]] statistics measure(accumulator_ref const acc) {
    if (!measured_)
      over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size) {
        tile_statistics_[t] = host_kernels::measure(values, size);
      });
    statistics total;
    for (auto t = first_tile_[acc.id]; t < last_tile_[acc.id]; ++t) total.add(tile_statistics_[t]);
    return total;
  }

  /// Mean of |x| over a segment, 0 if it is empty. Cost: as measure().
  [[nodiscard]] float mean_abs(accumulator_ref const acc) {
    return acc.values.empty() ? 0.0f
                              : static_cast<float>(measure(acc).sum_abs / static_cast<double>(acc.values.size()));
  }

  /// Number of elements whose key is at least `key`. Cost: one pass.
  [[nodiscard]] std::uint64_t count_at_least(accumulator_ref const acc, key_type key) {
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size) {
      tile_counts_[t].above = static_cast<std::uint32_t>(host_kernels::count_at_least(values, size, key));
    });
    std::uint64_t total = 0;
    for (auto t = first_tile_[acc.id]; t < last_tile_[acc.id]; ++t) total += tile_counts_[t].above;
    return total;
  }

  /// Keys of `count` elements, one at a random place in each of `count` equal strips; all of them if `count`
  /// reaches the size. Depends on `seed`, step and segment only. Before the accumulate pass it sees what that
  /// pass will write. Cost: `count` scattered reads. Memory: at most 2^20 samples are kept.
  [[nodiscard]] std::span<key_type> sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    std::uint64_t const n = acc.values.size();
    count = std::min({count, n, std::uint64_t{samples_.size()}});
    auto const taken = samples_.first(count);
    std::uint64_t const stream = mix(seed ^ mix(acc.step ^ mix(acc.first)));
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part(count, worker);
      for (auto j = begin; j < end; ++j) {
        std::uint64_t const from = n * j / count;
        std::uint64_t const width = n * (j + 1) / count - from;
        std::uint64_t const i = from + (width == 1 ? 0 : mix(stream + j) % width);
        if (peek_.at == nullptr)
          taken[j] = magnitude_key(acc.values[i]);
        else
          taken[j] = in_hole(acc.first + i) ? 0 : magnitude_key(peek_.at(peek_.context, acc.first + i));
      }
    });
    return taken;
  }

  /// The cut that keeps exactly k elements of a segment, or all that are not zero if those are fewer. From the
  /// candidates where they suffice: O(candidates); else at most three passes. `keep` restricts the choice.
  /// @pre At least k elements, or all that are not zero, have a key of `low` or more.
  template <class Keep = keep_all>
  [[nodiscard]] cut kth_largest(accumulator_ref const acc, index_type k, key_type low = 1, Keep const& keep = {}) {
    auto const found = collected(acc);
    if (std::is_same_v<Keep, keep_all> && found.complete && (found.count >= k || found.lower == 1)) {
      digit_search search{found.lower, max_key_of_candidates(acc), k};
      while (!search.done()) {
        clear_histograms();
        team_.run([&](int worker) {
          auto const& list = lists_of(acc)[static_cast<std::size_t>(worker)];
          auto const [begin, end] = within(list, acc);
          count_digits(search, list.values + begin, end - begin, worker, keep_all{});
        });
        search.next(merge_histograms());
      }
      return search.result();
    }
    if (std::is_same_v<Keep, keep_all> && found.count >= k) low = std::max(low, found.lower);
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
      return compact_candidates(acc, at, out);
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size) {
      tile_count count;
      for (std::size_t i = 0; i < size; ++i) {
        if (!keep(values[i])) continue;
        key_type const key = magnitude_key(values[i]);
        count.above += key > at.key ? 1u : 0u;
        count.equal += key == at.key ? 1u : 0u;
      }
      tile_counts_[t] = count;
    });
    index_type written = 0;
    index_type ties = at.ties;
    for (auto t = first_tile_[acc.id]; t < last_tile_[acc.id]; ++t) {  // counts become positions
      auto const count = tile_counts_[t];
      auto const taken = std::min(count.equal, ties);
      tile_counts_[t] = {written, taken};
      written += count.above + taken;
      ties -= taken;
    }
    over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size) {
      auto place = tile_counts_[t].above;
      auto left = tile_counts_[t].equal;
      auto const stop = std::min<std::uint64_t>(t + 1 < last_tile_[acc.id] ? tile_counts_[t + 1].above : written,
                                                out.indices.size());
      for (std::size_t i = 0; i < size && place < stop; ++i) {
        key_type const key = magnitude_key(values[i]);
        if (key < at.key || (key == at.key && left == 0) || !keep(values[i])) continue;
        left -= key == at.key ? 1u : 0u;
        out.indices[place] = static_cast<index_type>(tiles_[t].begin + i);
        out.values[place++] = values[i];
      }
    });
    return written;
  }

  // ---- What stores and exchanges ask -----------------------------------------------------------------------

  /// out[i] = values[indices[i]]. Cost: O(indices), scattered.
  static void gather(std::span<float const> values, std::span<index_type const> indices, std::span<float> out) noexcept {
    for (std::size_t i = 0; i < indices.size(); ++i) out[i] = values[indices[i]];
  }

  /// Calls body(i, states of element i) for [begin, end), the whole team at work, and stores the states.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::uint64_t begin, std::uint64_t end, Body const& body) {
    team_.run([&](int worker) {
      auto const [from, to] = team_.part(end - begin, worker);
      for (auto i = begin + from; i < begin + to; ++i) update_one(states, i, body);
    });
  }

  /// Calls body(position, states of element indices[position]) for every position, and stores the states.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::span<index_type const> indices, Body const& body) {
    team_.run([&](int worker) {
      auto const [from, to] = team_.part(indices.size(), worker);
      for (auto p = from; p < to; ++p)
        update_one(states, indices[p], [&](std::uint64_t, auto& state) { body(p, state); });
    });
  }

  /// sum of x^2 over a gradient, ignoring what is not finite; in fixed order. Cost: one read.
  template <class T>
  [[nodiscard]] double sum_squares(std::span<T const> gradient) {
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part(tiles_.size(), worker);
      for (auto t = begin; t < end; ++t) {
        double total = 0;
        for (auto i = tiles_[t].begin; i < tiles_[t].begin + tiles_[t].size; ++i) {
          auto const x = static_cast<double>(to_float(gradient[i]));
          total += is_finite(static_cast<float>(x)) ? x * x : 0.0;
        }
        tile_statistics_[t].sum_squares = total;
      }
    });
    double total = 0;
    for (auto const& each : tile_statistics_) total += each.sum_squares;
    return total;
  }

  /// Overwrites `out` with (sum of the updates, one after the other) / divisor, zero where none has an entry.
  /// The sum of an element starts with the first update that has it, so every rank that applies the same
  /// updates gets the same bits. Returns the number of elements that any update has.
  /// Cost: n writes, O(entries), one tile of scratch a worker. @pre updates.size() <= cursors made by reserve().
  template <class T>
  std::uint64_t apply(std::span<selection_view const> updates, float divisor, std::span<T> out) {
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part((out.size() + host_kernels::tile_size - 1) / host_kernels::tile_size, worker);
      auto const cursors = std::span{cursors_}.subspan(static_cast<std::size_t>(worker) * updates.size(), updates.size());
      start_cursors(updates, begin * host_kernels::tile_size, cursors);
      std::uint64_t touched = 0;
      for (auto t = begin; t < end; ++t)
        touched += apply_tile(updates, cursors, t * host_kernels::tile_size, divisor, out);
      non_finite_[static_cast<std::size_t>(worker)] = touched;
    });
    return sum(non_finite_);
  }

  /// The indices that any update has, increasing, each once. Returns how many; writes at most out.size().
  /// Cost: O(entries + span of the indices / 64).
  std::uint64_t merge(std::span<selection_view const> updates, std::span<index_type> out) {
    auto const cursors = std::span{cursors_}.first(updates.size());
    start_cursors(updates, 0, cursors);
    std::array<std::uint64_t, host_kernels::tile_size / 64> marks{};
    std::uint64_t count = 0;
    for (std::uint64_t first = 0; first < n_; first += host_kernels::tile_size) {
      bool any = false;
      for (std::size_t u = 0; u < updates.size(); ++u) {
        auto const indices = updates[u].indices;
        for (; cursors[u] < indices.size() && indices[cursors[u]] < first + host_kernels::tile_size; ++cursors[u]) {
          auto const at = indices[cursors[u]] - first;
          marks[at / 64] |= std::uint64_t{1} << (at % 64);
          any = true;
        }
      }
      if (!any) continue;
      for (std::size_t word = 0; word < marks.size(); ++word) {
        for (auto left = marks[word]; left != 0; left &= left - 1, ++count)
          if (count < out.size())
            out[count] = static_cast<index_type>(first + word * 64 + static_cast<unsigned>(std::countr_zero(left)));
        marks[word] = 0;
      }
    }
    return count;
  }

  /// Room for apply() and merge() over `updates` updates. Allocates.
  void reserve_updates(std::size_t updates) {
    cursors_.assign(updates * static_cast<std::size_t>(team_.size()), 0);
  }

  /// Zeros written by the threads that will use them.
  void fill_zero(std::span<float> memory) const noexcept {
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part(memory.size(), worker);
      std::fill(memory.begin() + static_cast<std::ptrdiff_t>(begin), memory.begin() + static_cast<std::ptrdiff_t>(end),
                0.0f);
    });
  }

 private:
  static constexpr std::uint32_t no_segment = ~std::uint32_t{0};
  static constexpr std::uint64_t most_samples = std::uint64_t{1} << 20;

  struct tile {
    std::uint64_t begin;
    std::uint32_t size;
    std::uint32_t segment;
    bool hole;
  };
  struct tile_count {
    std::uint32_t above = 0;
    std::uint32_t equal = 0;
  };
  struct peek {
    void const* context = nullptr;
    float (*at)(void const*, std::uint64_t) = nullptr;
  };

  /// splitmix64: a counter-based generator, so samples depend on names and not on threads.
  [[nodiscard]] static constexpr std::uint64_t mix(std::uint64_t x) noexcept {
    x += 0x9E37'79B9'7F4A'7C15u;
    x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
    return x ^ (x >> 31);
  }

  void add_tiles(std::uint64_t begin, std::uint64_t end, std::uint32_t segment) {
    while (begin < end) {  // a grid from element 0: no tile crosses it, so workers never share a cache line
      auto next = std::min(end, (begin / host_kernels::tile_size + 1) * host_kernels::tile_size);
      auto const behind = hole_behind(begin);
      bool const hole = behind != holes_.end() && behind->offset <= begin;
      if (behind != holes_.end()) next = std::min(next, hole ? behind->offset + behind->size : behind->offset);
      tiles_.push_back({begin, static_cast<std::uint32_t>(next - begin), segment, hole});
      begin = next;
    }
  }

  /// The first hole that ends behind an element.
  [[nodiscard]] std::vector<range>::const_iterator hole_behind(std::uint64_t i) const noexcept {
    return std::partition_point(holes_.begin(), holes_.end(), [&](range const& each) { return each.offset + each.size <= i; });
  }

  [[nodiscard]] bool in_hole(std::uint64_t i) const noexcept {
    auto const behind = hole_behind(i);
    return behind != holes_.end() && behind->offset <= i;
  }

  void start_collecting(std::span<key_type const> lower) {
    std::copy(lower.begin(), lower.end(), lower_.begin());
    std::fill(lower_.begin() + static_cast<std::ptrdiff_t>(lower.size()), lower_.end(), 0);
    std::fill(again_.begin(), again_.end(), false);
    for (auto& list : lists_) {
      list.count = 0;
      list.complete_before = ~std::uint64_t{0};
    }
  }

  /// Calls body(tile, values, size[, worker]) for the tiles of a segment.
  template <class Body>
  void over_tiles(accumulator_ref const acc, Body const& body) {
    auto const first = first_tile_[acc.id];
    auto const count = last_tile_[acc.id] - first;
    team_.run([&](int worker) {
      auto const [begin, end] = team_.part(count, worker);
      for (auto t = first + begin; t < first + end; ++t) {
        float const* const values = acc.values.data() + (tiles_[t].begin - acc.first);
        if constexpr (std::is_invocable_v<Body, std::uint64_t, float const*, std::size_t, int>)
          body(t, values, tiles_[t].size, worker);
        else
          body(t, values, tiles_[t].size);
      }
    });
  }

  /// A segment's lists: those of the first pass, or those of collect_again().
  [[nodiscard]] std::span<host_kernels::candidate_list const> lists_of(accumulator_ref const acc) const noexcept {
    return std::span{lists_}.subspan(again_[acc.id] ? lists_.size() / 2 : 0, lists_.size() / 2);
  }

  /// The positions of a list that belong to a segment: lists are in index order.
  [[nodiscard]] static std::pair<std::uint64_t, std::uint64_t> within(host_kernels::candidate_list const& list,
                                                                      accumulator_ref const acc) noexcept {
    index_type const* const begin = list.indices;
    index_type const* const end = begin + list.count;
    auto const* const from = std::partition_point(begin, end, [&](index_type i) { return i < acc.first; });
    auto const* const to =
        std::partition_point(from, end, [&](index_type i) { return i < acc.first + acc.values.size(); });
    return {static_cast<std::uint64_t>(from - begin), static_cast<std::uint64_t>(to - begin)};
  }

  [[nodiscard]] key_type max_key_of_candidates(accumulator_ref const acc) const noexcept {
    key_type largest = lower_[acc.id];
    for (auto const& list : lists_of(acc)) {
      auto const [begin, end] = within(list, acc);
      largest = std::max(largest, host_kernels::max_key(list.values + begin, end - begin));
    }
    return largest;
  }

  void clear_histograms() noexcept { std::fill_n(histograms_.data(), histograms_.size(), 0u); }

  [[nodiscard]] std::span<std::uint32_t const> merge_histograms() noexcept {
    auto const total = histograms_.first(digit_search::bins);
    for (int w = 1; w < team_.size(); ++w)
      for (std::size_t b = 0; b < digit_search::bins; ++b)
        total[b] += histograms_[static_cast<std::size_t>(w) * digit_search::bins + b];
    return total;
  }

  template <class Keep>
  void count_digits(digit_search const& search, float const* values, std::size_t count, int worker, Keep const& keep) {
    auto* const histogram = histograms_.data() + static_cast<std::size_t>(worker) * digit_search::bins;
    for (std::size_t i = 0; i < count; ++i) {
      auto const bin = search.bin(magnitude_key(values[i]));
      if (bin < digit_search::bins && keep(values[i])) ++histogram[bin];
    }
  }

  index_type compact_candidates(accumulator_ref const acc, cut const at, selection_span out) const noexcept {
    index_type written = 0;
    index_type ties = at.ties;
    for (auto const& list : lists_of(acc)) {
      auto const [begin, end] = within(list, acc);
      for (auto i = begin; i < end; ++i) {
        key_type const key = magnitude_key(list.values[i]);
        if (key < at.key || (key == at.key && ties == 0)) continue;
        ties -= key == at.key ? 1u : 0u;
        if (written < out.indices.size()) {
          out.indices[written] = list.indices[i];
          out.values[written] = list.values[i];
        }
        ++written;
      }
    }
    return written;
  }

  template <std::size_t States, class Body>
  static void update_one(std::array<float*, States> const& states, std::uint64_t i, Body const& body) noexcept {
    std::array<float, States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
    body(i, now);
    for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
  }

  static void start_cursors(std::span<selection_view const> updates, std::uint64_t first,
                            std::span<std::size_t> cursors) noexcept {
    for (std::size_t u = 0; u < updates.size(); ++u)
      cursors[u] = static_cast<std::size_t>(
          std::lower_bound(updates[u].indices.begin(), updates[u].indices.end(), first) - updates[u].indices.begin());
  }

  template <class T>
  static std::uint64_t apply_tile(std::span<selection_view const> updates, std::span<std::size_t> cursors,
                                  std::uint64_t first, float divisor, std::span<T> out) noexcept {
    std::uint64_t const size = std::min<std::uint64_t>(host_kernels::tile_size, out.size() - first);
    std::array<float, host_kernels::tile_size> total;
    std::array<bool, host_kernels::tile_size> has;
    std::uint64_t touched = 0;
    for (std::size_t u = 0; u < updates.size(); ++u) {
      auto const indices = updates[u].indices;
      for (; cursors[u] < indices.size() && indices[cursors[u]] < first + size; ++cursors[u]) {
        if (touched == 0) {
          total.fill(0.0f);
          has.fill(false);
        }
        auto const at = indices[cursors[u]] - first;
        float const value = updates[u].values[cursors[u]];
        total[at] = has[at] ? total[at] + value : value;
        touched += has[at] ? 0u : 1u;
        has[at] = true;
      }
    }
    if (touched == 0) {
      std::fill_n(out.data() + first, size, T{});
      return 0;
    }
    for (std::uint64_t i = 0; i < size; ++i) out[first + i] = from_float<T>(total[i] / divisor);
    return touched;
  }

  [[nodiscard]] static std::uint64_t sum(std::span<std::uint64_t const> counts) noexcept {
    std::uint64_t total = 0;
    for (auto const each : counts) total += each;
    return total;
  }

  host_team team_;
  host where_;
  std::uint64_t n_;
  std::vector<range> holes_;
  std::vector<tile> tiles_;
  std::vector<std::uint64_t> first_tile_;  // of each segment
  std::vector<std::uint64_t> last_tile_;
  std::vector<statistics> tile_statistics_;
  std::vector<tile_count> tile_counts_;
  std::vector<key_type> lower_;  // of each segment's candidates
  std::vector<bool> again_;       // whether collect_again() made them
  std::vector<host_kernels::candidate_list> lists_;  // one a worker of the first pass, then one of collect_again()
  host_buffer<index_type> candidate_indices_;
  host_buffer<float> candidate_values_;
  host_buffer<std::uint32_t> histograms_;
  host_buffer<key_type> samples_;
  std::vector<std::uint64_t> non_finite_;  // of each worker
  std::vector<std::size_t> cursors_;       // of each worker and update
  peek peek_;
  bool measured_ = false;
};

}  // namespace gradsieve
