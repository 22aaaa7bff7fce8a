// Every recipe's compressor on the host is compiled here, without torch.
#include <gradsieve/run_time/host_steps.hpp>

#include "../../recipes.hpp"

namespace gradsieve::detail {

template std::unique_ptr<any_step<host, example::menu::formats>> make_step(host, layout,
                                                                           any_recipe<example::menu> const&,
                                                                           any_nodes<host> const*);

}  // namespace gradsieve::detail
