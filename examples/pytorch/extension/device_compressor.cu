// Every recipe's compressor on a device is compiled here, without torch.
#include <memory>

#include <gradsieve/cuda.cuh>

#include "device_memory.hpp"
#include "erased.hpp"

namespace example {

std::unique_ptr<any_compressor<gs::device>> make_compressor(gs::device where, compression const& chosen,
                                                            gs::layout const& layers) {
  bool const apart = chosen.policies.sums_values();
  if (!(chosen.codec == (apart ? any_codec{} : any_codec::packed(fixed_width_place, 0))))
    throw usage_error(apart ? "on a device this extension has deft and cyclic with the codec coo only"
                            : "on a device messages have a fixed size, so that codecs of variable length save nothing: "
                              "this extension has fixed_width with fp32 there");
  using result = std::unique_ptr<any_compressor<gs::device>>;
  auto const codec_for = []<class Partitioner>(Partitioner const&) {
    if constexpr (Partitioner::default_exchange::encodes)
      return gs::packed<gs::fixed_width>{};
    else
      return gs::coo{};
  };
  return with_recipe(chosen, codec_for, [&](auto const& recipe) -> result {
    using owner = decltype(gs::compressor{where, layers, recipe});
    return std::make_unique<erased<gs::device, owner>>(where, layers, recipe);
  });
}

}  // namespace example
