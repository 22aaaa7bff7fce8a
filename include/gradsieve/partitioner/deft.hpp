// DEFT: the ranks divide the selection among themselves, by layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/plain_output.hpp>
#include <gradsieve/core/power.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/exchange/index_union.hpp>
#include <gradsieve/partitioner/selection_cost.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Rules by which deft divides k among fragments.
enum class deft_sharing {
  by_layer,    ///< among layers by their norms, then each layer's share among its fragments by theirs
  by_fragment  ///< among all fragments by their norms, as published
};
template <>
inline constexpr std::array value_names<deft_sharing>{std::string_view{"by_layer"}, std::string_view{"by_fragment"}};

/// The ranks divide the selection among themselves: only one rank selects from each fragment of the gradient, so
/// selections never overlap, the update has k entries for any number of ranks, and a rank's selection costs about 1 /
/// world. Layers larger than n / world are split into `world` fragments. k is divided by norms, which are all-reduced
/// so that all ranks get the same result. Fragments are packed into one bin per rank, the most costly first. There are
/// k entries in all, if enough elements are nonzero; each fragment has at least one if k suffices; a fragment that is
/// sent in full is all-reduced without indices.
///
/// `by_layer` assigns a layer about the same number of entries for any number of ranks: each of its fragments has at
/// least one. `by_fragment` favours layers that are split, as the norms of P fragments add up to about sqrt(P) times
/// their layer's. A rank selects from the same fragments for `rotate_every` steps; then the bins move on by one rank.
/// Some elements of a rank's accumulator are large only because of the noise of its own samples. With bins that rotate
/// in every step, as published, entries are spent on the noise of all ranks in turn, and elements that are large in the
/// sum are sent later. With momentum_correction at a density of 0.1 % or less training may then fail.
///
/// When not: if the global top-k is needed, as large values in layers of small norm are sent later. If ranks see
/// different kinds of data, an element that is nonzero on one rank only is not sent for up to world * rotate_every
/// steps, until that rank owns its fragment; choose a smaller rotate_every.
/// Cost: O(m log m) per step for m fragments, one all-reduce of m doubles, statistics in the accumulate pass.
/// Source: DEFT (Yoon and Oh, ICPP 2023), with all-reduced norms instead of the leader's broadcast, and bins that do
/// not depend on norms. `deft{.sharing = deft_sharing::by_fragment, .rotate_every = 1}` is as published.
struct deft {
  static constexpr char const* name = "deft";
  static constexpr auto fields() {
    return std::tuple{field<&deft::cost>{"cost"}, field<&deft::sharing>{"sharing"},
                      field<&deft::rotate_every>{"rotate_every", at_least(1)}};
  }
  using default_exchange = index_union;
  static constexpr partitioner_traits traits{
      .needs_norms = true, .disjoint = true, .within_layers = true, .single_owner = false};

  selection_cost cost{};                          ///< the cost by which fragments are packed; equal on all ranks
  deft_sharing sharing = deft_sharing::by_layer;  ///< how k is divided
  std::uint64_t rotate_every = 100;               ///< steps, at least 1

