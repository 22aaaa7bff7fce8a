// Recipes as text, compared and hashed.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <set>
#include <tuple>

#include "printed.hpp"

namespace gs = gradsieve;

/// A program's own, outside of namespace gradsieve.
struct own_selector {
  static constexpr char const* name = "own_selector";
  static constexpr auto fields() { return std::tuple{gs::field<&own_selector::c>{"c"}}; }
  float c = 3;

  template <class Workspace>
  float fit(Workspace& work, gs::accumulator_ref acc, gs::index_type) const {
    return c * work.mean_abs(acc);
  }
  static bool keep(float value, float threshold) noexcept { return gs::abs(value) > threshold; }
  friend bool operator==(own_selector const&, own_selector const&) = default;
};

TEST_CASE("a policy of one's own prints its name and its fields in a recipe") {
  CHECK(printed(gs::recipe{.selector = own_selector{.c = 4}}).starts_with("density 0.01, own_selector{c 4}, whole,"));
}

TEST_CASE("a recipe prints, compares and hashes every policy") {
  gs::recipe const plain{};
  CHECK(printed(plain) ==
        "density 0.01, radix, whole, error_feedback{decay 1}, coo, gather, passthrough{up_to 0, <biases and norms>}");
  CHECK(printed(gs::recipe{.on_non_finite = gs::non_finite::fail}).ends_with(", fails on non-finite"));
  CHECK(plain == gs::recipe{});
  CHECK(plain.hash() == gs::recipe{}.hash());

  decltype(gs::recipe{}) const others[] = {
      {.density = 0.02},
      {.density = gs::warm_up{.steps = 5}},
      {.density = gs::warm_up{.steps = 5, .stages = 1}},
      {.residual = {.decay = 0.5f}},
      {.passthrough = {.patterns = {}}},
      {.passthrough = {.up_to = 3}},
      {.on_non_finite = gs::non_finite::fail},
  };
  std::set<std::uint64_t> seen{plain.hash()};
  for (auto const& each : others) {
    CHECK_FALSE(each == plain);
    seen.insert(each.hash());
  }
  seen.insert(gs::recipe{.selector = gs::laplacian{}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.tolerance = 0.5f}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.count = gs::count_mode::exact}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.warm = false}}.hash());
  seen.insert(gs::recipe{.selector = gs::hierarchical{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::layerwise{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{.sharing = gs::deft_sharing::by_fragment}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{.rotate_every = 1}}.hash());
  seen.insert(gs::recipe{.residual = gs::momentum_correction{}}.hash());
  seen.insert(gs::recipe{.residual = gs::none{}}.hash());
  CHECK(seen.size() == 19);
  CHECK(gs::recipe{.residual = gs::momentum_correction{.clip = -0.0f}}.hash() ==
        gs::recipe{.residual = gs::momentum_correction{.clip = 0.0f}}.hash());  // they compare as equal
}
