// Every recipe's compressor on a device is compiled here.
#include <gradsieve/run_time/device_steps.cuh>

#include "../recipes.hpp"

namespace gradsieve::detail {

template std::unique_ptr<any_step<device, example::menu::formats>> make_step(device, layout,
                                                                             any_recipe<example::menu> const&,
                                                                             any_nodes<device> const*);

}  // namespace gradsieve::detail
