// What ranks compare before they exchange anything.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/error.hpp>
#include <gradsieve/layout.hpp>

namespace gradsieve {

/// One rank's word at first contact.
struct rank_identity {
  std::array<std::uint64_t, 4> field{};

  rank_identity() = default;
  rank_identity(layout const& layers, std::uint64_t recipe, std::uint64_t step)
      : field{message_version, layers.hash() ^ layers.size(), recipe, step} {}

  /// @throws mismatch, naming what differs and where.
  static void require_equal(std::span<rank_identity const> all) {
    constexpr std::array names{"wire version", "layout", "recipe or density", "step"};
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t f = 0; f < names.size(); ++f)
        if (all[r].field[f] != all[0].field[f])
          throw mismatch("gradsieve: rank " + std::to_string(r) + " and rank 0 differ in " + names[f]);
  }
};

}  // namespace gradsieve
