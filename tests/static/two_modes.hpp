// What the units of two_modes.cpp's program share.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

using results = std::pair<std::vector<float>, std::vector<std::byte>>;

/// The last update, and the state after it.
template <class Compressor, class Communicator>
results after_three_steps(Compressor& reducer, Communicator const& comm, std::vector<float> const& gradient) {
  std::vector<float> update;
  for (int step = 0; step < 3; ++step) reducer.exchange(comm, update = gradient);
  return {update, reducer.state()};
}

results header_only(std::vector<float> gradient);
results by_type(std::vector<float> gradient);
