// Faults and the end of an exchange; the union of the ranks' choices; sums of the updates: one warp per part of a cell,
// no atomics on sums, the same bits on every rank.
#pragma once

#include <cstdint>

#include <cub/block/block_scan.cuh>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// A sender's entries in index order, with their directory.
struct update {
  index_type const* indices;
  float const* values;
  std::uint32_t count;
  std::uint32_t* cells;
};

/// Marks a pointer as one to global memory, so that loads need not find out which memory it is.
template <class T>
[[nodiscard]] __device__ inline T* in_global(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

inline constexpr unsigned part_size = cell_size / (apply_threads / 32);  ///< elements that one warp sums
static_assert(cell_size % (apply_threads / 32) == 0 && part_size % 32 == 0);

struct entry_run {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// A sender's entries in a part. Cost: two searches among its entries in the cell.
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

/// The sum over one part, by one warp; warps do not synchronise.
struct part_sum {
  float total[part_size];
  std::uint32_t has[part_size / 32];

  __device__ void clear() {
    for (unsigned w = threadIdx.x % 32; w < part_size / 32; w += 32) has[w] = 0;
    __syncwarp();
  }

  /// Adds the part's entries of all senders, read as one list in sender order.
  __device__ void add_senders(update const* updates, std::uint32_t senders, std::uint32_t cell, std::uint64_t begin) {
    std::uint32_t const lane = threadIdx.x % 32;
    for (std::uint32_t from = 0; from < senders; from += 32) {
      entry_run const mine = from + lane < senders ? run_of(updates[from + lane], cell, begin) : entry_run{};
      std::uint32_t const until = warp_prefix_sum(mine.count);
      std::uint32_t const all = __shfl_sync(~0u, until, 31);
      std::uint32_t const base = mine.first - (until - mine.count);  // base + i: its entry for place i of the list
      for (std::uint32_t at = 0; at < all; at += 32 * groups_at_once) {
        std::uint32_t places[groups_at_once];
        float values[groups_at_once];
#pragma unroll
        for (unsigned g = 0; g < groups_at_once; ++g) {
          std::uint32_t const i = at + 32 * g + lane;
          std::uint32_t sender = 0;  // number of lanes whose entries end before i
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
  static constexpr unsigned groups_at_once = 4;  // of 32 entries, all loaded before the first is used

  /// Adds one entry per lane; several for one element in lane order. Places from part_size on are none.
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

/// Mean of an element, summed in binary64. Cost: O(senders * log entries of the cell).
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

/// One block per cell, from `first_cell` on: overwrites the gradient with (the sum of the updates, in order) / divisor,
/// zero where none has an entry. Each warp sums part_size elements over all senders. A sum that overflows is formed
/// again in binary64. Adds the number of elements with an entry to `touched`, and of means that the format cannot hold
/// to `beyond`.
template <class T>
__global__ void __launch_bounds__(apply_threads, apply_blocks)
    apply_updates(update const* updates, std::uint32_t senders, float divisor, std::uint32_t first_cell, T* out,
                  std::uint64_t n, std::uint64_t* touched, std::uint64_t* beyond) {
  wait_for_previous();
  constexpr unsigned width = load_bytes / sizeof(T);
  __shared__ part_sum sums[apply_threads / 32];
  part_sum& sum = sums[threadIdx.x / 32];
  std::uint32_t const cell = first_cell + blockIdx.x;
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

/// Faults of an exchange; the upper half of an error word is the sender. device_faults::raise() has their sentences.
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

/// Sets a fault. Of several the highest sender's stays, whichever thread finds it first.
__device__ inline void set_fault(std::uint64_t* error, exchange_fault what, std::uint32_t sender) {
  atomicMax(reinterpret_cast<unsigned long long*>(error),
            static_cast<unsigned long long>(what) | static_cast<unsigned long long>(sender) << 32);
}

/// Sets a fault if there is none. @pre all threads that find one set the same
__device__ inline void set_first_fault(std::uint64_t* error, exchange_fault what, std::uint32_t sender) {
  atomicCAS(reinterpret_cast<unsigned long long*>(error), 0ull,
            static_cast<unsigned long long>(what) | static_cast<unsigned long long>(sender) << 32);
}

/// Writes an update's directory, by a search for each cell: entries crowd in some layers, and one thread that fills the
/// gap after such a layer would store its cells one after the other.
__device__ inline void fill_directory(update const& of, std::uint32_t cells, thread_team const& team) {
  team.for_each(std::uint64_t{cells} + 1, [&](std::uint64_t c) {
    of.cells[c] = static_cast<std::uint32_t>(first_not_below(of.indices, of.count, c * cell_size));
  });
}

/// Of an exchange. All pointers may be null.
struct exchange_end {
  entry_list sent{};        // by this rank
  std::uint32_t cells = 0;  // of the gradient
  bool fills = false;       // the updates' directories
  std::uint64_t* touched = nullptr;
  std::uint64_t* reported = nullptr;
  /// Writes 0 to *touched, and the error; after one nothing is given up, and no update has entries.
  __device__ void end(std::uint64_t error, update const* updates, std::uint32_t count, thread_team const& team) const {
    if (team.thread == 0 && touched != nullptr) *touched = 0;
    if (team.thread == 0 && reported != nullptr) *reported = error;
    for (std::uint32_t u = 0; u <= count && error != 0; ++u)
      if (auto* const to = u < count ? updates[u].cells : sent.cells; to != nullptr)
        fill_directory({nullptr, nullptr, 0, to}, cells, team);
  }
};

/// Ends an exchange, which may have failed here (*error is not zero) or on another rank (*failed, the ranks' sum, is
/// not zero). `error`, `failed` and, of a gradient without elements, the updates' cells may be null.
template <int = 0>
__global__ void end_exchange(float const* failed, update const* updates, std::uint32_t senders, std::uint64_t* error,
                             exchange_end const end) {
  wait_for_previous();
  __shared__ std::uint64_t found;
  if (threadIdx.x == 0) {
    if (failed != nullptr && magnitude_key(*failed) != 0) set_first_fault(error, exchange_fault::elsewhere, 0);
    found = error == nullptr ? 0 : atomicOr(reinterpret_cast<unsigned long long*>(error), 0ull);
  }
  __syncthreads();
  end.end(found, updates, senders, whole_launch());
  if (found != 0 || !end.fills) return;
  for_each_sender(senders, [&](std::uint32_t u, thread_team const& team) {
    if (updates[u].cells != nullptr) fill_directory(updates[u], end.cells, team);
  });
}

// ---- The union of the ranks' choices -------------------------------------------------------------------------

/// One block per segment: writes this rank's indices + 1 to the segment's places in every rank's list; 0 is no index.
template <int = 0>
__global__ void list_choices(tables const t, entry_list const own, std::uint64_t capacity, std::uint32_t* list) {
  wait_for_previous();
  std::uint32_t const s = blockIdx.x;
  auto const mine = t.segments[s];
  std::uint32_t const first = t.starts[s];
  std::uint32_t const count = mine.full != 0 ? mine.size : t.starts[s + 1] - first;
  for (std::uint32_t i = threadIdx.x; i < count && mine.slot + i < capacity; i += blockDim.x)
    list[mine.slot + i] = 1 + (mine.full != 0 ? mine.offset + i : own.indices[first + i]);
}

/// Marks this rank as failed before it sends, so that every rank's exchange fails.
template <int = 0>
__global__ void set_failed(std::uint32_t rank, std::uint64_t* error) {
  *error = static_cast<std::uint64_t>(exchange_fault::failed) | std::uint64_t{rank} << 32;
}

/// A number and its complement in four words: their maxima over the ranks show whether all ranks agree. Then 1 + the
/// highest rank that has failed already, or 0.
inline constexpr std::uint64_t vote_words = 5;

[[nodiscard]] __device__ inline std::uint32_t vote_word(std::uint64_t number, unsigned w) {
  auto const half = static_cast<std::uint32_t>(number >> (w / 2 * 32));
  return w % 2 == 0 ? half : ~half;
}

/// A step's vote, and this rank's words.
struct ballot {
  std::uint64_t const* decision;
  std::uint64_t const* step;
  std::uint64_t* error;  // not zero before the vote: this rank has failed
  std::uint32_t rank;
  std::uint32_t* words;
};

__device__ inline void write_vote(ballot const& own) {
  for (unsigned w = 0; w < vote_words - 1; ++w) own.words[w] = vote_word(*own.decision ^ mix(*own.step), w);
  own.words[vote_words - 1] = *own.error != 0 ? 1 + own.rank : 0;
}

__device__ inline void read_vote(ballot const& own) {
  std::uint32_t const failed = own.words[vote_words - 1];
  if (failed != 0) return set_first_fault(own.error, exchange_fault::failed, failed - 1);
  for (unsigned w = 0; w < vote_words - 1; ++w)
    if (own.words[w] != vote_word(*own.decision ^ mix(*own.step), w)) set_fault(own.error, exchange_fault::decision, 0);
}

template <int = 0>
__global__ void vote(ballot const own) {
  wait_for_previous();
  write_vote(own);
}
template <int = 0>
__global__ void count_votes(ballot const own) {
  wait_for_previous();
  read_vote(own);
}

inline constexpr std::uint32_t failed_list = ~0u;  ///< first in the list of a rank that has failed

inline constexpr std::uint64_t signature_words = 2;  ///< after a rank's list: its decision and step

struct signature {
  std::uint64_t const* decision = nullptr;  // null: none
  std::uint64_t const* step = nullptr;

  [[nodiscard]] __device__ std::uint32_t word(std::uint64_t w) const {
    return static_cast<std::uint32_t>((*decision ^ mix(*step)) >> (32 * w));
  }
};

/// Writes this rank's indices + 1, then zeros up to the capacity, then the signature, if there is one. If *error, which
/// may be null, is not zero, the list begins with failed_list.
template <int = 0>
__global__ void list_entries(entry_list const own, std::uint64_t capacity, std::uint64_t const* error,
                             signature const said, std::uint32_t* list) {
  wait_for_previous();
  std::uint32_t const count = *own.count;
  bool const failed = error != nullptr && *error != 0;
  for_each(capacity + (said.decision != nullptr ? signature_words : 0), [&](std::uint64_t p) {
    if (p >= capacity)
      list[p] = said.word(p - capacity);
    else
      list[p] = p == 0 && failed ? failed_list : p < count ? own.indices[p] + 1 : 0;
  });
}

/// Sets a bit for each element that a list names; names above n are errors. `of_rank`: places of a rank's list, which
/// may begin with failed_list, and ends with its signature, to be equal to `mine`; 0 if lists have neither.
template <int = 0>
__global__ void mark_choices(std::uint32_t const* list, std::uint64_t size, std::uint64_t n, std::uint64_t of_rank,
                             signature const mine, std::uint32_t* bits, std::uint64_t* error) {
  wait_for_previous();
  for_each(size, [&](std::uint64_t p) {
    std::uint32_t const named = list[p];
    if (of_rank > 0 && p % of_rank >= of_rank - signature_words) {
      if (named != mine.word(p % of_rank - (of_rank - signature_words)))
        set_fault(error, exchange_fault::decision, static_cast<std::uint32_t>(p / of_rank));
      return;
    }
    if (named == failed_list && named > n && of_rank > 0 && p % of_rank == 0)
      set_fault(error, exchange_fault::failed, static_cast<std::uint32_t>(p / of_rank));
    else if (named > n)
      set_fault(error, exchange_fault::order, 0);
    else if (named > 0)
      atomicOr(&bits[(named - 1) / 32], 1u << ((named - 1) % 32));
  });
}

inline constexpr unsigned words_of_cell = cell_size / 32;

/// One block per cell: counts its bits.
template <int = 0>
__global__ void __launch_bounds__(words_of_cell) count_bits(std::uint32_t const* bits, std::uint32_t* counts) {
  wait_for_previous();
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

/// One block per cell: writes the marked elements in order, and this rank's accumulators there, clamped to +-limit, to
/// `out` and to `sums`, which zeros follow. Summed over the ranks they are the step's only update.
template <class Stored>
__global__ void __launch_bounds__(words_of_cell)
    write_union(std::uint32_t const* bits, Stored const* accumulator, std::uint64_t capacity, entry_list const out,
                float* sums, float limit, std::uint64_t* beyond, update* all) {
  wait_for_previous();
  using scan = CUB_NS_QUALIFIER::BlockScan<std::uint32_t, words_of_cell>;
  __shared__ typename scan::TempStorage shared;
  std::uint32_t const total = out.cells[gridDim.x];
  std::uint32_t word = bits[blockIdx.x * words_of_cell + threadIdx.x];
  std::uint32_t before = 0;
  scan{shared}.ExclusiveSum(static_cast<std::uint32_t>(__popc(word)), before);
  std::uint64_t to = std::uint64_t{out.cells[blockIdx.x]} + before;
  for (; word != 0 && to < capacity; word &= word - 1, ++to) {
    std::uint32_t const i = blockIdx.x * cell_size + threadIdx.x * 32 + static_cast<std::uint32_t>(__ffs(word) - 1);
    out.indices[to] = i;
    out.values[to] = sums[to] = saturated(to_float(accumulator[i]), limit, beyond);
  }
  for_each(capacity, [&](std::uint64_t p) {
    if (p >= total) sums[p] = 0;
  });
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  *out.count = total;
  *all = {out.indices, sums, total, out.cells};
}

}  // namespace gradsieve::cuda_kernels
