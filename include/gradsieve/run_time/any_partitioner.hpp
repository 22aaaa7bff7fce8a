// A partitioner that is chosen at run time.
#pragma once

#include <span>
#include <variant>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/run_time/any_policy.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A partitioner chosen at run time. The recipe names its exchange. It says nothing about layers and owners, so that an
/// exchange or a selector that depends on them checks when it runs; that it needs norms if one does that it may stand
/// for; and that owners rotate only if they do with all of these.
template <class... Types>
struct any_partitioner : detail::any_policy<Types...> {
  using default_exchange = gather;
  static constexpr partitioner_traits traits{.needs_norms = (Types::traits.needs_norms || ...),
                                             .rotates = (Types::traits.rotates && ...)};  ///< of one, and of all
  void split(std::span<range const> layers, int world, segment_list& list) const {
    std::visit([&](auto const& it) { it.split(layers, world, list); }, this->chosen);
  }
  void assign(std::span<segment> segments, std::span<double const> squared_norms, step_budget const budget,
              partition_scratch& scratch) const {
    std::visit([&](auto const& it) { it.assign(segments, squared_norms, budget, scratch); }, this->chosen);
  }
  friend bool operator==(any_partitioner const&, any_partitioner const&) = default;
};

}  // namespace gradsieve
