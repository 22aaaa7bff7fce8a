// The segments of a compressor, with their budgets, norms and warm thresholds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/density.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/random.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Checks the results of one partitioner's members; errors name the partitioner.
template <class Partitioner>
class segment_check {
 public:
  /// Checks the result of split(): ordered, disjoint segments within these layers that contain all their elements.
  /// Cost: O(layers + segments). @throws invalid_argument
  static void split(std::span<range const> layers, std::span<segment const> segments) {
    std::uint64_t const end = layers.empty() ? 0 : layers.back().offset + layers.back().size;
    std::uint64_t covered = layers.empty() ? 0 : layers.front().offset;  // no segment may begin before this
    std::size_t next = 0;                                                // the first layer not known to be covered
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto const [offset, size] = range{segments[s].offset, segments[s].size};
      if (offset > end || size > end - offset)
        refuse_split("segment " + text_of(s, segments[s]) + " ends behind the last layer, at " + std::to_string(end));
      if (size == 0) continue;
      if (offset < covered)
        refuse_split("segment " + text_of(s, segments[s]) + " begins before element " + std::to_string(covered) +
                     ", where the segment before it ends or the first layer begins");
      next = require_covered(layers, next, covered, offset);
      covered = offset + size;
      if constexpr (Partitioner::traits.within_layers.value_or(false))
        if (!within_one(layers, next, segments[s]))
          refuse_split("segment " + text_of(s, segments[s]) + " is not within one layer, as within_layers promises");
    }
    require_covered(layers, next, covered, end);
  }

  /// Checks that assign() has set valid k and owners, and nothing else. Cost: O(segments). @throws invalid_argument
  static void assign(Partitioner const& how, std::span<segment const> planned, std::span<segment const> segments,
                     int world) {
    int owner = segment::every_rank;  // of all segments with entries, if single_owner is promised
    bool found = false;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      auto const& each = segments[s];
      if (each.offset != planned[s].offset || each.size != planned[s].size)
        refuse_assign("moved segment " + text_of(s, planned[s]) + " to offset " + std::to_string(each.offset) +
                      ", size " + std::to_string(each.size) + "; only k and owner are its to set");
      if (each.k > each.size)
        throw invalid_argument("gradsieve: " + who() + " gives " + std::to_string(each.k) +
                               " entries of a segment of " + std::to_string(each.size));
      if (each.owner < segment::every_rank || each.owner >= world)
        refuse_assign("gave segment " + text_of(s, each) + " the owner " + std::to_string(each.owner) +
                      ", expected a rank below " + std::to_string(world) + ", or every_rank");
      if (each.k == 0 || each.k == each.size || world == 1) continue;  // every rank may own what is sent in full
      if (is_disjoint(how) && each.owner == segment::every_rank)
        refuse_assign("gave segment " + text_of(s, each) +
                      " to every rank; as disjoint promises, one rank selects from a segment");
      if constexpr (Partitioner::traits.single_owner.value_or(false))
        if (found && each.owner != owner)
          refuse_assign("gave segment " + text_of(s, each) + " to rank " + std::to_string(each.owner) +
                        ", another to rank " + std::to_string(owner) +
                        "; as single_owner promises, one rank selects in a step");
      owner = each.owner;
      found = true;
    }
  }

  [[nodiscard]] static std::string who() { return "the " + titled<Partitioner>("partitioner"); }

 private:
  [[noreturn]] static void refuse_split(std::string const& what) {
    throw invalid_argument("gradsieve: " + who() + "'s split(): " + what);
  }
  [[noreturn]] static void refuse_assign(std::string const& what) {
    throw invalid_argument("gradsieve: " + who() + "'s assign() " + what);
  }
  [[nodiscard]] static std::string text_of(std::size_t s, segment const& each) {
    return std::to_string(s) + " (offset " + std::to_string(each.offset) + ", size " + std::to_string(each.size) + ")";
  }

  /// Checks that no layer has elements in [covered, to). Returns the first layer that ends after `to`.
  static std::size_t require_covered(std::span<range const> layers, std::size_t next, std::uint64_t covered,
                                     std::uint64_t to) {
    for (; next < layers.size() && layers[next].offset < to; ++next) {
      std::uint64_t const first = larger(covered, layers[next].offset);
      std::uint64_t const last = smaller(to, layers[next].offset + layers[next].size);
      if (first < last)
        refuse_split("elements " + std::to_string(first) + " to " + std::to_string(last - 1) +
                     " are in no segment, so that they would never be sent");
      if (layers[next].offset + layers[next].size > to) break;
    }
    return next;
  }

  /// @pre layers[next] is the first layer that ends after the segment's begin
  [[nodiscard]] static bool within_one(std::span<range const> layers, std::size_t next, segment const& each) {
    return next < layers.size() && each.offset >= layers[next].offset &&
           each.offset + each.size <= layers[next].offset + layers[next].size;
  }
};

