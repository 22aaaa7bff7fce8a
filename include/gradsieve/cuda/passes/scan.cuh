// Prefix sums in device memory, by one block.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Exclusive sums of `count` numbers: a few per tile of 4096 elements or per layer, so that one block takes no longer
/// than the launches of a scan by many. Unsigned sums wrap: with several lists in a row, differences to a list's first
/// sum are right if the list's own sum fits. `to` may be `from`. @pre one block of scan_threads threads
template <class T>
__global__ void __launch_bounds__(scan_threads) exclusive_sums(T const* from, T* to, std::uint64_t count) {
  wait_for_previous();
  constexpr unsigned each = scan_each;
  using scan = CUB_NS_QUALIFIER::BlockScan<T, scan_threads>;
  __shared__ typename scan::TempStorage scratch;
  T before = 0;
  for (std::uint64_t first = 0; first < count; first += scan_threads * each) {
    std::uint64_t const own = first + threadIdx.x * each;
    T values[each];
    T total = 0;
#pragma unroll
    for (unsigned v = 0; v < each; ++v) values[v] = own + v < count ? from[own + v] : T{0};
    scan(scratch).ExclusiveSum(values, values, total);
#pragma unroll
    for (unsigned v = 0; v < each; ++v)
      if (own + v < count) to[own + v] = before + values[v];
    before += total;
    __syncthreads();
  }
}

}  // namespace gradsieve::cuda_kernels
