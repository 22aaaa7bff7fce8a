// The list of a step: the entries of all segments in index order, and where each cell's entries begin.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// A block's part of what a segment's entries are taken from, and what it and its warps keep of it.
struct part_memory {
  std::uint32_t part;
  std::uint32_t segment;
  kept_count warps[write_warps];
  kept_count earlier;  // in the segment's earlier parts
};

/// Part of a segment's candidates, or of its selector's own list, divided evenly among the warps of a block.
class entry_part {
 public:
  __device__ entry_part(part_memory& shared, tables const& t, choice_tables const& c, entry_list const& lists,
                        std::uint32_t s, std::uint32_t begin, std::uint32_t most)
      : s_{shared}, t_{t}, segment_{s}, start_{t.starts[s]}, at_{c.choices[s].at} {
    auto const& about = t.segments[s];
    capacity_ = about.out_capacity;
    is_list_ = c.choices[s].source == entry_source::list;
    from_indices_ = is_list_ ? lists.indices + about.out : t.candidate_indices + about.base;
    from_values_ = is_list_ ? lists.values + about.out : t.candidate_values + about.base;
    std::uint32_t const size = smaller(most, c.choices[s].count - begin);
    share_ = (size + write_warps * batch - 1) / (write_warps * batch) * batch;
    end_of_part_ = begin + size;
    begin_ = smaller(begin + threadIdx.x / 32 * share_, end_of_part_);
    end_ = smaller(begin_ + share_, end_of_part_);
    is_last_ = end_of_part_ == c.choices[s].count;
  }

  /// Counts what this part keeps, tells it to later parts, and waits for what the segment's `earlier` parts keep.
  /// `kept`: of each part of the segment; zero before.
  __device__ void count(std::uint64_t* kept, std::uint32_t earlier) {
    kept_count own = each<true>({}, [](unsigned, kept_count, bool, bool) {});
    if (threadIdx.x == 0) s_.earlier = {};
    if (threadIdx.x % 32 == 0) s_.warps[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
      std::uint64_t const of_warp = threadIdx.x < write_warps ? s_.warps[threadIdx.x].packed() : 0;
      std::uint64_t const up_to = warp_prefix_sum(of_warp);
      if (threadIdx.x < write_warps) s_.warps[threadIdx.x] = kept_count::unpacked(up_to - of_warp);
      if (threadIdx.x == 31) *const_cast<std::uint64_t volatile*>(&kept[earlier]) = present | up_to;
    }
    own = {};
    for (std::uint32_t p = threadIdx.x; p < earlier; p += write_threads) {
      std::uint64_t told = 0;
      while (((told = as_it_is_now(kept[p])) & present) == 0) {
      }
      own = own + kept_count::unpacked(told & ~present);
    }
    own = {warp_sum(own.above), warp_sum(own.equal)};
    if (threadIdx.x % 32 == 0) {
      atomicAdd(&s_.earlier.above, own.above);
      atomicAdd(&s_.earlier.equal, own.equal);
    }
    __syncthreads();
  }

  /// Writes the entries, and where each cell's begin: those after a candidate's cell begin where the next one's do.
  /// `sent`: the value to send for a candidate's. @pre count()
  template <class Sent>
  __device__ void write(entry_list const& out, Sent const& sent) {
    bool const copies = from_indices_ != out.indices;
    std::uint32_t next = cell_after(begin_);
    (void)each<false>(
        s_.earlier + s_.warps[threadIdx.x / 32], [&](unsigned v, kept_count before, bool is_valid, bool is_kept) {
          std::uint32_t const place = before.above + smaller(before.equal, at_.ties);
          std::uint32_t const last = is_valid ? indices_[v] / cell_size + 1 : 0;
          std::uint32_t const first = __shfl_up_sync(~0u, last, 1);
          fill(out.cells, threadIdx.x % 32 == 0 ? next : first, last, start_ + smaller(place, capacity_));
          next = __shfl_sync(~0u, last, 31);
          if (!is_kept || place >= capacity_ || !copies) return;
          out.indices[start_ + place] = indices_[v];
          out.values[start_ + place] = is_list_ ? values_[v] : sent(values_[v]);
        });
  }

  /// Writes where the cells after the segment's last candidate begin, if this part has that.
  __device__ void end_cells(entry_list const& out) const {
    if (!is_last_) return;
    std::uint32_t const end = segment_ + 1 == t_.segment_count ? t_.cell_count + 1 : first_cell(segment_ + 1);
    for (std::uint32_t cell = cell_after(end_of_part_) + threadIdx.x; cell < end; cell += write_threads)
      out.cells[cell] = t_.starts[segment_ + 1];
  }

 private:
  static constexpr std::uint64_t present = std::uint64_t{1} << 63;  // a part has fewer than 2^31 elements
  static constexpr std::uint32_t batch = 32 * write_loads;          // candidates that a warp has in registers

  [[nodiscard]] __device__ std::uint32_t first_cell(std::uint32_t s) const {  // of those that begin in a segment
    return s == 0 ? 0 : static_cast<std::uint32_t>((std::uint64_t{t_.segments[s].offset} + cell_size - 1) / cell_size);
  }
  [[nodiscard]] __device__ std::uint32_t cell_after(std::uint32_t i) const {  // the candidate before i
    return i == 0 ? first_cell(segment_) : from_indices_[i - 1] / cell_size + 1;
  }

