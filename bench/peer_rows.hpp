// The rows of peers: the same job, and a check that it was done.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include "rows.hpp"

namespace bench {

/// A whole step done by others: step(gradient) accumulates into `residual()`, takes exactly the k largest out of it and
/// leaves their values in `values()`. Starts from the residual that steps of the library start from.
template <class Step>
void add_peer_step(std::string const& peer_name, setting const& at) {
  add("peer/" + peer_name + "/" + at.name(), [=](benchmark::State& state) {
    Step step{at};
    row<float> row{state, at};
    auto const timed = [&](std::span<float const> gradient) { return seconds([&] { step(gradient); }); };
    settle(at, row.gradients, timed, 1);
    row.measure(12 * at.n, timed);
    auto const magnitude = [](float a, float b) { return gs::magnitude_key(a) < gs::magnitude_key(b); };
    auto const sent = step.values();
    auto const left = step.residual();
    if (sent.size() != at.k() || magnitude(*std::min_element(sent.begin(), sent.end(), magnitude),
                                           *std::max_element(left.begin(), left.end(), magnitude)))
      state.SkipWithError("these are not the k largest");
  });
}

}  // namespace bench
