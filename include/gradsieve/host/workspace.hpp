// The workspace of one compressor on the host, and loops over its memory for residual stores and exchanges.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fingerprint.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/view.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/accumulate.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/passes/ranking.hpp>
#include <gradsieve/host/passes/sample.hpp>
#include <gradsieve/host/passes/scope.hpp>
#include <gradsieve/host/passes/updates.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/host/tuning.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The threads and tables of one compressor on the host, and loops that know no segments.
class host_scratch {
 public:
  template <class T>
  using buffer = host_buffer<T>;

  /// For a gradient of n elements. Allocates a little. @throws invalid_argument for a negative number of threads.
  host_scratch(host where, std::uint64_t n) : where_{where}, scope_{where.threads, n, where.simd_limit} {
    require_in("a host's number of threads", where.threads, at_least(0));
  }

  [[nodiscard]] host const& where() const noexcept { return where_; }

  /// Replaces each of these values by body(value).
  template <class Body>
  void replace(view<float> const values, Body const& body) const noexcept {
    scope_.each(values.size(), [&](std::uint64_t i) { values[i] = body(values[i]); });
  }

  /// out[i] = values[indices[i]]. Cost: O(indices), scattered.
  void gather(std::span<float const> values, std::span<index_type const> indices, std::span<float> out) const noexcept {
    scope_.each(indices.size(), [&](std::uint64_t i) { out[i] = values[indices[i]]; });
  }

  /// Clamps values beyond `limit` to it, with their signs; returns how many. Cost: one read.
  std::uint64_t saturate(std::span<float> values, float limit) {
    key_type const most = magnitude_key(limit);
    if (most >= infinite_key - 1) return 0;
    return scope_.sum(values.size(), values.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      std::uint64_t beyond = 0;
      for (auto i = begin; i < end; ++i) {
        if (magnitude_key(values[i]) <= most) continue;
        values[i] = with_sign_of(values[i], limit);
        ++beyond;
      }
      return beyond;
    });
  }

  /// Calls body(i, states of element i) for i in [begin, end), and stores the states. Cost: one pass.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::uint64_t begin, std::uint64_t end, Body const& body) {
    scope_.each(end - begin, [&](std::uint64_t i) { update_one(states, begin + i, begin + i, body); });
  }

  /// Calls body(position, states of element indices[position]) for every position, and stores the states.
  /// Cost: O(indices), scattered.
  template <std::size_t States, class Body>
  void update(std::array<float*, States> const& states, std::span<index_type const> indices, Body const& body) {
    scope_.each(indices.size(), [&](std::uint64_t p) { update_one(states, indices[p], p, body); });
  }

  /// Writes the sum of the updates, in their order, divided by `divisor`, to `out`, and zero where none has an entry.
  /// Returns the number of elements that are in an update, and of those clamped.
  template <class T>
  applied_update apply(std::span<selection_view const> updates, float divisor, gradient_ref<T> const out) {
    return updates_.apply(scope_.team, scope_.level, updates, divisor, out);
  }

  /// Writes the union of the updates' indices; returns its size.
  std::uint64_t merge(std::span<selection_view const> updates, std::span<index_type> out) {
    return updates_.merge(updates, scope_.n, out);
  }

  /// Room for apply() and merge(). Allocates.
  void reserve_updates(std::size_t updates) { updates_.reserve(scope_.team, updates); }

  /// Calls body(i) for each i below `count`, on all threads, in contiguous runs. `work`: as of host_team::run().
  template <class Body>
  void run_each(std::uint64_t work, std::uint64_t count, Body const& body) const {
    scope_.split(work, count, [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto i = begin; i < end; ++i) body(i);
    });
  }

  /// Writes zeros, by the threads that will use the memory.
  void fill_zero(std::span<float> memory) const noexcept {
    scope_.each(memory.size(), [&](std::uint64_t i) { memory[i] = 0; });
  }

 private:
  template <std::size_t States, class Body>
  static void update_one(std::array<float*, States> const& states, std::uint64_t i, std::uint64_t name,
                         Body const& body) noexcept {
    element_state<States> now{};
    for (std::size_t s = 0; s < States; ++s) now[s] = states[s][i];
    body(name, now);
    for (std::size_t s = 0; s < States; ++s) states[s][i] = now[s];
  }

  host where_;
  host_updates updates_;

 protected:
  host_scope scope_;  ///< team, tiles and candidates, also of the workspace
};

}  // namespace gradsieve::detail