/// Bin length of each segment, if the selector has bins. Allocates. @throws invalid_argument if a segment crosses a
/// layer border that bins must not cross; for a length of 0.
template <class Selector>
[[nodiscard]] std::vector<std::uint32_t> bin_lengths_of(Selector const& chosen, layout const& layers,
                                                        std::span<segment const> segments) {
  std::vector<std::uint32_t> lengths;
  with_chosen(chosen, [&]<class One>(One const& it) {
    if constexpr (bin_selector<One>) {
      std::size_t at = 0;  // the layer that a segment begins in; segments are in order
      for (auto const& each : segments) {
        while (at < layers.count() && layers.offset(at + 1) <= each.offset) ++at;
        if (each.size == 0 || at == layers.count()) {
          lengths.push_back(1);
          continue;
        }
        if (layer_bin_selector<One> && each.offset + each.size > layers.offset(at + 1))
          throw invalid_argument("gradsieve: bins do not cross layers: this selector needs the partitioner layerwise");
        lengths.push_back(it.bin_length(layers.plain(at)));
        if (lengths.back() == 0)
          throw invalid_argument("gradsieve: a bin of layer '" + layers[at].name + "' has no elements");
      }
    }
  });
  return lengths;
}

/// Bin length of each layer, for message_info; empty if the selector has no bins. Allocates. @throws invalid_argument
/// for a length that the codec does not support, and as the selector's check_names(layers), if it has one.
template <class Selector, class Codec>
[[nodiscard]] std::vector<std::uint32_t> layer_bins_of(Selector const& chosen, Codec const& how,
                                                       layout const& layers) {
  std::uint32_t const longest = with_chosen(how, []<class One>(One const&) {
    if constexpr (bin_codec<One>) return One::longest_bin;
    return std::uint32_t{0};  // any
  });
  std::vector<std::uint32_t> lengths;
  with_chosen(chosen, [&]<class One>(One const& it) {
    if constexpr (requires { it.check_names(layers); }) it.check_names(layers);
    if constexpr (bin_selector<One>) {
      for (auto const& each : layers.plain()) {
        lengths.push_back(it.bin_length(each));
        if (longest > 0 && (lengths.back() < 1 || lengths.back() > longest))
          throw invalid_argument("gradsieve: a bin of layer '" + each.name + "' has " + std::to_string(lengths.back()) +
                                 " elements, this codec takes 1 to " + std::to_string(longest));
      }
    }
  });
  return lengths;
}

/// The segments of one gradient in one world.
template <class Partitioner>
class segmentation {
 public:
  /// Splits these layers, of `elements` elements, for a world. Allocates. @throws invalid_argument as segment_check.
  void plan(Partitioner const& how, std::span<range const> layers, std::uint64_t elements, double most_density,
            int world) {
    elements_ = elements;
    segments_.clear();
    how.split(layers, world, segments_);
    segment_check<Partitioner>::split(layers, segments_);
    for (auto& each : segments_) each.k = 0;
    planned_ = segments_;
    count_elements(layers);
    most_ = std::min<std::uint64_t>(budget_of(most_density, elements) + segments_.size(), elements);
    norms_.assign(segments_.size() + 1, 0);
    scratch_.order.assign(segments_.size(), 0);
    scratch_.weight.assign(segments_.size(), 0);
    scratch_.loads.assign(static_cast<std::size_t>(world), {});
    warm_thresholds_.reserve(segments_.size());
  }

