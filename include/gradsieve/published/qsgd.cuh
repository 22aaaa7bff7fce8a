// The value codec `qsgd` on a device: the same bytes as on the host.
#pragma once

#include <gradsieve/cuda/codec/block_values.cuh>
#include <gradsieve/published/qsgd.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

template <>
class device_values<qsgd> : public device_block_values<qsgd> {};

}  // namespace gradsieve
