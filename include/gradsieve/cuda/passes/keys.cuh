// Walks over an array of keys by a block, with several loads in flight.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/vectors.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Keys that a thread has at once; 0 is none, as no candidate is zero.
struct thread_keys {
  static constexpr unsigned width = load_bytes / sizeof(key_type);
  key_type values[choose_loads * width];
};

[[nodiscard]] __device__ inline key_type key_of(float value) { return magnitude_key(value); }
[[nodiscard]] __device__ inline key_type key_of(key_type key) { return key; }

/// Calls body(keys) for [begin, end) of an array of values or of keys, the same number of times in all threads of the
/// block. All loads for a call are issued before the first key is used. The array is aligned to a load, and can be read
/// up to the end of the last.
template <class T, class Body>
__device__ __forceinline__ void over_keys(T const* from, std::uint32_t begin, std::uint32_t end, Body const& body) {
  constexpr unsigned width = thread_keys::width;
  std::uint32_t const last = (end + width - 1) / width;
  for (std::uint32_t first = begin / width; first < last; first += choose_loads * choose_threads) {
    pack<T, width> loaded[choose_loads];
#pragma unroll
    for (unsigned v = 0; v < choose_loads; ++v)
      if (std::uint32_t const at = first + v * choose_threads + threadIdx.x; at < last)
        loaded[v] = reinterpret_cast<pack<T, width> const*>(from)[at];
    thread_keys keys;
#pragma unroll
    for (unsigned v = 0; v < choose_loads; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        std::uint32_t const i = width * (first + v * choose_threads + threadIdx.x) + e;
        keys.values[v * width + e] = i - begin < end - begin ? key_of(loaded[v].values[e]) : 0;
      }
    body(keys);
  }
}

/// All keys of [begin, end) of an array of values, in the registers of a block. @pre end - begin <= most_alone
struct block_keys {
  static constexpr unsigned loads = 8;
  static_assert(loads * choose_threads * thread_keys::width >= most_alone + 2 * (thread_keys::width - 1));
  key_type values[loads * thread_keys::width];
  unsigned used;  // loads that have any

  __device__ __forceinline__ block_keys(float const* from, std::uint32_t begin, std::uint32_t end) {
    constexpr unsigned width = thread_keys::width;
    std::uint32_t const first = begin / width;
    std::uint32_t const last = (end + width - 1) / width;
    used = (last - first + choose_threads - 1) / choose_threads;
    pack<float, width> loaded[loads];
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
      if (std::uint32_t const at = first + v * choose_threads + threadIdx.x; at < last)
        loaded[v] = reinterpret_cast<pack<float, width> const*>(from)[at];
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
#pragma unroll
      for (unsigned e = 0; e < width; ++e) {
        std::uint32_t const i = width * (first + v * choose_threads + threadIdx.x) + e;
        values[v * width + e] = i - begin < end - begin ? key_of(loaded[v].values[e]) : 0;
      }
  }

  /// Calls body(key) for each, the same number of times in all threads.
  template <class Body>
  __device__ __forceinline__ void each_key(Body const& body) const {
#pragma unroll
    for (unsigned v = 0; v < loads; ++v)
      if (v < used) {
#pragma unroll
        for (unsigned e = 0; e < thread_keys::width; ++e) body(values[v * thread_keys::width + e]);
      }
  }
};

/// One round of a search in [begin, end) of an array of values or of keys.
template <class T>
__device__ __forceinline__ std::uint32_t narrow(block_group<choose_threads>& group, detail::digit_search& search,
                                                T const* from, std::uint32_t begin, std::uint32_t end) {
  group.clear_histogram();
  over_keys(from, begin, end, [&](thread_keys const& keys) {
#pragma unroll
    for (auto const key : keys.values) group.count(search.bin(key));
  });
  __syncthreads();
  return group.find(search);
}

}  // namespace gradsieve::cuda_kernels
