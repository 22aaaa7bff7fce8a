// Every recipe's compressor on a device is compiled here, without torch.
#include <memory>
#include <type_traits>

#include <gradsieve/cuda.cuh>

#include "device_codec.cuh"
#include "device_memory.hpp"
#include "erased.hpp"

namespace example {

std::unique_ptr<any_compressor<gs::device>> make_compressor(gs::device where, compression const& chosen,
                                                            gs::layout const& layers,
                                                            peers_of<gs::device> const& peers) {
  bool const apart = chosen.policies.sums_values();
  bool const runs =
      chosen.codec.visit([](auto const& codec) { return runs_on_device<std::remove_cvref_t<decltype(codec)>>; });
  if (apart ? !(chosen.codec == any_codec{}) : !runs)
    throw usage_error(apart ? "on a device deft, cyclic and micro send raw indices and binary32 values: the codec coo"
                            : "on a device messages have a fixed size, so that codecs of variable length save nothing: "
                              "coo, fixed_width or raw32, with any values but sbc and automatic_values");
  using result = std::unique_ptr<any_compressor<gs::device>>;
  auto const codec_for = [&]<class Partitioner>(Partitioner const&) {
    if constexpr (Partitioner::default_exchange::encodes)
      return chosen.codec;
    else
      return gs::coo{};
  };
  return with_recipe(chosen, codec_for,
                     [&](auto const& recipe) -> result { return make_erased(where, layers, recipe, peers); });
}

}  // namespace example