  /// By a warp: each lane's cells [first, last) begin at its `place`.
  static __device__ void fill(std::uint32_t* cells, std::uint32_t first, std::uint32_t last, std::uint32_t place) {
    for (std::uint32_t lanes = __ballot_sync(~0u, first < last); lanes != 0; lanes &= lanes - 1) {
      int const lane = __ffs(static_cast<int>(lanes)) - 1;
      std::uint32_t const end = __shfl_sync(~0u, last, lane);
      std::uint32_t const begin = __shfl_sync(~0u, place, lane);
      for (std::uint32_t cell = __shfl_sync(~0u, first, lane) + threadIdx.x % 32; cell < end; cell += 32)
        cells[cell] = begin;
    }
  }

  /// Calls body(v, before, is_valid, is_kept) for a batch's v-th candidate of each lane: what is kept before it, from
  /// `before` on. Returns what is kept before the end, of equal ones all. If a warp has one batch only, the first walk
  /// loads it, and it stays in registers.
  template <bool First, class Body>
  __device__ kept_count each(kept_count before, Body const& body) {
    bool const is_only = share_ == batch;
    std::uint32_t const lower_lanes = (1u << threadIdx.x % 32) - 1;
    for (std::uint32_t from = begin_; from < end_; from += batch) {
      if (First || !is_only) load(from, !First || is_only);
#pragma unroll
      for (unsigned v = 0; v < write_loads; ++v) {
        bool const is_valid = from + 32 * v + threadIdx.x % 32 < end_;
        key_type const key = magnitude_key(values_[v]);
        bool const is_above = is_valid && key > at_.key;
        bool const is_equal = is_valid && key == at_.key;
        std::uint32_t const above = __ballot_sync(~0u, is_above);
        std::uint32_t const equal = __ballot_sync(~0u, is_equal);
        kept_count const here = before + kept_count::of(above & lower_lanes, equal & lower_lanes);
        body(v, here, is_valid, is_above || (is_equal && here.equal < at_.ties));
        before = before + kept_count::of(above, equal);
      }
    }
    return before;
  }

  /// Loads a batch; all loads are issued before the first is used.
  __device__ void load(std::uint32_t from, bool with_indices) {
    from += threadIdx.x % 32;
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v) values_[v] = from + 32 * v < end_ ? from_values_[from + 32 * v] : 0.0f;
    if (!with_indices) return;
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v) indices_[v] = from + 32 * v < end_ ? from_indices_[from + 32 * v] : 0;
  }

  part_memory& s_;
  tables const& t_;
  std::uint32_t segment_;
  std::uint32_t start_;     // of the segment's entries in the list
  std::uint32_t capacity_;  // for entries
  threshold at_;
  bool is_list_;
  bool is_last_;  // part of the segment
  index_type const* from_indices_;
  float const* from_values_;
  std::uint32_t end_of_part_;
  std::uint32_t share_;  // of a warp, in whole batches
  std::uint32_t begin_;  // of this warp's
  std::uint32_t end_;
  // The last batch, of this lane.
  float values_[write_loads];
  index_type indices_[write_loads];
};

/// Writes one part of a segment, the `number`-th of that size, and its cells. `lists`: as in write_entries().
template <class Selector>
__device__ __forceinline__ void write_part(Selector const& chosen, part_memory& shared, tables const& t,
                                           choice_tables const& c, entry_list const& lists, entry_list const& out,
                                           std::uint32_t s, std::uint32_t number, std::uint32_t size) {
  entry_part part{shared, t, c, lists, s, number * size, size};
  part.end_cells(out);
  part.count(c.part_kept + c.first_parts[s], number);
  float mean = 0;
  if constexpr (quantising_selector<Selector>) mean = t.means[s];
  part.write(out, detail::value_sent<Selector>{chosen, mean});
}

/// Writes the list of all segments, from their candidates or the selector's own `lists`, which may be `out` itself: one
/// block per part. A ticket tells which, as a block waits for those of earlier parts.
template <class Selector>
__global__ void __launch_bounds__(write_threads, write_blocks)
    write_entries(Selector const chosen, tables const t, choice_tables const c, entry_list const lists,
                  entry_list const out) {
  wait_for_previous();
  __shared__ part_memory shared;
  if (blockIdx.x == 0) end_counts(t);
  if (threadIdx.x == 0) {
    std::uint32_t const part = atomicInc(c.part_tickets, gridDim.x - 1);
    shared.segment = static_cast<std::uint32_t>(
        count_before(t.segment_count, [&](std::uint64_t s) { return c.first_parts[s + 1] <= part; }));
    shared.part = part - c.first_parts[shared.segment];
  }
  __syncthreads();
  if (shared.segment < t.segment_count)
    write_part(chosen, shared, t, c, lists, out, shared.segment, shared.part, c.part);
  else if (t.segment_count == 0)
    for (std::uint32_t cell = threadIdx.x; cell <= t.cell_count; cell += write_threads) out.cells[cell] = 0;
}

}  // namespace gradsieve::cuda_kernels