namespace gradsieve::inline GRADSIEVE_ABI {

/// The scratch of one compressor on the host, and the passes that selectors, exchanges and the compressor call. A pass
/// reads each element of its segment once, on all threads, gives the same result for any number of threads, and
/// allocates nothing. Not for concurrent use. A selector that also runs on a device calls only selector_workspace's.
class host_workspace : public detail::host_scratch {
 public:
  /// The scratch for a gradient of n elements. Allocates.
  host_workspace(host where, std::uint64_t n) : detail::host_scratch{where, n}, ranking_{scope_.team} {}

  /// Prepares for disjoint, ordered segments. Elements outside them, or in an excluded range, are accumulated but never
  /// selected; accumulators in excluded ranges must be zero when selectors run. `expected`: most entries of a step.
  /// `bins`: bin length of each segment, for a selector with bins. Allocates what it needs beyond earlier calls.
  /// Memory: 72 bytes per tile, and each thread's candidate lists. With bins these have room for all the thread's
  /// elements (address space of 8 bytes per element, touched as used), plus 12 bytes per element of a tile.
  void plan(std::span<segment const> segments, std::span<range const> excluded, std::uint64_t expected,
            std::span<std::uint32_t const> bins = {}) {
    scope_.tiles.plan(scope_.n, segments, excluded, bins);
    auto const shares = accumulate_.plan(scope_, bins);
    scope_.found.plan(scope_.team.size(), segments.size(),
                      std::min(scope_.n, 2 * expected + host_kernels::spare_candidates), shares);
    auto const samples = std::min(scope_.n, detail::host_scope::most_samples) + host_kernels::group;
    if (scope_.keys.size() < samples) scope_.keys = buffer<key_type>(samples);
    ranking_.plan(scope_);
  }

  // ---- A step's first pass ---------------------------------------------------------------------------------

  /// The argument of predict() before the accumulate pass; has only sample(). `read`: a host_kernels::incoming.
  template <class Read, class Flush>
  [[nodiscard]] detail::host_preview<Read, Flush> preview(Read const& read, Flush const& flush_pending) const {
    return {scope_, read, flush_pending};
  }

  /// Accumulates a gradient into the residual's states, in one read of both and one write. The same pass subtracts
  /// pending entries, computes the statistics of every segment if `measure`, and collects as candidates the elements
  /// whose key reaches `candidate_thresholds[segment]` (0: none). Returns the number of elements that were not finite.
  /// Cost: 8 bytes read and 4 written per element and state.
  template <class Residual, class T, std::size_t States>
  std::uint64_t accumulate(Residual const& policy, std::array<float*, States> const& states,
                           gradient_ref<T const> gradient, float factor, bool measure,
                           std::span<key_type const> candidate_thresholds, selection_view pending = {}) {
    ranking_.forget();
    return accumulate_.run(scope_, host_kernels::incoming{states, gradient, factor, policy}, measure,
                           candidate_thresholds, pending);
  }

  /// accumulate() for a selector with bins, whose choices become the candidates, in segments with candidate threshold
  /// != 0. @pre plan() was given the bins.
  template <class Chosen, class Residual, class T, std::size_t States>
  std::uint64_t accumulate_bins(Chosen const& chosen, std::span<segment const> segments, Residual const& policy,
                                std::array<float*, States> const& states, gradient_ref<T const> gradient, float factor,
                                std::uint64_t step, std::span<key_type const> candidate_thresholds,
                                selection_view pending) {
    ranking_.forget();
    return accumulate_.run_bins(scope_, host_kernels::incoming{states, gradient, factor, policy}, chosen, segments,
                                step, candidate_thresholds, pending);
  }

