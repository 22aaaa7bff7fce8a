// DEFT: the ranks share out the selection, by layers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include <gradsieve/concepts.hpp>
#include <gradsieve/fields.hpp>
#include <gradsieve/partitioner/selection_cost.hpp>

namespace gradsieve {

struct index_union;  // exchange/index_union.hpp

/// Each fragment of the gradient is selected from by one rank only, so the choices never overlap, the update
/// stays at k entries for any number of ranks, and each rank's selection costs about 1 / world.
/// Layers larger than n / world are cut into `world` fragments; k is shared out by the fragments' norms,
/// all-reduced so that all ranks decide alike; fragments are packed into one bin a rank, longest first; the bins
/// rotate. k entries in all, where enough elements differ from zero; each fragment gives at least one while k
/// reaches; a fragment that is sent whole is all-reduced without indices.
/// When not: it is not the global top-k: large values in layers of small norm wait longer.
/// Cost: O(m log m) a step for m fragments, one all-reduce of m doubles, statistics in the accumulate pass.
/// Source: DEFT (Yoon and Oh, ICPP 2023), with globally agreed norms in place of the leader's broadcast.
struct deft {
  static constexpr char const* name = "deft";
  static constexpr auto fields() { return std::tuple{field<&deft::cost>{"cost"}}; }
  using default_exchange = index_union;
  static constexpr bool needs_norms = true;
  static constexpr bool disjoint = true;

  selection_cost cost{};

  void cut(std::span<range const> layers, int world, segment_list& list) const {
    std::uint64_t total = 0;
    for (auto const& each : layers) total += each.size;
    auto const ranks = static_cast<std::uint64_t>(world);
    for (auto const& each : layers) {
      if (each.size == 0) continue;
      // more than n / world, in integers; never more fragments than elements
      std::uint64_t const parts = each.size * ranks > total ? std::min(ranks, each.size) : 1;
      for (std::uint64_t p = 0; p < parts; ++p) {
        std::uint64_t const from = each.size * p / parts;
        list.push_back({each.offset + from, each.size * (p + 1) / parts - from});
      }
    }
  }

  void assign(std::span<segment> segments, std::span<double const> squared_norms, step_budget const budget,
              partition_scratch& scratch) const {
    share_out(segments, squared_norms, budget_of(budget.density, budget.elements), scratch);
    pack(segments, budget, scratch);
  }

  friend bool operator==(deft const&, deft const&) = default;

 private:
  /// k by norm, largest first: what one fragment cannot hold goes to those after it, and then round again.
  static void share_out(std::span<segment> segments, std::span<double const> squared_norms, index_type k,
                        partition_scratch& scratch) {
    auto& norm = scratch.weight;
    double norm_left = 0;
    std::uint64_t fragments_left = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      norm[i] = squared_norms[i] > 0 ? std::sqrt(squared_norms[i]) : 0;  // NaN counts as zero
      segments[i].k = 0;
      norm_left += norm[i];
      fragments_left += norm[i] > 0 ? 1 : 0;
    }
    by_weight(segments.size(), scratch);
    for (auto const i : scratch.order) {
      if (norm[i] == 0 || k == 0) break;
      double const share = norm_left > 0 ? static_cast<double>(k) * (norm[i] / norm_left) : 0;
      auto wanted = static_cast<std::uint64_t>(std::llround(std::min(share, static_cast<double>(k))));
      if (k >= fragments_left) wanted = std::min<std::uint64_t>(wanted, k - (fragments_left - 1));
      if (k >= fragments_left || wanted == 0) wanted = std::max<std::uint64_t>(wanted, 1);
      segments[i].k = static_cast<index_type>(std::min({wanted, segments[i].size, std::uint64_t{k}}));
      k -= segments[i].k;
      norm_left -= norm[i];
      --fragments_left;
    }
    for (auto const i : scratch.order) {
      if (norm[i] == 0 || k == 0) break;
      auto const more = static_cast<index_type>(std::min<std::uint64_t>(k, segments[i].size - segments[i].k));
      segments[i].k += more;
      k -= more;
    }
  }

  /// Longest processing time first, into the bin with the least work; bin b belongs to rank (b - step) mod world.
  void pack(std::span<segment> segments, step_budget const budget, partition_scratch& scratch) const {
    auto const world = static_cast<std::uint64_t>(budget.world);
    for (std::size_t i = 0; i < segments.size(); ++i) {
      bool const sent_whole = segments[i].k == segments[i].size;
      scratch.weight[i] = segments[i].k == 0 || sent_whole ? 0 : cost(segments[i].size, segments[i].k);
      segments[i].owner = segment::every_rank;
    }
    by_weight(segments.size(), scratch);
    auto& loads = scratch.loads;  // a heap: least load on top, then the smallest bin
    for (std::size_t b = 0; b < loads.size(); ++b) loads[b] = {0.0, static_cast<int>(b)};
    for (auto const i : scratch.order) {
      if (segments[i].k == 0 || segments[i].k == segments[i].size) continue;
      std::pop_heap(loads.begin(), loads.end(), std::greater<>{});
      auto& [load, bin] = loads.back();
      load += scratch.weight[i];
      segments[i].owner = static_cast<int>((static_cast<std::uint64_t>(bin) + world - budget.step % world) % world);
      std::push_heap(loads.begin(), loads.end(), std::greater<>{});
    }
  }

  static void by_weight(std::size_t count, partition_scratch& scratch) {
    for (std::size_t i = 0; i < count; ++i) scratch.order[i] = static_cast<index_type>(i);
    std::sort(scratch.order.begin(), scratch.order.end(), [&](index_type a, index_type b) {
      return scratch.weight[a] != scratch.weight[b] ? scratch.weight[a] > scratch.weight[b] : a < b;
    });
  }
};
static_assert(partitioner<deft>);

}  // namespace gradsieve
