// Exchanged parameters lose nothing, whatever the recipe.
#include <doctest/doctest.h>

#include <gradsieve/published.hpp>

#include "parameters.hpp"

using namespace parameters;

TEST_CASE("common and residuals hold the first parameters and all changes") {
  SUBCASE("deft") { all(gs::recipe{.selector = gs::laplacian{}, .partitioner = gs::deft{}}); }
  SUBCASE("bins") { all(gs::recipe{.selector = gs::chunked{.size = 100}, .codec = gs::binned{}}); }
  SUBCASE("adacomp") {
    all(gs::recipe{
        .selector = gs::adacomp{}, .partitioner = gs::layerwise{}, .codec = gs::packed{.values = gs::ternary{}}});
  }
  SUBCASE("int4") { all(gs::recipe{.selector = gs::hierarchical{}, .codec = gs::packed{.values = gs::int4{}}}); }
  SUBCASE("cyclic") { all(gs::recipe{.partitioner = gs::cyclic{}}); }
  SUBCASE("micro") { all(gs::recipe{.partitioner = gs::micro{}, .exchange = gs::index_union{}}); }
  SUBCASE("shared_choice") { all(gs::recipe{.selector = gs::random_k{}, .exchange = gs::shared_choice{}}); }
  SUBCASE("a user's") { all(gs::recipe{.selector = above_mean{}, .residual = keeps_all{}}); }
  SUBCASE("decay") { all(gs::recipe{.residual = gs::error_feedback{.decay = 0.9f}}); }
  SUBCASE("none") { all(gs::recipe{.residual = gs::none{}}); }
}
