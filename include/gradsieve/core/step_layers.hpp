// The treatment of each layer in a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/passthrough_layers.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/skipped_layers.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The layers of a step in lists of ranges, one per layer, in order. Without skipped layers they are the recipe's.
class step_layers {
 public:
  step_layers(layout const& layers, layer_split const& split)
      : layers_{layers}, split_{split}, passthrough_{split.passthrough}, excluded_{split.passthrough} {}

  [[nodiscard]] std::vector<range> const& passthrough() const noexcept { return passthrough_; }  ///< sent in full
  [[nodiscard]] std::vector<range> const& skipped() const noexcept { return skipped_; }          ///< not sent
  [[nodiscard]] std::vector<range> const& excluded() const noexcept { return excluded_; }  ///< both: not selected from
  [[nodiscard]] std::uint64_t skipped_elements() const noexcept { return skipped_elements_; }

  /// A hash of the skipped layers; 0 if none is skipped.
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }

  /// Makes later steps skip these layers. Cost: O(layers). Allocates. @pre chosen.check(layers)
  void skip(skipped_layers const& chosen) {
    std::vector<range> passthrough, skipped, excluded;
    std::uint64_t elements = 0;
    std::size_t next = 0;  // of the split's passthrough
    for (std::size_t i = 0; i < layers_.count(); ++i) {
      if (layers_[i].size == 0) continue;
      range const here{layers_.offset(i), layers_[i].size};
      bool const passes = next < split_.passthrough.size() && split_.passthrough[next].offset == here.offset;
      next += passes ? 1u : 0u;
      if (chosen[i]) {
        skipped.push_back(here);
        elements += here.size;
      } else if (passes) {
        passthrough.push_back(here);
      }
      if (chosen[i] || passes) excluded.push_back(here);
    }
    passthrough_.swap(passthrough);
    skipped_.swap(skipped);
    excluded_.swap(excluded);
    skipped_elements_ = elements;
    hash_ = chosen.hash();
  }

 private:
  layout const& layers_;
  layer_split const& split_;
  std::vector<range> passthrough_, skipped_, excluded_;
  std::uint64_t skipped_elements_ = 0;
  std::uint64_t hash_ = 0;
};

}  // namespace gradsieve::detail
