// Adding up what the ranks have sent, on a device: a warp a part of a cell, no atomics on sums, the same bits on every
// rank.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/vectors.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

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

/// Elements that one warp sums up.
inline constexpr unsigned part_size = cell_size / (apply_threads / 32);
static_assert(cell_size % (apply_threads / 32) == 0 && part_size % 32 == 0);

/// Consecutive entries of one sender.
struct entry_run {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// Those that a sender has of a part. Cost: two searches among its entries of the cell.
[[nodiscard]] __device__ inline entry_run run_of(update const& from, std::uint32_t cell, std::uint64_t begin) {
  auto const* const cells = in_global(from.cells);
  std::uint32_t const first = cells[cell];
  std::uint32_t const count = cells[cell + 1] - first;
  if (count == 0) return {};
  auto const* const indices = in_global(from.indices) + first;
  auto const before = static_cast<std::uint32_t>(first_not_below(indices, count, begin));
  std::uint32_t const left = smaller<std::uint32_t>(count - before, part_size);
  return {first + before, static_cast<std::uint32_t>(first_not_below(indices + before, left, begin + part_size))};
}

/// The sum over one part, by a warp: whatever the number of senders, no other warp is waited for.
struct part_sum {
  float total[part_size];
  std::uint32_t has[part_size / 32];

  __device__ void clear() {
    for (unsigned w = threadIdx.x % 32; w < part_size / 32; w += 32) has[w] = 0;
    __syncwarp();
  }

  /// All senders, whose entries of the part are read as one list: the first sender's, the second's, and so on.
  __device__ void add_senders(update const* updates, std::uint32_t senders, std::uint32_t cell, std::uint64_t begin) {
    std::uint32_t const lane = threadIdx.x % 32;
    for (std::uint32_t from = 0; from < senders; from += 32) {
      entry_run const mine = from + lane < senders ? run_of(updates[from + lane], cell, begin) : entry_run{};
      std::uint32_t const until = warp_prefix_sum(mine.count);
      std::uint32_t const all = __shfl_sync(~0u, until, 31);
      std::uint32_t const base = mine.first - (until - mine.count);  // of the entry that is the list's first
      for (std::uint32_t at = 0; at < all; at += 32 * groups_at_once) {
        std::uint32_t places[groups_at_once];
        float values[groups_at_once];
#pragma unroll
        for (unsigned g = 0; g < groups_at_once; ++g) {
          std::uint32_t const i = at + 32 * g + lane;
          std::uint32_t sender = 0;  // lanes whose entries end before this one
#pragma unroll
          for (unsigned step = 16; step > 0; step /= 2)
            if (__shfl_sync(~0u, until, sender + step - 1) <= i) sender += step;
          std::uint32_t const p = __shfl_sync(~0u, base, sender) + i;
          places[g] = i < all ? in_global(updates[from + sender].indices)[p] % part_size : part_size + lane;
          values[g] = i < all ? in_global(updates[from + sender].values)[p] : 0.0f;
        }
#pragma unroll
        for (unsigned g = 0; g < groups_at_once; ++g)
          if (at + 32 * g < all) add(places[g], values[g]);
      }
    }
  }

 private:
  static constexpr unsigned groups_at_once = 4;  // of 32 entries, whose loads are issued before the first is used

  /// An entry a lane; of several for one element that of the lowest lane comes first. Places from part_size on are
  /// none.
  __device__ void add(std::uint32_t place, float value) {
    std::uint32_t const same = __match_any_sync(~0u, place);
    auto const turn = static_cast<std::uint32_t>(__popc(same & ((1u << threadIdx.x % 32) - 1)));
    std::uint32_t const last = warp_max(turn);
    for (std::uint32_t now = 0; now <= last; ++now) {
      if (turn == now && place < part_size) {
        std::uint32_t const bit = 1u << (place % 32);
        bool const again = (atomicOr(&has[place / 32], bit) & bit) != 0;
        total[place] = again ? gradsieve::add(total[place], value) : value;
      }
      __syncwarp();
    }
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
    if (at < end && indices[at] == i) sum += widened(in_global(from.values)[at]);
  }
  return narrowed(sum / widened(divisor));
}

/// One block a cell: overwrites the gradient with (the sum of the updates, one after the other) / divisor, zero where
/// none has an entry. Sums start with the first update that has the element; one that overflows is formed again in
/// binary64. Adds the size of their union to `touched`, and means that the format cannot hold to `beyond`.
template <class T>
__global__ void __launch_bounds__(apply_threads, apply_blocks)
    apply_updates(update const* updates, std::uint32_t senders, float divisor, T* out, std::uint64_t n,
                  std::uint64_t* touched, std::uint64_t* beyond) {
  wait_for_previous();
  constexpr unsigned width = load_bytes / sizeof(T);
  __shared__ part_sum sums[apply_threads / 32];
  part_sum& sum = sums[threadIdx.x / 32];
  std::uint32_t const cell = blockIdx.x;
  std::uint64_t const begin = std::uint64_t{cell} * cell_size + threadIdx.x / 32 * part_size;
  if (begin >= n) return;
  auto const size = static_cast<std::uint32_t>(smaller<std::uint64_t>(part_size, n - begin));
  bool const whole = size == part_size && reinterpret_cast<std::uintptr_t>(out) % load_bytes == 0;
  sum.clear();
  sum.add_senders(updates, senders, cell, begin);
  std::uint32_t count = 0;
  for (std::uint32_t first = threadIdx.x % 32 * width; first < size; first += 32 * width) {
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
