// Candidates of an accumulate pass that ran before the step's budgets were known.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/selector/prediction.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// How steps know the segments that keep what the pass has collected by the last step's budgets and thresholds: their
/// candidates lie below `apart`, all others' above it.
struct early_candidates {
  device_segment const* before = nullptr;   // the last step's segments, by which the pass has collected
  device_segment const* planned = nullptr;  // this step's
  std::uint32_t apart = 0;                  // 0: no pass runs ahead
  std::uint32_t* open = nullptr;            // segments that keep nothing, and want something

  [[nodiscard]] __device__ bool has(device_segment const& each) const { return each.base < apart; }
  [[nodiscard]] __device__ bool has_all() const { return apart != 0 && *open == 0; }
};

/// A thread a segment: keeps its candidates where the selector would predict the key that they reach.
template <int = 0>
__global__ void keep_candidates(device_segment* segments, tables const t, early_candidates const early) {
  wait_for_previous();
  std::uint32_t const threads = gridDim.x * blockDim.x;
  for (std::uint32_t s = blockIdx.x * blockDim.x + threadIdx.x; s < t.segment_count; s += threads) {
    device_segment now = early.planned[s];
    device_segment const was = early.before[s];
    warm_threshold warm = t.warm_thresholds[s];
    accumulator_ref const acc{{nullptr, now.size}, now.offset, s, *t.step, &warm};
    bool const keeps = now.k > 0 && was.k > 0 && t.candidate_thresholds[s] == warm.key && t.found[s] <= was.capacity &&
                       detail::warm_threshold_fits(acc, now.k);
    if (keeps) {
      now.base = was.base;
      now.capacity = was.capacity;
    } else {
      now.base += early.apart;
      t.candidate_thresholds[s] = 0;
      t.found[s] = 0;
      if (now.k > 0) atomicAdd(early.open, 1u);
    }
    segments[s] = now;
  }
}

}  // namespace gradsieve::cuda_kernels
