// What has moved to the tools of examples/: for one version, its use says where it is.
#pragma once

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
#define GRADSIEVE_SIMULATOR "gradsieve: the simulator is no part of the library now: include examples/simulate/"
template <class... T>
void simulate(T const&...) {
  static_assert(sizeof...(T) > 1000, GRADSIEVE_SIMULATOR "simulate.hpp, which has tools::simulate");
}
template <class... T>
void write_chrome_trace(T const&...) {
  static_assert(sizeof...(T) > 1000, GRADSIEVE_SIMULATOR "chrome_trace.hpp, which has tools::write_chrome_trace");
}
template <class T = void>
struct robust {
  static_assert(!sizeof(T*), GRADSIEVE_SIMULATOR "robust.hpp, which has tools::robust, or use gs::optimal");
};
template <class T = void>
struct optimal_rs_ag {
  static_assert(!sizeof(T*), GRADSIEVE_SIMULATOR "optimal_rs_ag.hpp, which has tools::optimal_rs_ag");
};
template <class T = void>
struct optimal_sparse {
  static_assert(!sizeof(T*), GRADSIEVE_SIMULATOR "optimal_sparse.hpp, which has tools::optimal_sparse");
};
#undef GRADSIEVE_SIMULATOR
template <class... T>
void advise(T const&...) {
  static_assert(sizeof...(T) > 1000, "gradsieve: advise is no part of the library now: include examples/advise/advise.hpp, "
                                     "which has tools::advise");
}
/// @endcond

}  // namespace gradsieve
