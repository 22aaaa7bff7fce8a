// Policies of the user's own: CMake's -DGRADSIEVE_BENCH_POLICIES=mine.hpp names a header that defines
//   template <class Add> void add_policies(Add const& add) { add("mine", gradsieve::recipe{.selector = mine{}}); }
// Each recipe becomes a row of steps for every point of the grid, at the grid's density.
#include "step_rows.hpp"

#if defined(GRADSIEVE_BENCH_POLICIES)
#include GRADSIEVE_BENCH_POLICIES
#endif

namespace bench {

#if defined(GRADSIEVE_BENCH_POLICIES)

bool has_own_policies() { return true; }

void add_own(options const& chosen) {
  for (auto const& at : settings_of(chosen, {}))
    add_policies([&](std::string const& name, auto recipe) {
      recipe.density = at.density;
      add_recipe<float>(name, recipe, at);
    });
}

#else

bool has_own_policies() { return false; }
void add_own(options const&) {}

#endif

}  // namespace bench
