// Adding up what the ranks have sent, on a device: a cell at a time, no atomics on sums, the same bits on every rank.
#pragma once

#include <cub/block/block_scan.cuh>
#include <cub/device/device_scan.cuh>

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/select.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::cuda_kernels {

/// What a device finds wrong in an exchange; in the upper half of the word the sender. The host puts it into words.
enum class exchange_fault : std::uint64_t {
  none,
  header,
  checksum,
  order,
  value,
  decision,
  several,
  elsewhere,
  contents,
  failed
};

/// Of several faults that of the highest sender stands, whichever thread finds it first.
__device__ inline void set_fault(std::uint64_t* error, exchange_fault what, std::uint32_t sender) {
  atomicMax(reinterpret_cast<unsigned long long*>(error),
            static_cast<unsigned long long>(what) | static_cast<unsigned long long>(sender) << 32);
}

/// The same where no error is known yet. @pre all threads that find one name this one
__device__ inline void set_first_fault(std::uint64_t* error, exchange_fault what, std::uint32_t sender) {
  atomicCAS(reinterpret_cast<unsigned long long*>(error), 0ull,
            static_cast<unsigned long long>(what) | static_cast<unsigned long long>(sender) << 32);
}

/// What one sender's entries add: index-ordered, with their directory.
struct update {
  index_type const* indices;
  float const* values;
  std::uint32_t count;
  std::uint32_t* cells;
};

inline constexpr unsigned apply_threads = 256;

/// The mean of an element, summed up in binary64. Cost: O(senders * log entries of the cell).
[[nodiscard]] __device__ inline float wide_mean(update const* updates, std::uint32_t senders, std::uint32_t cell,
                                                std::uint32_t i, float divisor) {
  double sum = 0;
  for (std::uint32_t u = 0; u < senders; ++u) {
    auto const& from = updates[u];
    std::uint32_t low = from.cells[cell];
    std::uint32_t const end = from.cells[cell + 1];
    std::uint32_t high = end;
    while (low < high) {
      std::uint32_t const middle = low + (high - low) / 2;
      if (from.indices[middle] < i)
        low = middle + 1;
      else
        high = middle;
    }
    if (low < end && from.indices[low] == i) sum += static_cast<double>(from.values[low]);
  }
  return static_cast<float>(sum / static_cast<double>(divisor));
}

/// One block a cell: overwrites the gradient with (the sum of the updates, one after the other) / divisor, zero where
/// none has an entry. Sums start with the first update that has the element; one that overflows is formed again in
/// binary64. Adds the size of their union to `touched`, and means that the format cannot hold to `beyond`.
template <class T>
__global__ void __launch_bounds__(apply_threads)
    apply_updates(update const* updates, std::uint32_t senders, float divisor, T* out, std::uint64_t n,
                  std::uint64_t* touched, std::uint64_t* beyond) {
  __shared__ float total[cell_size];
  __shared__ std::uint32_t has[cell_size / 32];
  std::uint32_t const cell = blockIdx.x;
  std::uint64_t const begin = std::uint64_t{cell} * cell_size;
  auto const size = static_cast<std::uint32_t>(smaller<std::uint64_t>(cell_size, n - begin));
  for (unsigned w = threadIdx.x; w < cell_size / 32; w += apply_threads) has[w] = 0;
  __syncthreads();
  bool any = false;
  for (std::uint32_t u = 0; u < senders; ++u) {
    auto const from = updates[u];
    std::uint32_t const first = from.cells[cell];
    std::uint32_t const last = from.cells[cell + 1];
    if (first == last) continue;
    any = true;
    for (std::uint32_t p = first + threadIdx.x; p < last; p += apply_threads) {
      auto const i = static_cast<std::uint32_t>(from.indices[p] - begin);
      std::uint32_t const bit = 1u << (i % 32);
      bool const again = (atomicOr(&has[i / 32], bit) & bit) != 0;
      total[i] = again ? add(total[i], from.values[p]) : from.values[p];
    }
    __syncthreads();
  }
  if (!any) {
    for (std::uint32_t i = threadIdx.x; i < size; i += apply_threads) out[begin + i] = T{};
    return;
  }
  std::uint32_t count = 0;
  for (std::uint32_t i = threadIdx.x; i < size; i += apply_threads) {
    bool const here = ((has[i / 32] >> (i % 32)) & 1u) != 0;
    float mean = here ? divide(total[i], divisor) : 0.0f;
    if (!is_finite(mean)) mean = wide_mean(updates, senders, cell, static_cast<std::uint32_t>(begin + i), divisor);
    out[begin + i] = to_output<T>(mean, beyond);
    count += here ? 1 : 0;
  }
  count = warp_sum(count);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(reinterpret_cast<unsigned long long*>(touched), count);
}

/// The directories of all updates.
template <int = 0>
__global__ void fill_directories(update const* updates, std::uint32_t senders, std::uint32_t cells) {
  for (std::uint32_t u = 0; u < senders; ++u) {
    auto const from = updates[u];
    fill_directory({const_cast<index_type*>(from.indices), nullptr, nullptr, from.cells}, from.count, cells,
                   blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
  }
}

/// Decides whether an exchange counts: if it failed here, or on another rank (the ranks' sum `failed` is not zero),
/// nothing is given up and the gradient gets no update.
template <int = 0>
__global__ void judge_exchange(float const* failed, entry_list const sent, std::uint32_t cells, update* updates,
                               std::uint32_t senders, std::uint64_t* error) {
  if (threadIdx.x == 0 && failed != nullptr && *failed > 0 && *error == 0)
    *error = static_cast<std::uint64_t>(exchange_fault::elsewhere);
  __syncthreads();
  if (*error == 0) return;
  for (std::uint32_t c = threadIdx.x; c <= cells; c += blockDim.x) {
    sent.cells[c] = 0;
    for (std::uint32_t u = 0; u < senders; ++u) updates[u].cells[c] = 0;
  }
}

// ---- The union of the ranks' choices -------------------------------------------------------------------------

/// One block a segment: this rank's indices + 1 to the places that the segment has in every rank's list; 0 is no index.
template <int = 0>
__global__ void list_choices(tables const t, entry_list const parts, std::uint32_t const* slots, bool const* full,
                             std::uint64_t room, std::uint32_t* list) {
  std::uint32_t const s = blockIdx.x;
  auto const mine = t.segments[s];
  std::uint32_t const count = full[s] ? mine.size : t.written[s];
  for (std::uint32_t i = threadIdx.x; i < count && slots[s] + i < room; i += blockDim.x)
    list[slots[s] + i] = 1 + (full[s] ? mine.offset + i : parts.indices[mine.out + i]);
}

/// A rank that has failed before it sends: every rank's exchange is to fail.
template <int = 0>
__global__ void set_failed(std::uint32_t rank, std::uint64_t* error) {
  *error = static_cast<std::uint64_t>(exchange_fault::failed) | std::uint64_t{rank} << 32;
}

/// A number and its complement in four words: their maximum over the ranks shows whether all bring the same. The fifth
/// is of ranks that have failed already: 1 + the last of them.
inline constexpr std::uint64_t vote_words = 5;

[[nodiscard]] __device__ inline std::uint32_t vote_word(std::uint64_t number, unsigned w) {
  auto const half = static_cast<std::uint32_t>(number >> (w / 2 * 32));
  return w % 2 == 0 ? half : ~half;
}

template <int = 0>
__global__ void write_vote(std::uint64_t const* decision, std::uint64_t const* step, std::uint64_t const* error,
                           std::uint32_t rank, std::uint32_t* words) {
  for (unsigned w = 0; w < vote_words - 1; ++w) words[w] = vote_word(*decision ^ mix(*step), w);
  words[vote_words - 1] = *error != 0 ? 1 + rank : 0;
}

template <int = 0>
__global__ void read_vote(std::uint64_t const* decision, std::uint64_t const* step, std::uint32_t const* words,
                          std::uint64_t* error) {
  std::uint32_t const failed = words[vote_words - 1];
  if (failed != 0) {
    if (*error == 0)
      *error = static_cast<std::uint64_t>(exchange_fault::failed) | static_cast<std::uint64_t>(failed - 1) << 32;
    return;
  }
  for (unsigned w = 0; w < vote_words - 1; ++w)
    if (words[w] != vote_word(*decision ^ mix(*step), w)) *error = static_cast<std::uint64_t>(exchange_fault::decision);
}

/// The same without slots: a list as it is.
template <int = 0>
__global__ void list_entries(entry_list const own, std::uint32_t* list) {
  for_each(*own.count, [&](std::uint64_t p) { list[p] = own.indices[p] + 1; });
}

/// What the first place of a rank's list says if that rank has failed already.
inline constexpr std::uint32_t failed_list = ~0u;

template <int = 0>
__global__ void list_failure(std::uint64_t const* error, std::uint32_t* list) {
  if (*error != 0) *list = failed_list;
}

/// A bit for every element that a list names; what names none is an error. `of_rank`: places of a rank's list, where it
/// may say that the rank has failed; 0 where it does not.
template <int = 0>
__global__ void mark_choices(std::uint32_t const* list, std::uint64_t size, std::uint64_t n, std::uint64_t of_rank,
                             std::uint32_t* bits, std::uint64_t* error) {
  for_each(size, [&](std::uint64_t p) {
    std::uint32_t const named = list[p];
    if (named == failed_list && named > n && of_rank > 0 && p % of_rank == 0)
      set_fault(error, exchange_fault::failed, static_cast<std::uint32_t>(p / of_rank));
    else if (named > n)
      set_fault(error, exchange_fault::order, 0);
    else if (named > 0)
      atomicOr(&bits[(named - 1) / 32], 1u << ((named - 1) % 32));
  });
}

inline constexpr unsigned words_of_cell = cell_size / 32;

/// One block a cell: the number of its bits.
template <int = 0>
__global__ void __launch_bounds__(words_of_cell) count_bits(std::uint32_t const* bits, std::uint32_t* counts) {
  std::uint32_t count = __popc(bits[blockIdx.x * words_of_cell + threadIdx.x]);
  count = warp_sum(count);
  __shared__ std::uint32_t of_warp[words_of_cell / 32];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (unsigned w = 1; w < words_of_cell / 32; ++w) count += of_warp[w];
    counts[blockIdx.x] = count;
  }
}

/// One block a cell: the marked elements, in order, and this rank's accumulators there, clamped to +-limit, twice.
template <class Stored>
__global__ void __launch_bounds__(words_of_cell)
    write_union(std::uint32_t const* bits, Stored const* accumulator, std::uint64_t room, entry_list const out,
                float* sums, float limit, std::uint64_t* beyond) {
  using scan = cub::BlockScan<std::uint32_t, words_of_cell>;
  __shared__ typename scan::TempStorage shared;
  std::uint32_t word = bits[blockIdx.x * words_of_cell + threadIdx.x];
  std::uint32_t before = 0;
  scan{shared}.ExclusiveSum(static_cast<std::uint32_t>(__popc(word)), before);
  std::uint64_t to = std::uint64_t{out.cells[blockIdx.x]} + before;
  for (; word != 0 && to < room; word &= word - 1, ++to) {
    std::uint32_t const i = blockIdx.x * cell_size + threadIdx.x * 32 + static_cast<std::uint32_t>(__ffs(word) - 1);
    out.indices[to] = i;
    out.values[to] = sums[to] = saturated(to_float(accumulator[i]), limit, beyond);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *out.count = out.cells[gridDim.x];
}

/// The union as the one update of a step.
template <int = 0>
__global__ void describe_union(entry_list const out, float const* sums, std::uint32_t cells, update* to) {
  *to = {out.indices, sums, out.cells[cells], out.cells};
}

}  // namespace gradsieve::cuda_kernels
