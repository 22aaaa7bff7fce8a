// The division of a gradient into tiles for the cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/host/passes/kernels.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The tiles of a gradient, in order: at most tile_size elements each, none across a border of a segment, of an
/// excluded range (passthrough and skipped layers), or of the grid of multiples of tile_size; so sums by tile do not
/// depend on the number of threads. In segments with bins: whole bins, at least one. Memory: 24 bytes per tile.
class host_tiles {
 public:
  static constexpr std::uint32_t no_segment = ~std::uint32_t{0};

  struct tile {
    std::uint64_t begin;
    std::uint32_t size;
    std::uint32_t segment;  // or no_segment
    bool excluded;
    std::uint32_t position;  // elements of the segment before it, without excluded ones
  };

  /// Segments and excluded ranges are each disjoint and in order. Allocates.
  void plan(std::uint64_t n, std::span<segment const> segments, std::span<range const> excluded,
            std::span<std::uint32_t const> bins = {}) {
    excluded_.assign(excluded.begin(), excluded.end());
    tiles_.clear();
    bounds_.clear();
    elements_.clear();
    position_ = 0;
    std::uint64_t at = 0;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      add(at, segments[s].offset, no_segment, {});
      auto const first = tiles_.size();
      at = segments[s].offset + segments[s].size;
      grid lines;
      if (!bins.empty())
        lines = {segments[s].offset, std::max<std::uint64_t>(host_kernels::tile_size / bins[s], 1) * bins[s]};
      add(segments[s].offset, at, static_cast<std::uint32_t>(s), lines);
      bounds_.push_back({first, tiles_.size()});
      elements_.push_back(position_);
      position_ = 0;
    }
    add(at, n, no_segment, {});
  }

  [[nodiscard]] std::size_t size() const noexcept { return tiles_.size(); }
  [[nodiscard]] tile const& operator[](std::size_t t) const noexcept { return tiles_[t]; }

  /// Tiles of a segment: [first, last).
  struct bounds {
    std::uint64_t first;
    std::uint64_t last;
    [[nodiscard]] std::uint64_t count() const noexcept { return last - first; }
  };
  [[nodiscard]] bounds const& of(std::uint64_t segment_id) const noexcept { return bounds_[segment_id]; }

  /// Number of elements of a segment outside excluded ranges.
  [[nodiscard]] std::uint64_t elements_of(std::uint64_t segment_id) const noexcept { return elements_[segment_id]; }

  /// A segment's selectable element at this position. Cost: O(log tiles). @pre position < elements_of(segment_id)
  [[nodiscard]] std::uint64_t selectable(std::uint64_t segment_id, std::uint64_t position) const noexcept {
    auto const first = tiles_.begin() + static_cast<std::ptrdiff_t>(of(segment_id).first);
    auto const last = tiles_.begin() + static_cast<std::ptrdiff_t>(of(segment_id).last);
    auto const behind = std::partition_point(first, last, [&](tile const& each) { return each.position <= position; });
    return behind[-1].begin + (position - behind[-1].position);  // excluded tiles precede the next one's position
  }

  [[nodiscard]] bool is_excluded(std::uint64_t i) const noexcept {
    auto const behind = excluded_behind(i);
    return behind != excluded_.end() && behind->offset <= i;
  }

 private:
  /// Tiles end at `first` + multiples of `step`.
  struct grid {
    std::uint64_t first = 0;
    std::uint64_t step = host_kernels::tile_size;
  };

  void add(std::uint64_t begin, std::uint64_t end, std::uint32_t segment_id, grid const lines) {
    while (begin < end) {
      auto next = std::min(end, lines.first + ((begin - lines.first) / lines.step + 1) * lines.step);
      auto const behind = excluded_behind(begin);
      bool const excluded = behind != excluded_.end() && behind->offset <= begin;
      if (behind != excluded_.end())
        next = std::min(next, excluded ? behind->offset + behind->size : behind->offset);
      tiles_.push_back({begin, static_cast<std::uint32_t>(next - begin), segment_id, excluded,
                        static_cast<std::uint32_t>(position_)});
      if (segment_id != no_segment && !excluded) position_ += next - begin;
      begin = next;
    }
  }

  /// The first excluded range that ends behind element i.
  [[nodiscard]] std::vector<range>::const_iterator excluded_behind(std::uint64_t i) const noexcept {
    return std::partition_point(excluded_.begin(), excluded_.end(),
                                [&](range const& each) { return each.offset + each.size <= i; });
  }

  std::uint64_t position_ = 0;  // in the segment that is being split
  std::vector<range> excluded_;
  std::vector<tile> tiles_;
  std::vector<bounds> bounds_;
  std::vector<std::uint64_t> elements_;  // of each segment
};

}  // namespace gradsieve::detail
