// Networks by name, or by latency and bandwidth.
#include <doctest/doctest.h>

#include "../../examples/simulate/published_networks.hpp"
#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

TEST_CASE("networks by name, or by latency and bandwidth") {
  CHECK(tools::network_named("v100-10gbe").cost(16) == gs::affine{9.08e-4, 7.40e-10});
  CHECK(tools::network_named("v100-56gib").cost(8) == gs::affine{9.75e-5, 3.06e-10});
  CHECK(near(tools::network_named("v100-10gbe").cost(64).a, 9.08e-4 / 30 * 126));
  CHECK(near(tools::network_named("infocom-ring").cost(8).a, 14 * 45.25e-6));
  CHECK(near(tools::network_named("1e-4,2e-9").cost(2).b, 2e-9));
  for (auto const& each : tools::networks()) CHECK(each.cost(1) == gs::affine{0, 0});
  for (auto const* wrong : {"", "ethernet", "1e-4", "1e-4,", ",1", "1e-4,2e-9,3", "1e-4;2e-9", "a,b"})
    CHECK_THROWS_WITH_AS((void)tools::network_named(wrong), doctest::Contains("choose one of infocom-ring"),
                         gs::invalid_argument);
  CHECK_THROWS_AS((void)tools::network_named("-1,1"), gs::invalid_argument);
  CHECK_THROWS_AS((void)tools::network_named("nan,1"), gs::invalid_argument);
  CHECK_THROWS_AS((void)tools::network_named("1gbe").cost(0), gs::invalid_argument);
}
