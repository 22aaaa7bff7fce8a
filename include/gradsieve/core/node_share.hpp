// The part of a gradient that each rank of a node owns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/skipped_layers.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One rank's part of a gradient of n elements that the ranks of a node share: consecutive parts of equal capacity in
/// rank order. If n is not a multiple of the ranks, the last parts are shorter, or empty.
struct node_share {
  std::uint64_t n = 0;  ///< elements of the whole gradient
  int ranks = 1;        ///< of the node
  int rank = 0;         ///< in the node

  /// The capacity of each part, in elements.
  [[nodiscard]] constexpr std::uint64_t capacity() const noexcept {
    auto const count = static_cast<std::uint64_t>(ranks);
    return (n + count - 1) / count;
  }
  /// The capacity of all parts: n, or up to ranks - 1 more.
  [[nodiscard]] constexpr std::uint64_t total_capacity() const noexcept {
    return capacity() * static_cast<std::uint64_t>(ranks);
  }
  /// The part's first element.
  [[nodiscard]] constexpr std::uint64_t begin() const noexcept {
    return std::min(n, capacity() * static_cast<std::uint64_t>(rank));
  }
  /// The end of the part.
  [[nodiscard]] constexpr std::uint64_t end() const noexcept { return std::min(n, begin() + capacity()); }
  /// Number of elements of the part.
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end() - begin(); }

  /// The layers of this part, with their names, cut at its borders. In a node of several ranks an empty layer that
  /// names the part follows, so that layouts and checkpoints of different parts differ. Allocates. @pre n is the
  /// layout's size
  [[nodiscard]] layout cut(layout const& all) const {
    if (ranks == 1) return all;
    std::vector<layer> parts;
    for (std::size_t i = 0; i < all.count(); ++i) {
      auto const from = std::max(begin(), all.offset(i));
      auto const to = std::min(end(), all.offset(i) + all[i].size);
      if (from >= to) continue;
      parts.push_back(all[i]);
      parts.back().size = to - from;
    }
    parts.push_back({"share " + std::to_string(rank) + " of " + std::to_string(ranks), 0});
    return all.part(std::move(parts));
  }

  /// Writes which layers of cut(all) are skipped; nothing if none is.
  void cut(layout const& all, skipped_layers const skipped, std::vector<unsigned char>& of_part) const {
    of_part.clear();
    if (skipped.hash() == 0) return;
    for (std::size_t i = 0; i < all.count(); ++i) {
      bool const is_here = std::max(begin(), all.offset(i)) < std::min(end(), all.offset(i) + all[i].size);
      if (is_here || ranks == 1) of_part.push_back(skipped[i] ? 1 : 0);
    }
    if (ranks > 1) of_part.push_back(0);
  }

  friend bool operator==(node_share const&, node_share const&) = default;
};

}  // namespace gradsieve
