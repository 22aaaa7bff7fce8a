// What is no gradient: one sentence for each.
#include <gradsieve/comm/self.hpp>
#include <gradsieve/gradsieve.hpp>

#include <list>
#include <vector>

namespace gs = gradsieve;

void use(std::vector<float> const& fixed, float* pointer, std::list<float>& list) {
  gs::compressor reducer{gs::host{}, gs::layout::flat(10), gs::recipe{}};
#if defined(FIXED)
  reducer.exchange(gs::self{}, fixed);
#elif defined(TEMPORARY)
  reducer.exchange(gs::self{}, std::vector<float>(10));
#elif defined(PIECES)
  reducer.exchange(gs::self{}, gs::pieces{std::vector<std::vector<float>>(1)});
#elif defined(NO_RECIPE)
  gs::compressor wrong{gs::host{}, gs::layout::flat(10), 0.01};
#elif defined(POINTER)
  reducer.exchange(gs::self{}, pointer);
#else
  reducer.exchange(gs::self{}, list);
#endif
}