  void split(std::span<range const> layers, int world, segment_list& list) const {
    std::uint64_t total = 0;
    for (auto const& each : layers) total += each.size;
    auto const ranks = static_cast<std::uint64_t>(world);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      auto const [offset, size] = layers[i];
      if (size == 0) continue;
      // more than n / world, in integers; never more fragments than elements
      std::uint64_t const parts = size * ranks > total ? std::min(ranks, size) : 1;
      for (std::uint64_t p = 0; p < parts; ++p) {
        std::uint64_t const from = size * p / parts;
        list.push_back(
            {.offset = offset + from, .size = size * (p + 1) / parts - from, .layer = static_cast<std::uint32_t>(i)});
      }
    }
  }

  void assign(std::span<segment> segments, std::span<double const> squared_norms, step_budget const budget,
              partition_scratch& scratch) const {
    auto const k = budget_of(budget.density, budget.elements);
    if (sharing == deft_sharing::by_fragment) {
      share_out(segments, squared_norms, k, scratch, fragment_end);
    } else {
      share_out(segments, squared_norms, k, scratch, layer_end);
      for (std::size_t i = 0; i < segments.size();) {
        std::size_t const count = layer_end(segments, i) - i;
        share_out(segments.subspan(i, count), squared_norms.subspan(i, count), segments[i].k, scratch, fragment_end);
        i += count;
      }
    }
    pack(segments, budget, scratch);
  }

  friend bool operator==(deft const&, deft const&) = default;

 private:
  static std::size_t fragment_end(std::span<segment const>, std::size_t first) { return first + 1; }
  static std::size_t layer_end(std::span<segment const> segments, std::size_t first) {
    auto const layer = segments[first].layer;
    while (first < segments.size() && segments[first].layer == layer) ++first;
    return first;
  }

  /// False for NaN. Compares bits, as builds may compare NaN differently.
  static bool is_positive(double x) noexcept {
    auto const bits = stored_bits(x);
    return bits - 1 < std::uint64_t{0x7FF} << 52;
  }

  /// A share of k, rounded to the nearest. @pre 0 <= share <= 1
  static std::uint64_t part_of(double share, index_type k) noexcept {
    double const all = exact::multiply(share, static_cast<double>(k));
    auto const whole = static_cast<std::uint64_t>(all);
    return whole + (exact::subtract(all, static_cast<double>(whole)) >= 0.5 ? 1u : 0u);
  }

  /// The nonzero fragments of a part: sum of squared norms, number, and elements.
  struct content {
    double squared_norm = 0;
    std::uint64_t fragments = 0;
    std::uint64_t elements = 0;
  };
  static content content_of(std::span<segment const> segments, std::span<double const> squared_norms) {
    content found;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if (!is_positive(squared_norms[i])) continue;
      found.squared_norm = exact::add(found.squared_norm, squared_norms[i]);
      ++found.fragments;
      found.elements += segments[i].size;
    }
    return found;
  }

  /// Divides k among parts by their norms, largest first: entries that one part cannot hold go to the next ones, then
  /// again from the start. A part is the segments [first, end_of(segments, first)); the first one's k is its share.
  template <class EndOf>
  static void share_out(std::span<segment> segments, std::span<double const> squared_norms, index_type k,
                        partition_scratch& scratch, EndOf const& end_of) {
    auto& norm = scratch.weight;
    auto const part = [&](std::size_t first) {
      std::size_t const count = end_of(segments, first) - first;
      return content_of(segments.subspan(first, count), squared_norms.subspan(first, count));
    };
    std::size_t parts = 0;
    double norm_left = 0;
    std::uint64_t fragments_left = 0;
    for (std::size_t first = 0; first < segments.size(); first = end_of(segments, first)) {
      auto const found = part(first);
      norm[first] = exact::square_root(found.squared_norm);
      norm_left = exact::add(norm_left, norm[first]);
      fragments_left += found.fragments;
      segments[first].k = 0;
      scratch.order[parts++] = static_cast<index_type>(first);
    }
    auto const order = std::span{scratch.order}.first(parts);
    by_weight(order, scratch);
    for (auto const i : order) {
      if (norm[i] == 0 || k == 0) break;
      auto const found = part(i);
      double const share = !is_positive(norm_left) ? 0
                           : norm[i] < norm_left   ? exact::divide(norm[i], norm_left)
                                                   : 1;  // also of infinities
      std::uint64_t wanted = part_of(share, k);
      if (k >= fragments_left) {  // one for each fragment here and after it
        wanted = std::min<std::uint64_t>(wanted, k - (fragments_left - found.fragments));
        wanted = std::max(wanted, found.fragments);
      }
      wanted = std::max<std::uint64_t>(wanted, 1);
      segments[i].k = static_cast<index_type>(std::min({wanted, found.elements, std::uint64_t{k}}));
      k -= segments[i].k;
      norm_left = exact::subtract(norm_left, norm[i]);
      fragments_left -= found.fragments;
    }
    for (auto const i : order) {
      if (norm[i] == 0 || k == 0) break;
      auto const more = static_cast<index_type>(std::min<std::uint64_t>(k, part(i).elements - segments[i].k));
      segments[i].k += more;
      k -= more;
    }
  }

  /// Longest processing time first, into the bin with the least work. Bins are made for shares in proportion to size:
  /// they change with the density, not with the norms. Bin b belongs to rank (b - turn) mod world.
  void pack(std::span<segment> segments, step_budget const budget, partition_scratch& scratch) const {
    auto const world = static_cast<std::uint64_t>(budget.world);
    auto const turn = budget.step / rotate_every % world;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      scratch.order[i] = static_cast<index_type>(i);
      scratch.weight[i] = cost(segments[i].size, budget_of(budget.density, segments[i].size));
    }
    auto const order = std::span{scratch.order}.first(segments.size());
    by_weight(order, scratch);
    auto& loads = scratch.loads;  // a heap: least load on top, then the smallest bin
    for (std::size_t b = 0; b < loads.size(); ++b) loads[b] = {0.0, static_cast<int>(b)};
    auto const more = [](auto const& a, auto const& b) { return a > b; };
    for (auto const i : order) {
      std::pop_heap(loads.begin(), loads.end(), more);
      auto& [load, bin] = loads.back();
      load = exact::add(load, scratch.weight[i]);
      bool const selects = segments[i].k > 0 && segments[i].k < segments[i].size;
      segments[i].owner =
          selects ? static_cast<int>((static_cast<std::uint64_t>(bin) + world - turn) % world) : segment::every_rank;
      std::push_heap(loads.begin(), loads.end(), more);
    }
  }

  static void by_weight(std::span<index_type> order, partition_scratch const& scratch) {
    std::sort(order.begin(), order.end(), [&](index_type a, index_type b) {
      return scratch.weight[a] != scratch.weight[b] ? scratch.weight[a] > scratch.weight[b] : a < b;
    });
  }
};
static_assert(partitioner<deft>);

}  // namespace gradsieve
