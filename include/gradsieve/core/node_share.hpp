// Which part of a gradient each rank of a node has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/core/layout.hpp>

namespace gradsieve {

/// The part of a gradient of n elements that is one rank's, of a node with so many: all parts have the same room, in
/// rank order, and the last ones may be shorter, or empty, as the gradient ends before them.
struct node_share {
  std::uint64_t n = 0;
  int ranks = 1;
  int rank = 0;

  /// Elements that each rank has room for.
  [[nodiscard]] constexpr std::uint64_t room() const noexcept {
    auto const count = static_cast<std::uint64_t>(ranks);
    return (n + count - 1) / count;
  }
  /// Elements that all ranks have room for: n, or up to ranks - 1 more.
  [[nodiscard]] constexpr std::uint64_t room_of_all() const noexcept {
    return room() * static_cast<std::uint64_t>(ranks);
  }
  [[nodiscard]] constexpr std::uint64_t begin() const noexcept {
    return std::min(n, room() * static_cast<std::uint64_t>(rank));
  }
  [[nodiscard]] constexpr std::uint64_t end() const noexcept { return std::min(n, begin() + room()); }
  [[nodiscard]] constexpr std::uint64_t size() const noexcept { return end() - begin(); }

  /// The layers of this part, cut where it begins and ends, under their names. In a node of several ranks an empty
  /// layer follows that names the part: so layouts of different parts, and their checkpoints, are told apart.
  /// @pre n is the layout's size. Allocates.
  [[nodiscard]] layout cut(layout const& all) const {
    if (ranks == 1) return all;
    std::vector<layer> parts;
    for (std::size_t i = 0; i < all.count(); ++i) {
      auto const from = std::max(begin(), all.offset(i));
      auto const to = std::min(end(), all.offset(i) + all[i].size);
      if (from < to) parts.push_back({all[i].name, to - from});
    }
    parts.push_back({"share " + std::to_string(rank) + " of " + std::to_string(ranks), 0});
    return layout{std::move(parts)};
  }

  friend bool operator==(node_share const&, node_share const&) = default;
};

}  // namespace gradsieve
