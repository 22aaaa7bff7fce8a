// A partitioner of your own: who selects from which part of the gradient, and how many entries.
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/compressor.hpp>
#include <gradsieve/exchange/index_union.hpp>

#include <cstdint>
#include <iostream>
#include <vector>

namespace gs = gradsieve;

//! [partitioner]
/// Whole layers in turn: layer i is selected from by rank (i + step) mod ranks.
struct layers_in_turn {
  static constexpr char const* name = "layers_in_turn";
  using default_exchange = gs::index_union;  // all ranks' values, at the places that one of them has chosen
  static constexpr gs::partitioner_traits traits{.disjoint = true};  // no element is chosen by two ranks

  /// Once for a world: the segments.
  void split(std::span<gs::range const> layers, int, gs::segment_list& list) const {
    for (auto const& each : layers) list.push_back({.offset = each.offset, .size = each.size});
  }

  /// In every step, the same on all ranks: entries and owner of each segment.
  void assign(std::span<gs::segment> segments, std::span<double const>, gs::step_budget const budget,
              gs::partition_scratch&) const {
    for (std::size_t i = 0; i < segments.size(); ++i) {
      segments[i].k = gs::budget_of(budget.density, segments[i].size);
      segments[i].owner = static_cast<int>((i + budget.step) % static_cast<std::uint64_t>(budget.world));
    }
  }

  friend bool operator==(layers_in_turn const&, layers_in_turn const&) = default;
};
static_assert(gs::partitioner<layers_in_turn>);  // the contract, checked at the definition
//! [partitioner]

int main() {
  auto const layers = gs::layout{{"a", 1'000}, {"b", 2'000}, {"c", 3'000}};
  bool right = true;
  gs::threads::run(2, [&](gs::threads::communicator_ref comm) {
    auto reducer =
        gs::compressor{gs::host{.threads = 1}, layers, gs::recipe{.density = 0.01, .partitioner = layers_in_turn{}}};
    for (int step = 0; step < 2; ++step) {
      std::vector<float> gradient(layers.size());
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(comm.rank())) % 101);
      auto const report = reducer.exchange(comm, gradient);
      if (comm.rank() != 0) continue;
      std::cout << "step " << step << ": rank 0 chose " << report.selected << " of " << report.union_size << '\n';
      right = right && report.union_size == 60 && report.selected == (step == 0 ? 40u : 20u);  // a and c, then b
    }
  });
  return right ? 0 : 1;
}
