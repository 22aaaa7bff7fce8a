// Makes a plan from a trace, a cost and a planner.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <gradsieve/plan/plan.hpp>
#include <gradsieve/plan/planners/arrivals.hpp>
#include <gradsieve/plan/planners/optimal.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A planner: a value that divides arriving gradients into groups, `policy(arrivals, cost)`. @pre the cost was checked
template <class P, class Cost>
concept planner =
    std::copyable<P> && cost_model<Cost> && requires(P const policy, arrivals const& in, Cost const& cost) {
      { policy(in, cost) } -> std::same_as<grouping>;
    };

/// Makes a plan for these layers. Layers without bytes belong to the group of the next layer that has some, or to the
/// last group; a trace without any bytes gets one group of 0 bytes, which costs nothing, or none if it has no layers.
/// Local. Cost: the policy's; `optimal` takes O(L) for affine costs. @throws invalid_argument if the cost, the policy
/// or a constraint is out of its limits, if a cost is negative, or if the policy finds no groups of finite cost.
template <cost_model Cost, class Policy = optimal>
  requires planner<Policy, Cost>
[[nodiscard]] plan make_plan(trace const& of, Cost const& cost, Policy const& policy = {},
                             merge_constraints const& constraints = {}) {
  check_cost(cost);
  arrivals const in{of, constraints};
  grouping const made = policy(in, cost);
  auto const times = made.times.empty() ? times_of(in, made.ends, cost) : made.times;

  std::vector<std::uint64_t> bytes;
  bytes.reserve(of.count());
  for (auto const& each : of) bytes.push_back(each.bytes);
  std::vector<plan_group> groups;
  groups.reserve(made.ends.size() + 1);
  std::size_t begin = 0;
  std::size_t layer = 0;
  for (std::size_t g = 0; g < made.ends.size(); ++g) {
    std::size_t const end = made.ends[g];
    groups.push_back({layer, in.layer_end(end), in.bytes(begin, end), times[g].start, times[g].finish});
    begin = end;
    layer = in.layer_end(end);
  }
  if (groups.empty() && of.count() > 0) groups.push_back({0, of.count(), 0, of.backward(), of.backward()});
  return plan{std::move(bytes), std::move(groups), made.certificate};
}

}  // namespace gradsieve