  /// Number of elements that would not be finite. Changes nothing. Cost: one read of gradient and states.
  template <class Residual, class T, std::size_t States>
  std::uint64_t count_non_finite(Residual const& policy, std::array<float*, States> const& states,
                                 gradient_ref<T const> gradient, float factor) {
    host_kernels::incoming const in{states, gradient, factor, policy};
    return scope_.sum(gradient.size(), gradient.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      std::uint64_t bad = 0;
      gradient.for_each_run(begin, end - begin, [&](auto const run) {
        bad += host_kernels::run<host_kernels::enter_tile<false>>(scope_.level, policy, in.states_from(begin),
                                                                  run.data(), factor, run.size());
        begin += run.size();
      });
      return bad;
    });
  }

  /// A hash of the accumulate pass's results for a few elements: equal if builds and processors round alike.
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
    host_kernels::run<host_kernels::enter_tile<true>>(scope_.level, policy, states, std::as_const(gradient).data(),
                                                      0.7f, count);
    fingerprint all;
    for (auto const& each : memory)
      for (float const x : each) all.add(x);
    return static_cast<std::uint8_t>(all.value() ^ all.value() >> 32);
  }

  /// Collects the candidates of all segments with candidate threshold != 0. Cost: one pass over those segments.
  void collect(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    ranking_.forget();
    scope_.collect(accumulator, candidate_thresholds);
  }

  /// Collects candidates after accumulate(), in segments whose threshold has changed. Cost: one pass over them.
  void collect_others(std::span<float const> accumulator, std::span<key_type const> candidate_thresholds) {
    ranking_.forget();
    scope_.collect_others(accumulator, candidate_thresholds);
  }

  // ---- What selectors ask ----------------------------------------------------------------------------------

  /// Collects one segment's candidates again, for another key. Cost: one pass over the segment.
  void collect_again(accumulator_ref const acc, key_type candidate_threshold) {
    scope_.collect_again(acc, candidate_threshold);
  }

  /// A segment's candidates. Cost: O(workers * log candidates).
  [[nodiscard]] candidates collected(accumulator_ref const acc) const noexcept { return scope_.found.collected(acc); }

  /// Sums over a segment. Cost: one pass, or O(n / 4096) if the accumulate pass has measured already.
  [[nodiscard]] host_kernels::statistics measure(accumulator_ref const acc) { return accumulate_.measure(scope_, acc); }

  /// Mean of |x| over a segment, 0 if it is empty. Cost: as measure().
  [[nodiscard]] float mean_abs(accumulator_ref const acc) {
    auto const n = static_cast<double>(acc.values.size());
    return acc.values.empty() ? 0.0f : static_cast<float>(measure(acc).sum_abs / n);
  }

  /// Mean of the largest magnitudes of a segment's bins. @pre accumulate_bins(). Cost: O(n / 4096).
  [[nodiscard]] float mean_of_maxima(accumulator_ref const acc) const noexcept {
    auto const bins = accumulate_.sums(scope_, acc);
    return bins.nonzero == 0 ? 0.0f : static_cast<float>(bins.sum_abs / static_cast<double>(bins.nonzero));
  }

  /// A selector calls this once per segment to report what decided its threshold, unless it sends all nonzero elements.
  void note_threshold(threshold_origin origin, int probes) noexcept {
    ++thresholds_.by[static_cast<std::size_t>(origin)];
    thresholds_.probes += static_cast<std::uint64_t>(probes);
  }
  /// Returns the counts of note_threshold() since the last call, and resets them.
  [[nodiscard]] threshold_counts take_threshold_counts() noexcept { return std::exchange(thresholds_, {}); }

  /// Number of elements whose key is at least `key`. Cost: one pass.
  [[nodiscard]] std::uint64_t count_at_least(accumulator_ref const acc, key_type key) {
    return scope_.sum_of_tiles(acc, [&](std::uint64_t, float const* values, std::size_t size, int) {
      return host_kernels::run<host_kernels::count_tile>(scope_.level, values, size, key);
    });
  }

  /// N sums over a segment: calls add(value, sums) for every element, but not necessarily for keys below
  /// `add.least_key`, if it has that member; for these it must add nothing. Sums of whole numbers are the same for any
  /// number of threads and in every space. Cost: one pass.
  template <std::size_t N, class Add>
  [[nodiscard]] whole_sums<N> add_up(accumulator_ref const acc, Add const& add) {
    std::array<std::atomic<std::uint64_t>, N> totals{};
    scope_.split(acc.values.size(), acc.values.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      whole_sums<N> own{};
      host_kernels::run<host_kernels::add_up_values>(scope_.level, acc.values.data() + begin, std::size_t{end - begin},
                                                     add, &own);
      for (std::size_t s = 0; s < N; ++s) totals[s] += own[s];
    });
    whole_sums<N> sums{};
    for (std::size_t s = 0; s < N; ++s) sums[s] = totals[s];
    return sums;
  }

  /// Keys of `count` elements, one at a random place in each of `count` equal strips, at most 2^20; all if `count` is
  /// the size or more. Depends only on `seed`, step, segment. Valid until the next call. Cost: `count` scattered reads.
  [[nodiscard]] detail::key_sample sample(accumulator_ref const acc, std::uint64_t count, std::uint64_t seed = 0) {
    return detail::draw_sample(scope_, acc, count, seed, host_kernels::from_memory{acc});
  }

  /// The threshold that keeps exactly k elements of a segment, or all nonzero ones if those are fewer. Cost:
  /// O(candidates) where they suffice; else one pass, with many ties two, at most seven. `keep` restricts the choice.
  /// @pre At least k elements, or all nonzero ones, have a key of `low` or more; low >= 1.
  template <class Keep = keep_all>
  [[nodiscard]] threshold kth_largest(accumulator_ref const acc, index_type k, key_type low = 1,
                                      Keep const& keep = {}) {
    return ranking_.kth_largest(scope_, acc, k, low, keep);
  }

  /// Writes what a threshold keeps, in index order, at most out.indices.size() entries; returns how many it keeps. From
  /// the candidates where they suffice, else one pass; two where ties or `keep` require it.
  template <class Keep = keep_all>
  index_type compact(accumulator_ref const acc, threshold const at, selection_span out, Keep const& keep = {}) {
    return ranking_.compact(scope_, acc, at, out, keep);
  }

  /// Writes a segment's candidates, none of which is zero, in index order with body(value) for each value; at most
  /// out.indices.size(). Returns how many there are. @pre collected(acc).complete. Cost: one copy.
  template <class Body>
  index_type take_candidates(accumulator_ref const acc, selection_span out, Body const& body) noexcept {
    return ranking_.take_candidates(scope_, acc, out, body);
  }

  /// Number of selectable elements of a segment: those outside passthrough and skipped layers.
  [[nodiscard]] std::uint64_t selectable(accumulator_ref const acc) const noexcept { return selectable(acc.id); }
  /// Number of selectable elements of the segment of this number.
  [[nodiscard]] std::uint64_t selectable(std::uint64_t segment_id) const noexcept {
    return scope_.tiles.elements_of(segment_id);
  }

  /// Writes the elements at the increasing positions places[0], ..., which count only selectable elements: `count` of
  /// them, at most out.indices.size(), zeros included. Returns their number. Cost: O(count), scattered; O(count log
  /// tiles) if not all are selectable. @pre places[count - 1] < selectable(acc)
  template <class Places>
  index_type take_places(accumulator_ref const acc, std::uint64_t count, Places const& places,
                         selection_span out) noexcept {
    count = smaller<std::uint64_t>(count, out.indices.size());
    bool const all = selectable(acc) == acc.values.size();
    scope_.each(count, [&](std::uint64_t j) {
      std::uint64_t const at = all ? acc.first + places[j] : scope_.tiles.selectable(acc.id, places[j]);
      out.indices[j] = static_cast<index_type>(at);
      out.values[j] = acc.values[at - acc.first];
    });
    return static_cast<index_type>(count);
  }

  // ---- What residual stores ask ---------------------------------------------------------------------------

  /// Sum of x^2 over all n elements, in fixed order, ignoring non-finite ones. Cost: one read.
  template <class T>
  [[nodiscard]] double sum_squares(gradient_ref<T> const values) {
    return accumulate_.sum_squares(scope_, values);
  }
  /// Sum of squares of values in one piece.
  [[nodiscard]] double sum_squares(std::span<float const> values) {
    return sum_squares(gradient_ref<float const>{values});
  }

 private:
  detail::host_accumulate accumulate_;
  detail::host_ranking ranking_;
  threshold_counts thresholds_;
};

}  // namespace gradsieve
