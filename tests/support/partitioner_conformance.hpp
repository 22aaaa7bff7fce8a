// What every partitioner must do: its segments, and what each gives in a step, for many layers and worlds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/partitioner/segmentation.hpp>

#include "conformance.hpp"

namespace partitioner_conformance {

namespace gs = gradsieve;
using conformance::findings;

/// One run of the suite.
template <gs::partitioner Partitioner>
class suite {
 public:
  explicit suite(Partitioner how) : how_{how} {}

  /// Layers as a compressor gives them: in order, none empty, and what passes through between them.
  [[nodiscard]] std::string run() {
    each_layers("no layers", {});
    each_layers("one element", {{0, 1}});
    each_layers("one layer", {{0, 1000}});
    each_layers("layers of 1, 2 and 3 elements", {{0, 1}, {1, 2}, {3, 3}});
    each_layers("one large layer among small ones, between layers that pass through",
                {{5, 10}, {20, 3000}, {3025, 7}, {3040, 200}});
    std::vector<gs::range> many;
    data::generator random{3};
    for (std::uint64_t at = 0; many.size() < 40; at += many.back().size) many.push_back({at, 1 + random.below(90)});
    each_layers("40 layers", many);
    return found_.text();
  }

 private:
  using norms = std::vector<double>;

  void each_layers(char const* name, std::vector<gs::range> const& layers) {
    for (int world = 1; world <= 9; ++world) {
      found_.in(name, ", ", world, " ranks");
      gs::segment_list list;
      found_.attempt([&] {
        how_.split(layers, world, list);
        gs::detail::segment_check<Partitioner>::split(layers, list);
      });
      check_covered(layers, list);
      gs::segment_list again;
      found_.attempt([&] { how_.split(layers, world, again); });
      found_.expect(again == list, "split() gives other segments when called again");
      std::uint64_t elements = 0;
      for (auto const& each : layers) elements += each.size;
      for (double const density : {0.0, 1e-4, 0.01, 0.3, 1.0})
        for (std::uint64_t const step : {0u, 1u, 2u, 7u, 100u, 1003u})
          for_each_norms(list.size(), [&](char const* of, norms const& squared, bool positive) {
            found_.in(name, ", ", world, " ranks, density ", density, ", step ", step, ", ", of, " norms");
            found_.attempt([&] { check(list, squared, positive, {density, elements, step, world}); });
          });
    }
  }

  template <class F>
  static void for_each_norms(std::size_t count, F const& f) {
    data::generator random{7};
    norms squared(count, 1.0);
    f("equal", squared, true);
    if (!Partitioner::traits.needs_norms) return;
    for (double& x : squared) x = std::exp(4 * random.gauss());
    f("different", squared, true);
    for (std::size_t i = 0; i < count; i += 2) squared[i] = 0;
    f("some zero", squared, false);
    std::ranges::fill(squared, 0.0);
    f("zero", squared, false);
  }

  /// Counted element by element; segment_check goes by the borders.
  void check_covered(std::vector<gs::range> const& layers, gs::segment_list const& list) {
    std::vector<int> times(layers.empty() ? 0 : layers.back().offset + layers.back().size);
    for (auto const& each : list)
      for (auto i = each.offset; i < std::min<std::uint64_t>(each.offset + each.size, times.size()); ++i) ++times[i];
    for (auto const& each : layers)
      for (auto i = each.offset; i < each.offset + each.size; ++i)
        found_.expect(times[i] == 1, "element ", i, " is in ", times[i], " segments");
  }

  /// What assign() makes of these segments, with a scratch that holds anything.
  gs::segment_list assigned(gs::segment_list list, norms const& squared, gs::step_budget const budget,
                            std::uint32_t scratch_holds = 0) const {
    gs::partition_scratch scratch{
        std::vector<gs::index_type>(list.size(), scratch_holds), norms(list.size(), scratch_holds * 0.5),
        std::vector<std::pair<double, int>>(static_cast<std::size_t>(budget.world),
                                            {scratch_holds * 2.0, static_cast<int>(scratch_holds)})};
    how_.assign(list, squared, budget, scratch);
    return list;
  }

  void check(gs::segment_list const& planned, norms const& squared, bool positive, gs::step_budget const budget) {
    auto const list = assigned(planned, squared, budget);
    gs::detail::segment_check<Partitioner>::assign(how_, planned, list, budget.world);
    gs::step_budget const other{0.5, budget.elements, budget.step + 17, budget.world};
    auto const again = assigned(assigned(planned, squared, other), squared, budget, 3);
    found_.expect(again == list, "assign() decides otherwise by what segments or scratch hold from the step before");
    if constexpr (!Partitioner::traits.needs_norms)
      found_.expect(assigned(planned, norms(squared.size(), -5.0), budget) == list,
                    "assign() reads norms, and needs_norms is false");
    if constexpr (Partitioner::traits.rotates) {
      auto first = budget;
      first.step = 0;
      auto const start = assigned(planned, squared, first);
      for (std::size_t s = 0; s < list.size(); ++s)
        if (start[s].owner != gs::segment::every_rank) {
          auto const owner =
              (static_cast<std::uint64_t>(start[s].owner) + budget.step) % static_cast<std::uint64_t>(budget.world);
          found_.expect(list[s].k == start[s].k && list[s].owner == static_cast<int>(owner), "segment ", s, " has ",
                        list[s].k, " entries and owner ", list[s].owner, ", as rotates promises ", start[s].k, " and ",
                        owner);
        }
    }
    std::uint64_t sum = 0;
    for (auto const& each : list) sum += each.k;
    auto const most = gs::budget_of(budget.density, budget.elements) + list.size();
    found_.expect(std::min(sum, budget.elements) <= most, sum, " entries in all, the density allows ", most);
    found_.expect(budget.density > 0 || sum == 0, sum, " entries in all at density 0");
    if (!positive) return;
    found_.expect(budget.density == 0 || budget.elements == 0 || sum > 0, "no entries at all");
    for (std::size_t s = 0; s < list.size(); ++s)
      found_.expect(budget.density < 1 || list[s].k == list[s].size, "segment ", s, " gives ", list[s].k, " of ",
                    list[s].size, " elements at density 1");
  }

  Partitioner how_;
  findings found_;
};

/// Returns what is wrong with a partitioner, a line each; nothing if it does what the concept says. Local.
template <gs::partitioner Partitioner>
[[nodiscard]] std::string run(Partitioner const& how) {
  return suite<Partitioner>{how}.run();
}

}  // namespace partitioner_conformance
