// The whole gradient as one segment.
#pragma once

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/gather.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Every rank selects k = ceil(density * n) entries from all layers together. The default partitioner.
/// When not: with many ranks, as their selections hardly overlap and the update of P ranks grows to as many as n (1 -
/// (1 - density)^P) entries; if layers differ so much in scale that some are never selected from.
struct whole {
  static constexpr char const* name = "whole";
  using default_exchange = gather;
  static constexpr partitioner_traits traits{.within_layers = false, .single_owner = false};  ///< its properties

  void split(std::span<range const> layers, int, segment_list& list) const {
    if (layers.empty()) return;
    auto const first = layers.front().offset;
    list.push_back({first, layers.back().offset + layers.back().size - first});
  }

  void assign(std::span<segment> segments, std::span<double const>, step_budget const budget,
              partition_scratch&) const {
    for (auto& each : segments) {  // passthrough layers lie within and are zero: only `elements` can be sent
      each.k = budget_of(budget.density, budget.elements);
      if (each.k == budget.elements) each.k = static_cast<index_type>(each.size);
    }
  }

  friend bool operator==(whole const&, whole const&) = default;
};
static_assert(partitioner<whole>);

}  // namespace gradsieve
