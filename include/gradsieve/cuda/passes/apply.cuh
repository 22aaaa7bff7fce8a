// Adding up what the ranks have sent, on a device: a cell at a time, no atomics on sums, the same bits on every rank.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/vectors.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::cuda_kernels {

/// What one sender's entries add: index-ordered, with their directory.
struct update {
  index_type const* indices;
  float const* values;
  std::uint32_t count;
  std::uint32_t* cells;
};

/// A pointer that was read from memory, as one to global memory: loads then need not find out which memory it is.
template <class T>
[[nodiscard]] __device__ inline T* in_global(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

/// The sum over one cell, by all threads of a block.
struct cell_sum {
  using scanner = cub::BlockScan<std::uint32_t, apply_threads>;

  float total[cell_size];
  std::uint32_t has[cell_size / 32];
  typename scanner::TempStorage scan;
  std::uint32_t first[apply_threads];       // entry of each sender that is in the cell
  std::uint32_t begins[apply_threads + 1];  // of its entries among all that are in the cell
  float values[staged_entries];
  std::uint16_t places[staged_entries];

  __device__ void clear() {
    for (unsigned w = threadIdx.x; w < cell_size / 32; w += apply_threads) has[w] = 0;
    __syncthreads();
  }

  /// Up to apply_threads senders, one after the other. Where each has few entries they are read all at once.
  __device__ void add_senders(update const* updates, std::uint32_t senders, std::uint32_t cell) {
    std::uint32_t count = 0;
    if (threadIdx.x < senders) {
      auto const* const cells = in_global(updates[threadIdx.x].cells);
      first[threadIdx.x] = cells[cell];
      count = cells[cell + 1] - first[threadIdx.x];
    }
    std::uint32_t before = 0;
    std::uint32_t all = 0;
    scanner{scan}.ExclusiveSum(count, before, all);
    begins[threadIdx.x] = before;
    if (threadIdx.x == 0) begins[apply_threads] = all;
    __syncthreads();
    for (std::uint32_t u = 0; u < senders && all > 0;) {
      std::uint32_t end = u + 1;
      while (end < senders && begins[end + 1] - begins[u] <= staged_entries) ++end;
      if (begins[end] - begins[u] <= staged_entries)
        add_staged(updates, u, end);
      else
        add(
            begins[end] - begins[u],
            [&](std::uint32_t i) { return in_global(updates[u].indices)[first[u] + i] % cell_size; },
            [&](std::uint32_t i) { return in_global(updates[u].values)[first[u] + i]; });
      u = end;
    }
  }

 private:
  __device__ void add_staged(update const* updates, std::uint32_t from, std::uint32_t to) {
    std::uint32_t const base = begins[from];
    for (std::uint32_t i = threadIdx.x; i < begins[to] - base; i += apply_threads) {
      auto const u = from + static_cast<std::uint32_t>(count_before(
                                to - from - 1, [&](std::uint64_t s) { return begins[from + s + 1] - base <= i; }));
      std::uint32_t const p = first[u] + (base + i - begins[u]);
      places[i] = static_cast<std::uint16_t>(in_global(updates[u].indices)[p] % cell_size);
      values[i] = in_global(updates[u].values)[p];
    }
    __syncthreads();
    for (std::uint32_t u = from; u < to; ++u)
      if (std::uint32_t const start = begins[u] - base; begins[u + 1] - begins[u] > 0)
        add(
            begins[u + 1] - begins[u], [&](std::uint32_t i) { return places[start + i]; },
            [&](std::uint32_t i) { return values[start + i]; });
  }

  /// One sender's entries.
  template <class Place, class Value>
  __device__ void add(std::uint32_t count, Place const& place_of, Value const& value_of) {
    for (std::uint32_t e = threadIdx.x; e < count; e += apply_threads) {
      std::uint32_t const i = place_of(e);
      std::uint32_t const bit = 1u << (i % 32);
      bool const again = (atomicOr(&has[i / 32], bit) & bit) != 0;
      total[i] = again ? gradsieve::add(total[i], value_of(e)) : value_of(e);
    }
    __syncthreads();
  }
};

/// The mean of an element, summed up in binary64. Cost: O(senders * log entries of the cell).
[[nodiscard]] __device__ inline float wide_mean(update const* updates, std::uint32_t senders, std::uint32_t cell,
                                                std::uint32_t i, float divisor) {
  double sum = 0;
  for (std::uint32_t u = 0; u < senders; ++u) {
    auto const& from = updates[u];
    auto const* const cells = in_global(from.cells);
    auto const* const indices = in_global(from.indices);
    std::uint32_t const begin = cells[cell];
    std::uint32_t const end = cells[cell + 1];
    auto const at = begin + first_not_below(indices + begin, end - begin, i);
    if (at < end && indices[at] == i) sum += static_cast<double>(in_global(from.values)[at]);
  }
  return static_cast<float>(sum / static_cast<double>(divisor));
}

/// One block a cell: overwrites the gradient with (the sum of the updates, one after the other) / divisor, zero where
/// none has an entry. Sums start with the first update that has the element; one that overflows is formed again in
/// binary64. Adds the size of their union to `touched`, and means that the format cannot hold to `beyond`.
template <class T>
__global__ void __launch_bounds__(apply_threads, apply_blocks)
    apply_updates(update const* updates, std::uint32_t senders, float divisor, T* out, std::uint64_t n,
                  std::uint64_t* touched, std::uint64_t* beyond) {
  constexpr unsigned width = load_bytes / sizeof(T);
  __shared__ cell_sum sum;
  std::uint32_t const cell = blockIdx.x;
  std::uint64_t const begin = std::uint64_t{cell} * cell_size;
  auto const size = static_cast<std::uint32_t>(smaller<std::uint64_t>(cell_size, n - begin));
  bool const whole = size == cell_size && reinterpret_cast<std::uintptr_t>(out) % load_bytes == 0;
  sum.clear();
  for (std::uint32_t u = 0; u < senders; u += apply_threads) {
    sum.add_senders(updates + u, smaller(senders - u, apply_threads), cell);
    __syncthreads();
  }
  std::uint32_t count = 0;
  for (std::uint32_t first = threadIdx.x * width; first < size; first += apply_threads * width) {
    std::uint32_t const bits = sum.has[first / 32] >> (first % 32) & ((1u << width) - 1);
    pack<T, width> made{};
#pragma unroll
    for (unsigned e = 0; e < width; ++e) {
      if ((bits >> e & 1u) == 0) continue;
      float mean = divide(sum.total[first + e], divisor);
      if (!is_finite(mean))
        mean = wide_mean(updates, senders, cell, static_cast<std::uint32_t>(begin + first + e), divisor);
      made.values[e] = to_output<T>(mean, beyond);
    }
    count += static_cast<std::uint32_t>(__popc(bits));
    if (whole)
      *reinterpret_cast<pack<T, width>*>(out + begin + first) = made;
    else
      for (unsigned e = 0; e < width && first + e < size; ++e) out[begin + first + e] = made.values[e];
  }
  count = warp_sum(count);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(reinterpret_cast<unsigned long long*>(touched), count);
}

}  // namespace gradsieve::cuda_kernels
