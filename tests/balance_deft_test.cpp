// Nothing is lost, whatever the recipe: selectors, residual stores and exchanges with the deft partitioner.
#include "balance.hpp"

TEST_CASE("mass balance, deft") {
  balance::all_selectors<gradsieve::deft, gradsieve::error_feedback, gradsieve::momentum_correction>();
}
