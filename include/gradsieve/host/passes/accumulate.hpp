// A step's first pass: adds the gradient to the residual's states, and collects candidates and sums on the way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/passes/bins.hpp>
#include <gradsieve/host/passes/kernels.hpp>
#include <gradsieve/host/passes/sample.hpp>
#include <gradsieve/host/passes/scope.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The accumulate pass, its sums by tile, and its scratch for bins.
class host_accumulate {
 public:
  using list = host_kernels::candidate_list;
  using pending_list = host_kernels::pending_list;
  using statistics = host_kernels::statistics;

  /// Returns the number of candidates that each worker may find in bins; empty without bins. Allocates.
  std::vector<std::uint64_t> plan(host_scope const& scope, std::span<std::uint32_t const> bins) {
    auto const workers = static_cast<std::size_t>(scope.team.size());
    tile_sums_.assign(scope.tiles.size(), {});
    bins_.assign(bins.begin(), bins.end());
    std::size_t longest = host_kernels::tile_size;
    for (auto const each : bins) longest = std::max<std::size_t>(longest, each);
    plan_scratch(bins.empty() ? 0 : longest + host_kernels::group, workers);
    tile_bytes_ = (longest + host_kernels::group) * sizeof(float);
    if (gathered_.size() < tile_bytes_ * workers) gathered_ = host_buffer<std::byte>(tile_bytes_ * workers);
    std::vector<std::uint64_t> shares;
    for (int worker = 0; !bins.empty() && worker < scope.team.size(); ++worker) {
      auto const [begin, end] = scope.team.part(scope.tiles.size(), worker);
      shares.push_back(scope.begin_of(end) - scope.begin_of(begin));
    }
    return shares;
  }

  template <class T, class Residual>
  std::uint64_t run(host_scope& scope, host_kernels::incoming<T, Residual> const& in, bool measure,
                    std::span<key_type const> candidate_thresholds, selection_view pending) {
    auto const enter = entry_of(scope, in, no_bins{});
    return pass(scope, host_kernels::entry{enter}, in.states[0], in.gradient.size_bytes(), measure,
                candidate_thresholds, pending, no_bins{}, {}, 0);
  }

  /// run() for a selector with bins, or for one that stands for several and has chosen one with bins.
  template <class Chosen, class T, class Residual>
  std::uint64_t run_bins(host_scope& scope, host_kernels::incoming<T, Residual> const& in, Chosen const& chosen,
                         std::span<segment const> segments, std::uint64_t step,
                         std::span<key_type const> candidate_thresholds, selection_view pending) {
    auto const enter = entry_of(scope, in, chosen);
    return pass(scope, host_kernels::entry{enter}, in.states[0], in.gradient.size_bytes(), false,
                candidate_thresholds, pending, chosen, segments, step);
  }

  /// Sums of a segment from the last pass.
  [[nodiscard]] statistics sums(host_scope const& scope, accumulator_ref const acc) const noexcept {
    statistics total;
    for (auto t = scope.tiles.of(acc.id).first; t < scope.tiles.of(acc.id).last; ++t) total.add(tile_sums_[t]);
    return total;
  }

  /// Sums of a segment's accumulator. Cost: a pass, unless the accumulate pass has measured.
  [[nodiscard]] statistics measure(host_scope const& scope, accumulator_ref const acc) {
    if (!measured_)
      scope.over_tiles(acc, [&](std::uint64_t t, float const* values, std::size_t size, int) {
        tile_sums_[t] = host_kernels::run<host_kernels::measure_tile>(scope.level, values, size);
      });
    return sums(scope, acc);
  }

  template <class T>
  [[nodiscard]] double sum_squares(host_scope const& scope, gradient_ref<T> const values) {
    measured_ = false;
    scope.split(scope.n, tile_sums_.size(), [&](std::uint64_t begin, std::uint64_t end, int) {
      for (auto t = begin; t < end; ++t) {
        tile_sums_[t].sum_squares = 0;
        values.for_each_run(scope.tiles[t].begin, scope.tiles[t].size,
                            [&](auto const run) { add_squares(run, tile_sums_[t].sum_squares); });
      }
    });
    double total = 0;
    for (auto const& each : tile_sums_) add_in_order(total, each.sum_squares);
    return total;
  }

 private:
  /// Adds squares in element order, ignoring non-finite values.
  template <class T>
  GRADSIEVE_PRECISE static void add_squares(std::span<T const> values, double& sum) noexcept {
    GRADSIEVE_EXACT
    double total = sum;
    for (T const& value : values) {
      float const x = to_float(value);
      auto const wide = static_cast<double>(is_finite(x) ? x : 0.0f);
      total += wide * wide;
    }
    sum = total;
  }

  /// The elements of a tile, contiguous; copied if they lie in several pieces.
  template <class T>
  [[nodiscard]] T const* contiguous(gradient_ref<T const> const gradient, std::uint64_t first, std::size_t count,
                                  int worker) const noexcept {
    auto const run = gradient.run(first);
    if (run.size() >= count) return run.data();
    auto const to = reinterpret_cast<T*>(gathered_.data() + static_cast<std::size_t>(worker) * tile_bytes_);
    gradient.read(first, count, to);
    return to;
  }

