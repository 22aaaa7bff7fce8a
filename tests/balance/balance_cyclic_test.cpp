// Nothing is lost, whatever the recipe: one rank that selects for all or for a part, with its exchange and the others',
// and the residual store filtered, which conserves what plain error feedback does at beta 1.

#include <gradsieve/published.hpp>

#include "balance.hpp"

TEST_CASE("mass balance, cyclic and filtered") {
  namespace gs = gradsieve;
  using balance::one;
  SUBCASE("leader, radix") { one<gs::cyclic, gs::leader>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("leader, radix, filtered") { one<gs::cyclic, gs::leader>(gs::radix{}, gs::filtered{}); }
  SUBCASE("leader, radix, momentum") { one<gs::cyclic, gs::leader>(gs::radix{}, gs::momentum_correction{}); }
  SUBCASE("leader, laplacian") { one<gs::cyclic, gs::leader>(gs::laplacian{}, gs::error_feedback{.decay = 0.9f}); }
  SUBCASE("leader, hierarchical") { one<gs::cyclic, gs::leader>(gs::hierarchical{}, gs::none{}); }
  SUBCASE("leader, a user's") { one<gs::cyclic, gs::leader>(steps::above_mean{}, gs::filtered{}); }
  SUBCASE("gather") { one<gs::cyclic, gs::gather>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("index_union") { one<gs::cyclic, gs::index_union>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("micro") { one<gs::micro, gs::index_union>(gs::radix{}, gs::error_feedback{}); }
  SUBCASE("micro, laplacian") { one<gs::micro, gs::gather>(gs::laplacian{}, gs::momentum_correction{}); }
  SUBCASE("micro, trimmed") { one<gs::micro, gs::index_union>(gs::trimmed{}, gs::error_feedback{}); }
  SUBCASE("filtered, whole") { one<gs::whole, gs::gather>(gs::laplacian{}, gs::filtered{}); }
  SUBCASE("filtered, deft") { one<gs::deft, gs::index_union>(gs::radix{}, gs::filtered{}); }
}
