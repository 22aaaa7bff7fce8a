// Policies that are right, of which no recipe can be made: each pair is refused by a sentence of its own.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

namespace gs = gradsieve;

template <class Recipe>
void make(Recipe const&) {
  static_assert(gs::compatible<Recipe, gs::host>);
}

template <class Recipe>
void exchange(Recipe const&) {
  static_assert(gs::compatible<Recipe, gs::host>);  // fits: a message has all its values
  static_assert(gs::exchangeable<Recipe, gs::host, gs::self>);
}

void use() {
  make(gs::recipe{.selector = gs::adacomp{}});
  make(gs::recipe{.selector = gs::adacomp{}, .partitioner = gs::deft{}});
  make(gs::recipe{.exchange = gs::leader{}});
  make(gs::recipe{.codec = gs::binned{}});
  make(gs::recipe{.exchange = gs::shared_choice{}});
  make(gs::recipe{.selector = gs::random_k{}, .partitioner = gs::deft{}, .exchange = gs::shared_choice{}});
  make(gs::recipe{.codec = gs::packed{.values = gs::fp16{}}, .exchange = gs::reduce_scatter{}});  // fits
  make(gs::recipe{.residual = gs::in_bfloat16{gs::error_feedback{}}});
  exchange(gs::recipe{.partitioner = gs::deft{}, .codec = gs::packed{.values = gs::ternary{}}});
}

// As a user meets it.
void step(std::span<float> gradient) {
  gs::compressor reducer{gs::host{}, gs::layout::flat(10),
                         gs::recipe{.selector = gs::chunked{}, .partitioner = gs::cyclic{}, .codec = gs::binned{}}};
  reducer.exchange(gs::self{}, gradient);
}