  struct no_bins {};

  /// Makes a function for host_kernels::entry.
  template <class Chosen, class T, class Residual>
  [[nodiscard]] auto entry_of(host_scope const& scope, host_kernels::incoming<T, Residual> const& in,
                              Chosen const& chosen) const noexcept {
    return [&](host_kernels::entering const& what) noexcept {
      return host_kernels::enter(scope.level, chosen, in.policy, in.states_from(what.first),
                                 contiguous(in.gradient, what.first, what.count, what.worker), in.factor, what);
    };
  }

  /// Runs over all tiles; returns how many elements were not finite. `accumulator`: state 0. Without segments no bins.
  template <class Chosen>
  std::uint64_t pass(host_scope& scope, host_kernels::entry const enter, float const* accumulator,
                     std::uint64_t gradient_bytes, bool measure, std::span<key_type const> candidate_thresholds,
                     selection_view pending, Chosen const& chosen, std::span<segment const> segments,
                     std::uint64_t step) {
    measured_ = measure;
    auto const strip = host_kernels::accumulate_tile::strip_for(gradient_bytes);
    scope.found.start(candidate_thresholds);
    return scope.sum(scope.n, scope.tiles.size(), [&](std::uint64_t begin, std::uint64_t end, int worker) {
      auto due = between(pending, scope.begin_of(begin), scope.begin_of(end));
      auto& to = scope.found.list_of(worker);
      std::uint64_t bad = 0;
      for (auto t = begin; t < end; ++t) {
        auto const& [first, size, id, excluded, position] = scope.tiles[t];
        bool const outside = excluded || id == host_tiles::no_segment;
        auto const least = outside ? 0 : candidate_thresholds[id];
        if (outside || !measure) tile_sums_[t] = {};
        if (segments.empty() || least == 0) {
          bad += enter({first, size, strip, least, &to, &due, worker, measure && !outside ? &tile_sums_[t] : nullptr});
          continue;
        }
        auto const elements = scope.tiles.elements_of(id);
        host_kernels::binned_tile const tile{bins_[id], first - segments[id].offset, position, elements, segments[id].k,
                                             mix(step) % elements, strip};
        auto const done = with_chosen(chosen, [&]<class One>([[maybe_unused]] One const& it) {
          if constexpr (bin_selector<One>)
            return host_kernels::run<host_kernels::keep_in_bins>(
                scope.level, it, enter, worker, accumulator + first, std::size_t{size}, first, tile,
                &scratch_[static_cast<std::size_t>(worker)], &to, &due);
          else
            return host_kernels::keep_in_bins::result{};
        });
        tile_sums_[t] = {done.sum_of_maxima, 0, 0, done.bins};
        bad += done.bad;
      }
      return bad;
    });
  }

  /// The pending entries of elements in [begin, end).
  [[nodiscard]] static pending_list between(selection_view const all, std::uint64_t begin, std::uint64_t end) noexcept {
    auto const first = std::lower_bound(all.indices.begin(), all.indices.end(), begin);
    auto const last = std::lower_bound(first, all.indices.end(), end);
    auto const skipped = first - all.indices.begin();
    return {all.indices.data() + skipped, all.values.data() + skipped, static_cast<std::uint64_t>(last - first)};
  }

  void plan_scratch(std::size_t capacity, std::size_t workers) {
    std::size_t const words = capacity == 0 ? 0 : host_kernels::mark_words(capacity);
    if (values_.size() < capacity * workers) {
      values_ = host_buffer<float>(capacity * workers);
      keys_ = host_buffer<key_type>(capacity * workers);
      indices_ = host_buffer<index_type>(capacity * workers);
    }
    marks_.assign(words * workers, 0);
    scratch_.assign(capacity == 0 ? 0 : workers, {});
    for (std::size_t w = 0; w < scratch_.size(); ++w) {
      float* const values = values_.data() + w * capacity;
      scratch_[w] = {values,
                     keys_.data() + w * capacity,
                     marks_.data() + w * words,
                     {indices_.data() + w * capacity, values, 0, capacity - host_kernels::group}};
    }
  }

  std::vector<statistics> tile_sums_;               // in tile order: the same for any number of threads
  bool measured_ = false;                           // tile_sums_ are the accumulator's
  std::vector<std::uint32_t> bins_;                 // bin length of each segment, or empty
  std::vector<host_kernels::bin_scratch> scratch_;  // of each worker, in the memory below
  std::size_t tile_bytes_ = 0;
  host_buffer<std::byte> gathered_;  // for each worker: a tile of a gradient that lies in several pieces
  host_buffer<float> values_;
  host_buffer<key_type> keys_;
  host_buffer<index_type> indices_;
  std::vector<host_kernels::mark_word> marks_;
};

}  // namespace gradsieve::detail
