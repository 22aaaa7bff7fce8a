// Nothing is lost, whatever the recipe: selectors, residual stores and exchanges with the layerwise partitioner.
#include "balance.hpp"

TEST_CASE("mass balance, layerwise") {
  balance::all_selectors<gradsieve::layerwise, gradsieve::momentum_correction, gradsieve::none>();
}
