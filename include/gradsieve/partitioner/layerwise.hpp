// A segment for each layer.
#pragma once

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/gather.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Every rank selects k = ceil(density * size) entries from each layer, so every layer sends at least one.
/// When not: with many ranks (see `whole`), and with very many small layers, as each sends an entry.
struct layerwise {
  static constexpr char const* name = "layerwise";
  using default_exchange = gather;
  static constexpr partitioner_traits traits{.within_layers = true, .single_owner = false};  ///< its properties

  void split(std::span<range const> layers, int, segment_list& list) const {
    for (auto const& each : layers) list.push_back({each.offset, each.size});
  }

  void assign(std::span<segment> segments, std::span<double const>, step_budget const budget,
              partition_scratch&) const {
    for (auto& each : segments) each.k = budget_of(budget.density, each.size);
  }

  friend bool operator==(layerwise const&, layerwise const&) = default;
};
static_assert(partitioner<layerwise>);

}  // namespace gradsieve
