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
  return chosen.policies.visit([&]<class Partitioner>(auto const& selector, Partitioner const& partitioner,
                                                      auto const& residual) -> result {
    using exchange = typename Partitioner::default_exchange;
    auto const make = [&](auto const& codec) -> result {
      return make_erased(where, layers, recipe_of(chosen, selector, partitioner, residual, codec, exchange{}), peers);
    };
    if constexpr (exchange::traits.encodes)
      return make(chosen.codec);
    else
      return make(gs::coo{});
  });
}

}  // namespace example
