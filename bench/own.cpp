// Policies of the user's own: CMake's -DGRADSIEVE_BENCH_POLICIES=mine.hpp names a header that defines
//   template <class Add> void add_policies(Add const& add) { add("mine", gradsieve::recipe{.selector = mine{}}); }
// as own_policies.hpp does. Each recipe becomes a row of steps for every point of the grid, at the grid's density. The
// pictures draw it under its name, which is no other row's.
#include <set>
#include <stdexcept>

#include "step_rows.hpp"

#if defined(GRADSIEVE_BENCH_POLICIES)
#include GRADSIEVE_BENCH_POLICIES
#endif

namespace bench {

#if defined(GRADSIEVE_BENCH_POLICIES)

bool has_own_policies() { return true; }

void add_own(options const& chosen) {
  for (auto const& at : settings_of(chosen, {})) {
    std::set<std::string> names;
    add_policies([&](std::string const& name, auto recipe) {
      bool const separates = name.empty() || name.find_first_of("/:") != std::string::npos;
      if (separates || is_selector(name) || !names.insert(name).second)
        throw std::invalid_argument{"a policy of your own is called '" + name +
                                    "': choose a name without / and :, that no selector and no other policy has"};
      recipe.density = at.density;
      add_recipe<float>(name, recipe, at);
    });
  }
}

#else

bool has_own_policies() { return false; }
void add_own(options const&) {}

#endif

}  // namespace bench
