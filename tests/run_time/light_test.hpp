// What the units of light_test share: light.hpp and any_compressor.hpp are not for one unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// What a compressor leaves after some steps.
struct outcome {
  std::vector<float> update;
  std::vector<std::byte> message;
  std::vector<std::byte> state;
  std::string report;  ///< without times
  std::string describe;
  std::string recipe;  ///< printed
  std::uint64_t hash = 0;
  double residual_norm = 0;

  friend bool operator==(outcome const&, outcome const&) = default;
};

/// Of three steps of any_compressor, on a rank of a group of threads.
outcome by_text(std::string const& recipe, void const* communicator, int rank);

inline std::vector<float> light_gradient(int step) {
  std::vector<float> made(3000);
  std::uint32_t bits = 12345u + 77u * static_cast<std::uint32_t>(step);
  for (std::size_t i = 0; i < made.size(); ++i) {
    bits = bits * 1664525u + 1013904223u;
    made[i] = (static_cast<float>(bits >> 8) - 8388608.0f) / (1.0f + static_cast<float>(i % 97));
  }
  return made;
}

/// `three steps`, and then messages of one rank.
template <class Compressor, class Communicator, class Print>
outcome outcome_of(Compressor& reducer, Communicator const& comm, int rank, Print const& print) {
  outcome made;
  for (int step = 0; step < 3; ++step) {
    made.update = light_gradient(step + 10 * rank);
    if (step == 1) reducer.connect(comm);
    auto report = reducer.exchange(comm, made.update);
    report.seconds = {};
    made.report += print(report);
    if (step == 1) reducer.discard_step();
  }
  made.residual_norm = reducer.residual_norm();
  auto const bytes = reducer.encode(reducer.compress(light_gradient(3), rank));
  made.message.assign(bytes.begin(), bytes.end());
  made.state = reducer.state();
  made.describe = reducer.describe();
  made.recipe = print(reducer.recipe());
  made.hash = reducer.recipe().hash();
  return made;
}
