// A selector of your own: a plain struct with fit() and keep(), no base class, no kernel.
#include <gradsieve/compressor.hpp>

#include <iostream>
#include <tuple>
#include <vector>

namespace gs = gradsieve;

//! [selector]
/// Keeps what exceeds `c` times the mean magnitude; the recipe's density stays the upper limit.
struct mean_multiple {
  static constexpr char const* name = "mean_multiple";  // as recipes print it; "custom" without
  static constexpr auto fields() { return std::tuple{gs::field<&mean_multiple::c>{"c", gs::at_least(0)}}; }
  float c = 3;

  // The GRADSIEVE_ marks are all it takes to run on a GPU too; a selector for the host alone needs none.

  /// The threshold: one number, from one pass over the accumulator. The accumulate pass has measured it already.
  GRADSIEVE_EITHER_SPACE
  template <class Workspace>
  GRADSIEVE_HD float fit(Workspace& work, gs::accumulator_ref accumulator, gs::index_type) const {
    return c * work.mean_abs(accumulator);
  }

  /// Asked once for each element.
  GRADSIEVE_HD constexpr bool keep(float value, float threshold) const noexcept { return gs::abs(value) > threshold; }

  friend bool operator==(mean_multiple const&, mean_multiple const&) = default;
};
static_assert(gs::selector<mean_multiple, gs::host_workspace>);  // the contract, checked at the definition
//! [selector]

int main() {
  auto reducer = gs::compressor{gs::host{}, gs::layout::flat(10'000),
                                gs::recipe{.density = 0.05, .selector = mean_multiple{.c = 4}}};
  std::vector<float> gradient(10'000, 0.01f);
  gradient[17] = 5.0f;
  gradient[4'000] = -3.0f;
  auto const sent = reducer.compress(gradient);
  for (std::size_t i = 0; i < sent.indices.size(); ++i) std::cout << sent.indices[i] << ": " << sent.values[i] << '\n';
  return sent.indices.size() == 2 && sent.indices[0] == 17 ? 0 : 1;
}
