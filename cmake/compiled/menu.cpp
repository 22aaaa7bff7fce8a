// The library gradsieve::compiled: every recipe of full_menu on the host.
#include <gradsieve/run_time/host_steps.hpp>

#if !defined(GRADSIEVE_COMPILED)
#error "gradsieve: compile this file with -DGRADSIEVE_COMPILED, as units that use the library are"
#endif

namespace gradsieve::inline GRADSIEVE_ABI::detail {

template std::unique_ptr<any_step<host, full_menu::formats>> make_step(host, layout, any_recipe<> const&,
                                                                       any_nodes<host> const*);

}  // namespace gradsieve::detail
