// What goes wrong in an exchange, how it ends, and the union of the ranks' choices.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/apply.cuh>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

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

/// Where the entries of every cell begin in an update, whose indices rise. Each cell is searched: entries crowd in some
/// layers, and one thread that fills the gap behind such a layer would store its cells one after the other.
__device__ inline void fill_directory(update const& of, std::uint32_t cells, thread_team const& team) {
  team.for_each(std::uint64_t{cells} + 1, [&](std::uint64_t c) {
    of.cells[c] = static_cast<std::uint32_t>(first_not_below(of.indices, of.count, c * cell_size));
  });
}

/// The end of an exchange. If it failed here (*error is not zero) or on another rank (*failed, the ranks' sum, is not
/// zero), nothing is given up and the gradient gets no update; else the updates get their directories, where `fill`.
/// Writes the error to *reported, and 0 to *touched. `error`, `failed`, `touched`, `reported`, `sent.cells` and, of a
/// gradient without elements, the updates' may be null.
template <int = 0>
__global__ void end_exchange(float const* failed, entry_list const sent, bool fill, std::uint32_t cells,
                             update const* updates, std::uint32_t senders, std::uint64_t* error, std::uint64_t* touched,
                             std::uint64_t* reported) {
  wait_for_previous();
  __shared__ bool good;
  if (threadIdx.x == 0) {
    if (failed != nullptr && magnitude_key(*failed) != 0) set_first_fault(error, exchange_fault::elsewhere, 0);
    auto const found = error == nullptr ? 0 : atomicOr(reinterpret_cast<unsigned long long*>(error), 0ull);
    good = found == 0;
    if (blockIdx.x == 0) {
      if (touched != nullptr) *touched = 0;
      if (reported != nullptr) *reported = found;
    }
  }
  __syncthreads();
  if (good && !fill) return;
  for_each_sender(senders, [&](std::uint32_t u, thread_team const& team) {
    if (good)
      fill_directory(updates[u], cells, team);
    else if (updates[u].cells != nullptr)
      team.for_each(std::uint64_t{cells} + 1, [&](std::uint64_t c) { updates[u].cells[c] = 0; });
  });
  if (!good && sent.cells != nullptr)
    for_each(std::uint64_t{cells} + 1, [&](std::uint64_t c) { sent.cells[c] = 0; });
}

// ---- The union of the ranks' choices -------------------------------------------------------------------------

/// One block a segment: this rank's indices + 1 to the places that the segment has in every rank's list; 0 is no index.
template <int = 0>
__global__ void list_choices(tables const t, entry_list const own, std::uint32_t const* slots, bool const* full,
                             std::uint64_t capacity, std::uint32_t* list) {
  wait_for_previous();
  std::uint32_t const s = blockIdx.x;
  auto const mine = t.segments[s];
  std::uint32_t const first = t.starts[s];
  std::uint32_t const count = full[s] ? mine.size : t.starts[s + 1] - first;
  for (std::uint32_t i = threadIdx.x; i < count && slots[s] + i < capacity; i += blockDim.x)
    list[slots[s] + i] = 1 + (full[s] ? mine.offset + i : own.indices[first + i]);
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

/// What a step votes on, and this rank's voice in it.
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

/// What the first place of a rank's list says if that rank has failed already.
inline constexpr std::uint32_t failed_list = ~0u;

/// Words behind a rank's list in which it says what it has decided, and in which step.
inline constexpr std::uint64_t signature_words = 2;

struct signature {
  std::uint64_t const* decision = nullptr;  // null: none
  std::uint64_t const* step = nullptr;

  [[nodiscard]] __device__ std::uint32_t word(std::uint64_t w) const {
    return static_cast<std::uint32_t>((*decision ^ mix(*step)) >> (32 * w));
  }
};

/// The same without slots: a list as it is, with zeros behind it, and the signature, if there is one, behind the
/// capacity. Where *error is not zero, which may be null, it says that the rank has failed.
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

/// A bit for every element that a list names; what names none is an error. `of_rank`: places of a rank's list, where it
/// may say that the rank has failed, and ends with its signature, which is to be `mine`; 0 where there is neither.
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

/// One block a cell: the number of its bits.
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

/// One block a cell: the marked elements, in order, and this rank's accumulators there, clamped to +-limit, twice: in
/// `sums` with zeros behind them. They are the one update of a step, once the ranks have summed them up.
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
