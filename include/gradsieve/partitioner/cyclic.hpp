// One rank selects for all ranks, the next one in each step.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/leader.hpp>
#include <gradsieve/partitioner/whole.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// One rank selects for all ranks, the next one in each step: k = ceil(density * n) entries from all layers together,
/// as with `whole`, but only the leader selects: rank step % world. The update has k entries for any number of ranks,
/// and each rank selects in one step of `world`. All ranks are at the same step, also after a restart and in a world of
/// another size, so they agree on the leader. compress() without a communicator selects in every step.
/// When not: if the ranks' accumulators differ much. An entry that is large on one rank only waits up to `world` steps,
/// until that rank leads; the leader's selection is poor for the others. All ranks wait while it selects.
/// Cost: the selector's on the leader, none on the others.
/// Source: ScaleCom's cyclic local top-k (Chen et al., NeurIPS 2020).
struct cyclic {
  static constexpr char const* name = "cyclic";
  using default_exchange = leader;
  static constexpr partitioner_traits traits{
      .disjoint = true, .rotates = true, .within_layers = false, .single_owner = true};

  void split(std::span<range const> layers, int world, segment_list& list) const { whole{}.split(layers, world, list); }

  void assign(std::span<segment> segments, std::span<double const> squared_norms, step_budget const budget,
              partition_scratch& scratch) const {
    whole{}.assign(segments, squared_norms, budget, scratch);
    for (auto& each : segments) each.owner = static_cast<int>(budget.step % static_cast<std::uint64_t>(budget.world));
  }

  friend bool operator==(cyclic const&, cyclic const&) = default;
};
static_assert(partitioner<cyclic>);

}  // namespace gradsieve
