// A device's memory for a step: lists of entries, choices among candidates, bins, speculative passes, counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/bins.cuh>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/select.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/write_entries.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/host/passes/tiles.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Words that the accumulate pass clears, and after them words that it adds to and the end of the selection clears, so
/// that the pass needs no memset before it. plan() allocates.
class step_counts {
 public:
  void plan(stream_work const& work, std::size_t segments) {
    segments_ = segments;
    words_ = work.zeroed<std::uint32_t>(now + 2 + 2 * segments);
  }

  [[nodiscard]] std::uint64_t* non_finite() const noexcept { return at(0); }  ///< elements
  [[nodiscard]] std::uint64_t* saturated() const noexcept { return at(2); }   ///< values
  [[nodiscard]] std::uint64_t* stays() const noexcept { return at(4); }  ///< not 0: a passthrough layer keeps something
  [[nodiscard]] threshold_counts* thresholds() const noexcept { return reinterpret_cast<threshold_counts*>(at(6)); }
  [[nodiscard]] std::uint32_t* open() const noexcept { return words_.data() + now - 2; }  // speculative_candidates

  void fill(cuda_kernels::tables& tables) const noexcept {
    tables.found = words_.data() + now + 2;
    tables.collections = tables.found + segments_;
    tables.bad = non_finite();
    tables.bad_now = at(now);
    tables.thresholds = thresholds();
    tables.counts = words_.data();
    tables.count_words = now;
  }

 private:
  static constexpr std::uint32_t now = (4 * sizeof(std::uint64_t) + sizeof(threshold_counts)) / sizeof(std::uint32_t);

  [[nodiscard]] std::uint64_t* at(std::size_t word) const noexcept {
    return reinterpret_cast<std::uint64_t*>(words_.data() + word);
  }

  std::size_t segments_ = 0;
  cuda_buffer<std::uint32_t> words_;
};

/// The bins of each segment, and what a step finds in them. Memory: 20 bytes per bin and a bit per element.
class bin_memory {
 public:
  /// For bins of these lengths in each segment; without lengths it needs no memory. Waits, allocates.
  void plan(stream_work const& work, std::uint64_t n, std::span<segment const> segments,
            std::span<range const> excluded, std::span<std::uint32_t const> lengths) {
    means_ = work.zeroed<float>(lengths.size());
    tables_ = {};
    if (lengths.empty()) return;
    host_tiles tiles;
    tiles.plan(n, segments, excluded, lengths);
    std::vector<cuda_kernels::device_bin> all;
    std::vector<cuda_kernels::bin_group> groups;
    std::vector<std::uint32_t> first_group, elements;
    auto const count = [](auto const& list) { return static_cast<std::uint32_t>(list.size()); };
    for (std::size_t s = 0; s < segments.size(); ++s) {
      first_group.push_back(count(groups));
      for (auto at = tiles.of(s).first; at < tiles.of(s).last; ++at) {
        auto const& from = tiles[at];
        if (from.excluded) continue;
        auto const first = count(all);
        auto position = from.position;
        std::uint64_t const end = from.begin + from.size;
        for (std::uint64_t begin = from.begin; begin < end;) {
          std::uint64_t const size =
              std::min<std::uint64_t>(lengths[s] - (begin - segments[s].offset) % lengths[s], end - begin);
          all.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(size),
                         static_cast<std::uint32_t>(s), position});
          begin += size;
          position += static_cast<std::uint32_t>(size);
        }
        groups.push_back({first, count(all)});
      }
      elements.push_back(static_cast<std::uint32_t>(tiles.elements_of(s)));
    }
    first_group.push_back(count(groups));
    list_ = work.uploaded<cuda_kernels::device_bin>(all);
    groups_ = work.uploaded<cuda_kernels::bin_group>(groups);
    first_group_ = work.uploaded<std::uint32_t>(first_group);
    elements_ = work.uploaded<std::uint32_t>(elements);
    maxima_ = work.zeroed<float>(all.size());
    sums_ = work.zeroed<double>(groups.size());
    marks_ = work.zeroed<std::uint32_t>(n / 32 + 2);
    tickets_ = work.zeroed<std::uint32_t>(1);
    tables_ = {count(all),       count(groups),  list_.data(), groups_.data(), first_group_.data(),
               elements_.data(), maxima_.data(), sums_.data(), marks_.data(),  tickets_.data()};
  }

  [[nodiscard]] cuda_kernels::bin_tables const& tables() const noexcept { return tables_; }
  [[nodiscard]] float* means() const noexcept { return means_.data(); }  ///< per segment: of its bins' maxima

 private:
  cuda_kernels::bin_tables tables_;
  cuda_buffer<cuda_kernels::device_bin> list_;
  cuda_buffer<cuda_kernels::bin_group> groups_;
  cuda_buffer<std::uint32_t> first_group_, elements_, marks_, tickets_;
  cuda_buffer<float> maxima_, means_;
  cuda_buffer<double> sums_;
};

