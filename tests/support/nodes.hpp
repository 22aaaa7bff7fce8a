// Ranks that are threads, as nodes of several ranks each.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/two_level.hpp>

#include "steps.hpp"

namespace nodes {

using namespace steps;
using pair = gs::two_level<communicator, communicator>;

struct shape {
  int nodes;
  int ranks;  // of each
  [[nodiscard]] int world() const { return nodes * ranks; }
};

/// f on every rank; what they threw, or nothing. A rank that ends has left both of its groups.
inline std::vector<std::string> run(shape of, std::function<void(pair const&)> const& f) {
  std::deque<gs::threads::group> inside, across;
  for (int n = 0; n < of.nodes; ++n) inside.emplace_back(of.ranks);
  for (int r = 0; r < of.ranks; ++r) across.emplace_back(of.nodes);
  std::vector<std::string> said(at(of.world()));
  gs::threads::run(of.world(), [&](communicator all) {
    int const node = all.rank() / of.ranks;
    int const place = all.rank() % of.ranks;
    pair const mine{inside[at(node)].communicator(place), across[at(place)].communicator(node)};
    said[at(all.rank())] = ending([&] { f(mine); });
    inside[at(node)].leave(place);
    across[at(place)].leave(node);
  });
  return said;
}

/// All that the ranks said, a line each.
inline std::string text(std::vector<std::string> const& said) {
  std::string all;
  for (std::size_t r = 0; r < said.size(); ++r)
    if (!said[r].empty()) all += "rank " + std::to_string(r) + ": " + said[r] + '\n';
  return all;
}

}  // namespace nodes
