// Equal parts of the gradient; each rank selects from one part, the next one in each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/exchange/index_union.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Each rank selects from one part of the gradient, the next one in each step. All layers except passthrough layers are
/// cut into `world` parts of equal size, across layer borders; each part sends k / world entries, at least one. In each
/// step only rank (p + step) % world selects from part p: selections never overlap, the update has k entries for any
/// number of ranks (at least one per rank), and a rank selects from n / world elements.
/// When not: if parts differ in scale, as each sends the same number; `deft` divides k by norms. If ranks see different
/// kinds of data, an entry that is large on one rank only waits up to `world` steps until that rank owns its part.
/// Cost: the selector's for 1 / world of the elements.
/// Source: MiCRO (Yoon and Oh, HiPC 2023) for the parts and their rotation. Its threshold, shared by all parts and
/// changed by a fixed factor in each step, is not implemented: the recipe's selector finds k / world entries per part.
struct micro {
  static constexpr char const* name = "micro";
  using default_exchange = index_union;
  static constexpr partitioner_traits traits{
      .disjoint = true, .rotates = true, .within_layers = false, .single_owner = false};

  void split(std::span<range const> layers, int world, segment_list& list) const {
    std::uint64_t total = 0;
    for (auto const& each : layers) total += each.size;
    if (total == 0) return;
    auto const parts = static_cast<std::uint64_t>(world);
    std::size_t l = 0;
    std::uint64_t before = 0;  // elements of the layers before l
    for (std::uint64_t p = 0; p < parts; ++p) {
      std::uint64_t const from = begin_of(p, total, parts);
      std::uint64_t const to = begin_of(p + 1, total, parts);
      while (l + 1 < layers.size() && before + layers[l].size <= from) before += layers[l++].size;
      std::uint64_t const begin = layers[l].offset + (from - before);
      std::uint64_t end = begin;
      if (from < to) {
        while (before + layers[l].size < to) before += layers[l++].size;
        end = layers[l].offset + (to - before);
      }
      list.push_back({.offset = begin, .size = end - begin});
    }
  }

  void assign(std::span<segment> segments, std::span<double const>, step_budget const budget,
              partition_scratch&) const {
    std::uint64_t const all = budget.elements;
    std::uint64_t const k = budget_of(budget.density, all);
    std::uint64_t const parts = segments.size();
    for (std::uint64_t p = 0; p < parts && all > 0; ++p) {
      auto& each = segments[p];
      std::uint64_t const from = begin_of(p, all, parts);
      std::uint64_t const to = begin_of(p + 1, all, parts);
      std::uint64_t const elements = to - from;
      std::uint64_t const share = share_of(k, to, all, 0) - share_of(k, from, all, 0);
      std::uint64_t const least = k > 0 && elements > 0 ? 1 : 0;
      std::uint64_t const given = share < least ? least : share;
      // layers that pass through lie within parts and are zero: only `elements` can be sent
      each.k = static_cast<index_type>(given >= elements ? each.size : given);
      each.owner = static_cast<int>((p + budget.step) % static_cast<std::uint64_t>(budget.world));
    }
  }

  friend bool operator==(micro const&, micro const&) = default;

 private:
  /// Elements of the first p of `parts` parts.
  static constexpr std::uint64_t begin_of(std::uint64_t p, std::uint64_t elements, std::uint64_t parts) noexcept {
    return elements * p / parts;
  }
};
static_assert(partitioner<micro>);

}  // namespace gradsieve
