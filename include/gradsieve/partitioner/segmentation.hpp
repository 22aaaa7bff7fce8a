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
#include <gradsieve/core/random.hpp>
#include <gradsieve/partitioner/check_segments.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Length of the bins in each segment, if the selector has bins. Allocates.
/// @throws invalid_argument if a segment crosses a layer border that bins must not cross; for a length of 0.
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

/// Length of the bins in each layer, for message_info; empty if the selector has no bins. Allocates.
/// @throws invalid_argument for a length that the codec does not support, and as the selector's check_names(layers), if
/// it has one.
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
  /// Splits `elements` elements in these layers for a world. Allocates. @throws invalid_argument as segment_check.
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

  /// Sets the k and owner of every segment. If the partitioner throws, or its result is refused, no segment has
  /// entries. @throws invalid_argument as segment_check, and if a partitioner exceeds the density.
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

  /// A segment's part of the accumulator, in the form that selectors use.
  [[nodiscard]] accumulator_ref view(std::span<float const> accumulator, std::size_t s, std::uint64_t step) noexcept {
    auto const& each = segments_[s];
    return {accumulator.subspan(each.offset, each.size), each.offset, s, step, &warm_thresholds_[s]};
  }

  /// Whether a segment sends anything, and whether it sends all of its elements, which then need no indices.
  [[nodiscard]] static bool gives(segment const& each) noexcept { return each.k > 0 && each.size > 0; }
  [[nodiscard]] static bool sent_in_full(segment const& each) noexcept { return each.size > 0 && each.k == each.size; }

  /// The entries of all segments together: in this step, and the most in any step.
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
  segment_list planned_;  // as split() returned them, with no entries
  partition_scratch scratch_;
  std::vector<double> norms_;
  std::vector<warm_threshold> warm_thresholds_;  // of each segment
  std::vector<std::uint64_t> selectable_;        // elements of each segment that do not pass through
  std::uint64_t elements_ = 0;
  std::uint64_t most_ = 0;
  index_type budget_ = 0;
};

}  // namespace gradsieve::detail
