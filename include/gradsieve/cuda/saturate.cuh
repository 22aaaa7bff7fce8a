// Clamps the values of entries on a device.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Clamps the values of up to `most` entries to +-limit, and counts those that were larger. Nothing where no finite
/// number is larger.
template <int = 0>
void saturate_entries(cuda_workspace const& work, cuda_kernels::entry_list const& own, std::uint64_t most,
                             float limit, std::uint64_t* beyond) {
  if (magnitude_key(limit) < infinite_key - 1)
    work.over_early<cuda_kernels::saturate_entries<>>(most, own, limit, beyond);
}

}  // namespace gradsieve::detail
