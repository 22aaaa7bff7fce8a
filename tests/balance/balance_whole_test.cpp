// Nothing is lost, whatever the recipe: selectors, residual stores and exchanges with the whole partitioner.
#include "balance.hpp"

TEST_CASE("mass balance, whole") {
  balance::all_selectors<gradsieve::whole, gradsieve::none, gradsieve::error_feedback>();
}

// The tests above take accumulate_element() and remove_sent() from the library; so here they are in plain numbers.
TEST_CASE("what enters an accumulator, and what leaves it") {
  namespace gs = gradsieve;
  gs::element_state<1> one{8.0f};
  gs::error_feedback{}.accumulate_element(1.0f, one);
  CHECK(one[0] == 9.0f);
  gs::error_feedback{.decay = 0.5f}.accumulate_element(1.0f, one);
  CHECK(one[0] == 5.5f);
  gs::none{}.accumulate_element(1.0f, one);
  CHECK(one[0] == 1.0f);
  gs::element_state<2> two{8.0f, 4.0f};
  gs::momentum_correction{.momentum = 0.5f}.accumulate_element(1.0f, two);
  CHECK(two[0] == 11.0f);
  CHECK(two[1] == 3.0f);
  auto kept = two;
  gs::momentum_correction{}.remove_sent(10.0f, two, false);
  CHECK(two[0] == 1.0f);
  CHECK(two[1] == 0.0f);
  gs::momentum_correction{}.remove_sent(11.0f, kept, true);
  CHECK(kept[0] == 0.0f);
  CHECK(kept[1] == 3.0f);
}
