// Recipes made within templates, in forms at which g++ 12.2 gives up if a default of theirs is an initializer list:
// compiled only.
#pragma once

#include <vector>

#include <gradsieve/comm/threads.hpp>
#include <gradsieve/gradsieve.hpp>
#if !defined(__CUDACC__)  // where it takes long
#include <gradsieve/run_time.hpp>
#endif

namespace in_templates {

struct mine {
  template <class Workspace>
  float fit(Workspace& workspace, gradsieve::accumulator_ref from, gradsieve::index_type /*k*/) const {
    return 3 * workspace.mean_abs(from);
  }
  constexpr bool keep(float value, float limit) const noexcept { return gradsieve::abs(value) > limit; }
  friend bool operator==(mine const&, mine const&) = default;
};

template <class Use, class Outside>
void make_recipes(Use const& use, Outside const& outside) {
  namespace gs = gradsieve;
  use(gs::recipe{.selector = mine{}});
  auto const named = gs::recipe{.selector = mine{}};
  use(named);
  auto const with_density = gs::recipe{.density = 0.01, .selector = mine{}};
  use(with_density);
  auto const own = gs::recipe{.density = 0.01, .selector = gs::laplacian{}};
  use(own);
  gs::recipe<mine> const spelt_out{.selector = mine{}};
  use(spelt_out);
  use(outside);
  auto const density_alone = gs::recipe{.density = 0.01};
  use(density_alone);
  mine const chosen;
  auto const of_a_name = gs::recipe{.selector = chosen};
  use(of_a_name);

  use(gs::recipe{.codec = gs::packed{.values = gs::bf16{}}});
  use(gs::recipe{.passthrough = {.up_to = 256}});
#if !defined(__CUDACC__)
  use(gs::any_recipe<>{});
  use(gs::compressor{gs::host{.threads = 1}, gs::layout::flat(1000), gs::recipe{.density = 0.01}});
  gs::threads::run(2, [&](auto comm) {
    auto const recipe = gs::recipe{.codec = gs::packed{.values = gs::bf16{}}};
    auto reducer = gs::compressor{gs::host{.threads = 1}, gs::layout::flat(1000), recipe};
    std::vector<float> gradient(1000, 1.0f);
    reducer.exchange(comm, gradient);
  });
#endif
}

inline void make_all() {
  make_recipes([](auto const&) {}, gradsieve::recipe{.selector = mine{}});
}

}  // namespace in_templates
