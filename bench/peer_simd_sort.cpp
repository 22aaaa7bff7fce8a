// x86-simd-sort's selection, for the vector unit of the machine that compiles it.
#include "peers.hpp"

#if defined(GRADSIEVE_BENCH_SIMD_SORT)
#include <x86simdsort-static-incl.h>

namespace bench {

void simd_sort::run(std::span<gs::key_type> keys, std::ptrdiff_t k) {
  x86simdsortStatic::qselect(keys.data(), static_cast<std::size_t>(k - 1), keys.size(), false, true);
}

}  // namespace bench
#endif
