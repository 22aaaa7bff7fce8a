// Policies of one's own, as a header for -DGRADSIEVE_BENCH_POLICIES: see own.cpp. Its test builds it.
#pragma once

#include <gradsieve/gradsieve.hpp>

/// Keeps what exceeds `c` times the mean magnitude.
struct mean_multiple {
  float c = 3;

  template <class Workspace>
  float fit(Workspace& work, gradsieve::accumulator_ref accumulator, gradsieve::index_type) const {
    return c * work.mean_abs(accumulator);
  }
  constexpr bool keep(float value, float threshold) const noexcept { return gradsieve::abs(value) > threshold; }
  friend bool operator==(mean_multiple const&, mean_multiple const&) = default;
};

template <class Add>
void add_policies(Add const& add) {
  add("three_means", gradsieve::recipe{.selector = mean_multiple{}});
  add("four_means", gradsieve::recipe{.selector = mean_multiple{.c = 4}});
}