struct list_memory {
  cuda_buffer<index_type> indices;
  cuda_buffer<float> values;
  cuda_buffer<std::uint32_t> count, cells;
  std::uint64_t capacity = 0;

  /// Allocates an empty list for a gradient with so many cells.
  [[nodiscard]] static list_memory make(stream_work const& work, std::uint64_t capacity, std::uint32_t cells) {
    return {cuda_buffer<index_type>(work.where(), capacity), cuda_buffer<float>(work.where(), capacity),
            work.zeroed<std::uint32_t>(1), work.zeroed<std::uint32_t>(cells + 1), capacity};
  }

  [[nodiscard]] cuda_kernels::entry_list list() const noexcept {
    return {indices.data(), values.data(), count.data(), cells.data()};
  }
};

/// Segments of this step and of the last, by which an speculative pass has collected.
class speculative_memory {
 public:
  void want() noexcept { wanted_ = true; }  ///< from the next plan() on

  /// Allocates for `segments` with `capacity` candidates in all; returns the capacity that their memory needs. `open`:
  /// a word that is zero before an accumulate pass.
  [[nodiscard]] std::uint64_t plan(stream_work const& work, std::size_t segments, std::uint64_t capacity,
                                   std::uint32_t* open) {
    bool const runs = wanted_ && 2 * capacity <= std::numeric_limits<std::uint32_t>::max();
    planned_ = work.zeroed<cuda_kernels::device_segment>(runs ? 2 * segments : 0);
    candidates_ = {};
    if (!runs) return capacity;
    candidates_ = {planned_.data() + segments, planned_.data(), static_cast<std::uint32_t>(capacity), open};
    return 2 * capacity;
  }

  [[nodiscard]] cuda_kernels::speculative_candidates const& candidates() const noexcept { return candidates_; }

  [[nodiscard]] cuda_kernels::tables for_pass(cuda_kernels::tables tables) const noexcept {
    if (candidates_.apart != 0) tables.segments = planned_.data();
    return tables;
  }

  /// Uploads a step's segments: before its pass, or after one that has collected by the last step's.
  template <int = 0>
  void upload(stream_work const& work, std::span<cuda_kernels::device_segment const> table,
              std::span<cuda_kernels::device_segment> segments, cuda_kernels::tables const& tables) const {
    if (candidates_.apart == 0) return work.upload(table, segments);
    work.upload(table, planned_.first(table.size()));
    work.over<cuda_kernels::keep_candidates<>>(table.size(), segments.data(), tables, candidates_);
  }

 private:
  bool wanted_ = false;
  cuda_buffer<cuda_kernels::device_segment> planned_;
  cuda_kernels::speculative_candidates candidates_;
};

/// Memory that select_entries and write_entries share.
class choice_memory {
 public:
  /// Allocates for a step that selects at most `expected` entries among `capacity` candidates.
  void plan(stream_work const& work, std::size_t segments, std::uint64_t expected, std::uint64_t capacity) {
    using namespace cuda_kernels;
    auto const at_least = [](std::uint64_t a, std::uint64_t b) { return static_cast<std::uint32_t>((a + b - 1) / b); };
    auto const processors = static_cast<std::uint64_t>(work.processors());
    tables_.expected = expected;
    // As many parts as blocks run at the same time, with a few more candidates than entries.
    tables_.part = std::max(at_least(expected + expected / 8, write_blocks * processors * least_part), 1u) * least_part;
    tables_.part_count = at_least(capacity, tables_.part) + static_cast<std::uint32_t>(segments);
    choices_ = work.zeroed<segment_choice>(segments);
    part_kept_ = work.zeroed<std::uint64_t>(tables_.part_count);
    first_parts_ = work.zeroed<std::uint32_t>(segments + 1);
    words_ = work.zeroed<std::uint32_t>(2);
    tables_.choices = choices_.data();
    tables_.part_kept = part_kept_.data();
    tables_.first_parts = first_parts_.data();
    tables_.tickets = words_.data();
    tables_.part_tickets = words_.data() + 1;
  }

  [[nodiscard]] cuda_kernels::choice_tables const& tables() const noexcept { return tables_; }

 private:
  cuda_kernels::choice_tables tables_;
  cuda_buffer<cuda_kernels::segment_choice> choices_;
  cuda_buffer<std::uint64_t> part_kept_;
  cuda_buffer<std::uint32_t> first_parts_, words_;
};

}  // namespace gradsieve::detail
