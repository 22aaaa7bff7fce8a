// What the light door is not for.
#if defined(WITH_FULL_HEADERS)
#include <gradsieve/compressor.hpp>
#endif
#include <gradsieve/light.hpp>

namespace gs = gradsieve;

struct own_selector {
  friend bool operator==(own_selector const&, own_selector const&) = default;
};
struct own_space {};

void use() {
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.selector = own_selector{}}};
  gs::compressor{own_space{}, gs::layout::flat(10), gs::recipe{}};
}
