// Every recipe's compressor on a device is compiled here, without torch.
#include <memory>

#include <gradsieve/cuda.cuh>

#include "device_memory.hpp"
#include "erased.hpp"

namespace example {

std::unique_ptr<any_compressor<gs::device>> make_compressor(gs::device where, compression const& chosen,
                                                            gs::layout const& layers) {
  if (!(chosen.codec == any_codec::packed(0, 0)))
    throw usage_error("on a device this extension has the codec packed with automatic indices and fp32 only");
  using result = std::unique_ptr<any_compressor<gs::device>>;
  return with_recipe(chosen, gs::packed<>{}, [&](auto const& recipe) -> result {
    using owner = decltype(gs::compressor{where, layers, recipe});
    return std::make_unique<erased<gs::device, owner>>(where, layers, recipe);
  });
}

}  // namespace example
