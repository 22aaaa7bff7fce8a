// What it costs to select from a fragment: the weight that DEFT packs by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <gradsieve/types.hpp>

namespace gradsieve {

/// Time of selecting k of n entries as fixed + per_element * n + per_selected * k, in any unit. All zero: the
/// paper's n * log2 k. measure_selection_cost() fits it to a machine; all ranks must hold the same.
struct selection_cost {
  double fixed = 0;
  double per_element = 0;
  double per_selected = 0;

  [[nodiscard]] double operator()(std::uint64_t n, index_type k) const noexcept {
    auto const elements = static_cast<double>(n);
    if (*this == selection_cost{}) return elements * std::max(1.0, std::log2(static_cast<double>(k)));
    return fixed + per_element * elements + per_selected * static_cast<double>(k);
  }

  friend bool operator==(selection_cost const&, selection_cost const&) = default;
};

}  // namespace gradsieve
