// Highway's selection, for the best vector unit of the machine that runs it.
#include "peers.hpp"

#if defined(GRADSIEVE_BENCH_HIGHWAY)
#include <hwy/contrib/sort/vqsort.h>

namespace bench {

void highway::run(std::span<gs::key_type> keys, std::ptrdiff_t k) {
  hwy::VQSelect(keys.data(), keys.size(), static_cast<std::size_t>(k - 1), hwy::SortDescending{});
}

}  // namespace bench
#endif
