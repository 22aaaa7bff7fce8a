// How a gradient is cut for the cores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/selection.hpp>
#include <gradsieve/space/host_kernels.hpp>

namespace gradsieve {

/// The tiles of a gradient, in order: at most tile_size elements each, none across a border of a segment, of a
/// hole, or of the grid of multiples of tile_size; so sums by tile do not depend on the number of threads. Of segments
/// that have bins: whole bins, counted from the segment's first element, one at least.
/// Memory: 24 bytes a tile.
class host_tiles {
 public:
  static constexpr std::uint32_t no_segment = ~std::uint32_t{0};

  struct tile {
    std::uint64_t begin;
    std::uint32_t size;
    std::uint32_t segment;  // or no_segment
    bool hole;
    std::uint32_t position;  // elements of the segment before it, those in holes not counted
  };

  /// Segments and holes are each disjoint and in order. Allocates.
  void plan(std::uint64_t n, std::span<segment const> segments, std::span<range const> holes,
            std::span<std::uint32_t const> bins = {}) {
    holes_.assign(holes.begin(), holes.end());
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

  /// Elements of a segment, those in holes not counted.
  [[nodiscard]] std::uint64_t elements_of(std::uint64_t segment_id) const noexcept { return elements_[segment_id]; }

  [[nodiscard]] bool in_hole(std::uint64_t i) const noexcept {
    auto const behind = hole_behind(i);
    return behind != holes_.end() && behind->offset <= i;
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
      auto const behind = hole_behind(begin);
      bool const hole = behind != holes_.end() && behind->offset <= begin;
      if (behind != holes_.end()) next = std::min(next, hole ? behind->offset + behind->size : behind->offset);
      tiles_.push_back(
          {begin, static_cast<std::uint32_t>(next - begin), segment_id, hole, static_cast<std::uint32_t>(position_)});
      if (segment_id != no_segment && !hole) position_ += next - begin;
      begin = next;
    }
  }

  /// The first hole that ends behind an element.
  [[nodiscard]] std::vector<range>::const_iterator hole_behind(std::uint64_t i) const noexcept {
    return std::partition_point(holes_.begin(), holes_.end(),
                                [&](range const& each) { return each.offset + each.size <= i; });
  }

  std::uint64_t position_ = 0;  // of the segment that is being cut
  std::vector<range> holes_;
  std::vector<tile> tiles_;
  std::vector<bounds> bounds_;
  std::vector<std::uint64_t> elements_;  // of each segment
};

}  // namespace gradsieve
