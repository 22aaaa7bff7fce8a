// Nothing is lost, whatever the recipe: selectors, residual stores and exchanges with the deft partitioner.
#include "balance.hpp"

TEST_CASE("mass balance, deft") {
  balance::all_selectors<gradsieve::deft, gradsieve::error_feedback, gradsieve::momentum_correction>();
}

TEST_CASE("mass balance, deft as published, and where fragments change hands in mid-run") {
  namespace gs = gradsieve;
  for (std::uint64_t const every : {1u, 3u})
    for (auto const how : {gs::deft_sharing::by_layer, gs::deft_sharing::by_fragment})
      balance::one<gs::deft, gs::index_union>(gs::laplacian{}, gs::momentum_correction{}, gs::coo{},
                                              gs::deft{.sharing = how, .rotate_every = every});
}
