// The library's planners by name, for traces as text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/plan.hpp>

#include "../../command_line.hpp"
#include "../../simulate/published_networks.hpp"
#include "answer.hpp"

namespace example {

namespace gs = gradsieve;

inline names const planner_names{"optimal", "mgwfbp", "free_merge", "wfbp", "single"};

/// Six texts a row: name, bytes, backward, forward, dtype, element_bytes. @throws std::invalid_argument
[[nodiscard]] inline gs::trace trace_of(std::span<char const* const> texts) {
  std::vector<gs::traced_layer> layers;
  for (std::size_t i = 0; i + 6 <= texts.size(); i += 6)
    layers.push_back({texts[i], read_number<std::uint64_t>("bytes", texts[i + 1]),
                      read_number<double>("backward", texts[i + 2]), read_number<double>("forward", texts[i + 3]),
                      read_number<std::uint32_t>("dtype", texts[i + 4]),
                      read_number<std::uint32_t>("element_bytes", texts[i + 5])});
  return gs::trace{std::move(layers)};
}

/// `first` and `cap`: torch's rule instead of a planner's. @throws usage_error
[[nodiscard]] inline auto make_plan(gs::trace const& of, double a, double b, std::string const& planner,
                                    std::uint64_t first, std::uint64_t cap) {
  auto const cost = gs::affine{a, b};
  if (cap > 0) return gs::make_plan(of, cost, gs::fixed_bucket{first, cap});
  if (planner == "optimal") return gs::make_plan(of, cost);
  if (planner == "mgwfbp") return gs::make_plan(of, cost, gs::mgwfbp{});
  if (planner == "free_merge") return gs::make_plan(of, cost, gs::free_merge{});
  if (planner == "wfbp") return gs::make_plan(of, cost, gs::wfbp{});
  if (planner == "single") return gs::make_plan(of, cost, gs::single{});
  throw usage_error("gradsieve: planner '" + planner + "': choose one of " + joined(planner_names));
}

/// Of a group's exchange over a link by name or ALPHA,BETA; `exchange` dense: an all-reduce. @throws usage_error
[[nodiscard]] inline gs::affine link_cost(std::string const& link, std::string const& exchange, int workers,
                                          double density, double entry_bytes) {
  auto const over = tools::network_named(link);
  if (exchange == "dense") return over.cost(workers);
  if (exchange == "gather") return gs::gather_cost(over.link, workers, density, entry_bytes);
  if (exchange == "index_union") return gs::index_union_cost(over.link, workers, density);
  if (exchange == "leader") return gs::leader_cost(over.link, workers, density);
  if (exchange == "coded_all_reduce")
    return gs::coded_all_reduce_cost(over.link, workers, density, entry_bytes, std::min(2.0, 1 / density));
  throw usage_error("gradsieve: exchange '" + exchange +
                    "': choose one of dense, gather, index_union, leader, coded_all_reduce");
}

}  // namespace example
