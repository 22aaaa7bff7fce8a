// The layers that a step leaves out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>  // and concepts of ranges, without all of <ranges>
#include <string>

#include <gradsieve/core/error.hpp>
#include <gradsieve/core/random.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Layers whose update the caller will not use in one step, such as those of parameters that no rank used: one byte or
/// bool for each layer of the layout, nonzero for a skipped layer. Empty or all zeros: none. A view of the caller's
/// memory, which is read during the call only. All ranks skip the same layers in a step. See compressor::exchange().
class skipped_layers {
 public:
  /// No layer is skipped.
  skipped_layers() = default;

  /// One element per layer: an array, vector or span of bool, char, unsigned char or std::byte, but not vector<bool>.
  template <std::ranges::contiguous_range Bytes>
    requires std::ranges::sized_range<Bytes> && (sizeof(std::ranges::range_value_t<Bytes>) == 1)
  skipped_layers(Bytes const& by_layer) noexcept
      : by_layer_{reinterpret_cast<unsigned char const*>(std::ranges::data(by_layer)), std::ranges::size(by_layer)} {}

  /// Number of layers it describes: those of the layout, or none.
  [[nodiscard]] std::size_t size() const noexcept { return by_layer_.size(); }

  /// True if a layer is skipped.
  [[nodiscard]] bool operator[](std::size_t i) const noexcept { return i < size() && by_layer_[i] != 0; }

  /// A hash of the skipped layers; 0 if none is skipped. Cost: O(layers).
  [[nodiscard]] std::uint64_t hash() const noexcept {
    std::uint64_t h = 0;
    for (std::size_t i = 0; i < size(); ++i)
      if ((*this)[i]) h = mix(h ^ mix(i + 1));
    return h;
  }

  /// @throws invalid_argument unless it describes this many layers, or none.
  void check(std::size_t layers) const {
    if (size() != 0 && size() != layers)
      throw invalid_argument("gradsieve: skipped_layers has " + std::to_string(size()) +
                             " elements, the layout has " + std::to_string(layers) + " layers");
  }

 private:
  std::span<unsigned char const> by_layer_;
};

}  // namespace gradsieve