  /// Sets the k and owner of every segment; if it throws, no segment has entries. @throws invalid_argument as
  /// segment_check, and if a partitioner exceeds the density.
  void assign(Partitioner const& how, double density, std::uint64_t step, int world) {
    try {
      scratch_.loads.resize(static_cast<std::size_t>(world));
      how.assign(segments_, std::span<double const>{norms_}.first(segments_.size()), {density, elements_, step, world},
                 scratch_);
      segment_check<Partitioner>::assign(how, planned_, segments_, world);
      std::uint64_t total = 0;
      for (std::size_t s = 0; s < segments_.size(); ++s)
        total += sent_in_full(segments_[s]) ? selectable_[s] : segments_[s].k;
      budget_ = static_cast<index_type>(std::min(total, elements_));
      if (budget_ > most_)
        throw invalid_argument("gradsieve: " + segment_check<Partitioner>::who() + " gives " + std::to_string(total) +
                               " entries, the density allows " + std::to_string(most_));
    } catch (...) {
      std::ranges::copy(planned_, segments_.begin());
      budget_ = 0;
      throw;
    }
  }

  [[nodiscard]] std::span<segment const> all() const noexcept { return segments_; }
  [[nodiscard]] std::size_t size() const noexcept { return segments_.size(); }
  [[nodiscard]] segment const& operator[](std::size_t s) const noexcept { return segments_[s]; }

  [[nodiscard]] accumulator_ref view(std::span<float const> accumulator, std::size_t s, std::uint64_t step) noexcept {
    auto const& each = segments_[s];
    return {accumulator.subspan(each.offset, each.size), each.offset, s, step, &warm_thresholds_[s]};
  }

  /// True if a segment sends anything; sent_in_full(): all of its elements, which then need no indices.
  [[nodiscard]] static bool gives(segment const& each) noexcept { return each.k > 0 && each.size > 0; }
  [[nodiscard]] static bool sent_in_full(segment const& each) noexcept { return each.size > 0 && each.k == each.size; }

  /// Entries of all segments: budget() in this step, most() in any step.
  [[nodiscard]] index_type budget() const noexcept { return budget_; }
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }

  /// Squared norms, one per segment, and a last element for the caller.
  [[nodiscard]] std::span<double> norms() noexcept { return norms_; }

  [[nodiscard]] std::vector<warm_threshold>& warm_thresholds() noexcept { return warm_thresholds_; }
  [[nodiscard]] std::vector<warm_threshold> const& warm_thresholds() const noexcept { return warm_thresholds_; }

  /// A number that differs if ranks divide the work differently.
  [[nodiscard]] std::uint64_t decision(std::uint64_t step) const noexcept {
    std::uint64_t h = mix(step);
    for (auto const& each : segments_)
      h = mix(h ^ (std::uint64_t{each.k} << 32 | static_cast<std::uint32_t>(each.owner)));
    return h;
  }

 private:
  /// Counts each segment's elements that lie in layers; both are in order. Allocates.
  void count_elements(std::span<range const> layers) {
    selectable_.assign(segments_.size(), 0);
    std::size_t first = 0;  // layer that does not end before the segment
    for (std::size_t s = 0; s < segments_.size(); ++s) {
      auto const begin = segments_[s].offset;
      auto const end = begin + segments_[s].size;
      while (first < layers.size() && layers[first].offset + layers[first].size <= begin) ++first;
      for (std::size_t l = first; l < layers.size() && layers[l].offset < end; ++l)
        selectable_[s] += std::min(end, layers[l].offset + layers[l].size) - std::max(begin, layers[l].offset);
    }
  }

  segment_list segments_;
  segment_list planned_;  // as split() returned them, without entries
  partition_scratch scratch_;
  std::vector<double> norms_;
  std::vector<warm_threshold> warm_thresholds_;  // of each segment
  std::vector<std::uint64_t> selectable_;        // elements of each segment that do not pass through
  std::uint64_t elements_ = 0;
  std::uint64_t most_ = 0;
  index_type budget_ = 0;
};

}  // namespace gradsieve::detail
