// Names of the last version: each says what to write instead.
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/plan.hpp>
#include <gradsieve/published.hpp>

namespace gs = gradsieve;

void use() {
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.exchange = gs::ok_topk{}}};
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.exchange = gs::gtopk{}}};
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.codec = gs::packed{.values = gs::automatic_values{}}}};
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.selector = gs::one_sign{}}};
  gs::compressor{gs::host{}, gs::layout::flat(10), gs::recipe{.codec = gs::packed{.values = gs::sbc{}}}};
  gs::advise(gs::layout::flat(10), 4);
  gs::simulate(gs::trace{}, gs::plan{});
  (void)gs::robust{};
}
