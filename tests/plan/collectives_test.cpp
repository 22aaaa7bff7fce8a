// Costs of collectives.
#include <doctest/doctest.h>

#include "schedules.hpp"

namespace gs = gradsieve;
using namespace schedules;

TEST_CASE("costs of collectives") {
  gs::network_link const link{1, 0.25, 0.5};
  CHECK(gs::ring_cost(link, 4) == gs::affine{6, 0.75});
  CHECK(gs::double_tree_cost(link, 4) == gs::affine{4, 1});
  CHECK(gs::double_tree_cost(link, 4, 1) == gs::affine{4, 0.75});
  CHECK(gs::gather_cost(link, 5, 0.25) == gs::affine{8, 0.5});
  CHECK(gs::leader_cost(link, 4, 0.5) == gs::affine{11, 0.5});
  CHECK(gs::index_union_cost(link, 4, 0.5) == gs::affine{18, 0.46875});
  CHECK(gs::shared_choice_cost(link, 4, 0.5) == gs::affine{9, 0.375});
  CHECK(gs::reduce_scatter_cost(link, 4, 0.5) == gs::affine{9, 0.1875});
  CHECK(gs::coded_all_reduce_cost(link, 4, 0.5) == gs::affine{15, 0.5625});
  CHECK(gs::coded_all_reduce_cost(link, 4, 0.5, 8, 1) == gs::affine{15, 0.375});
  CHECK(gs::coded_all_reduce_cost(link, 2, 0.1, 8, 99).b ==
        2 * gs::reduce_scatter_cost(link, 2, 0.1).b + gs::reduce_scatter_cost(link, 2, 0.1).b);
  for (auto const& cost :
       {gs::ring_cost(link, 1), gs::double_tree_cost(link, 1), gs::gather_cost(link, 1, 0.5),
        gs::leader_cost(link, 1, 0.5), gs::index_union_cost(link, 1, 0.5), gs::shared_choice_cost(link, 1, 0.5),
        gs::reduce_scatter_cost(link, 1, 0.5), gs::coded_all_reduce_cost(link, 1, 0.5)})
    CHECK(cost == gs::affine{0, 0});
  CHECK_THROWS_AS((void)gs::ring_cost(link, 0), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::double_tree_cost({-1, 0, 0}, 2), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::gather_cost({not_a_number, 0, 0}, 2, 0.1), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::gather_cost(link, 2, 1.5), gs::invalid_argument);
  CHECK_THROWS_AS((void)gs::leader_cost(link, 2, not_a_number), gs::invalid_argument);

  gs::affine const fit{3e-3, 2e-9};
  auto const again = gs::ring_cost(gs::link_of_ring(fit, 16), 16);
  CHECK(near(again.a, fit.a));
  CHECK(near(again.b, fit.b));
  CHECK(near(gs::double_tree_cost(gs::link_of_double_tree(fit, 16), 16).a, fit.a));
  CHECK_THROWS_AS((void)gs::link_of_ring(fit, 1), gs::invalid_argument);
}
