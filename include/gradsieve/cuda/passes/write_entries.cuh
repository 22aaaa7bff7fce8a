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

/// Numbers of candidates above a threshold and equal to it. Differences wrap, and are right if they are counts.
struct kept_count {
  std::uint32_t above;
  std::uint32_t equal;

  [[nodiscard]] __device__ std::uint64_t packed() const { return above | std::uint64_t{equal} << 32; }
  [[nodiscard]] static __device__ kept_count unpacked(std::uint64_t both) {
    return {static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
  }
  [[nodiscard]] static __device__ kept_count of(std::uint32_t lanes_above, std::uint32_t lanes_equal) {
    return {static_cast<std::uint32_t>(__popc(lanes_above)), static_cast<std::uint32_t>(__popc(lanes_equal))};
  }
  friend __device__ kept_count operator+(kept_count a, kept_count b) { return {a.above + b.above, a.equal + b.equal}; }
  friend __device__ kept_count operator-(kept_count a, kept_count b) { return {a.above - b.above, a.equal - b.equal}; }

  [[nodiscard]] __device__ std::uint32_t entries(index_type ties) const { return above + smaller(equal, ties); }
};

/// One of a block's tiles.
struct alignas(16) listed_tile {
  key_type key;              // the threshold of its segment
  index_type ties;           // of that threshold
  std::uint32_t start;       // of the segment's entries in the list
  std::uint32_t capacity;    // for entries
  kept_count origin;         // what this block keeps before the segment begins, less what earlier blocks keep of it
  std::uint32_t first_tile;  // of its segment; its own number if it has none
  entry_source from;
  std::uint32_t source;  // the block's candidate i lies at source + i, if it is in the tile
  float mean;            // for value_sent
  kept_count before;     // what the warp that has the tile's first candidate keeps before it
};

/// A block's shared memory. Its candidates are those of its tiles, one after the other.
struct run_memory {
  std::uint32_t turn;
  std::uint32_t first[2 * most_write_tiles];    // of each tile: its first candidate; after the last tile: ~0
  std::uint32_t cells[most_write_tiles];        // of each tile: the cell that it begins, or no_cell
  std::uint32_t counts[most_write_tiles / 32];  // of 32 tiles each: candidates
  kept_count kept[write_warps];                 // of each warp's candidates
  kept_count before_warp[write_warps + 1];      // of all earlier warps'
  kept_count before_tile[most_write_tiles];     // of all earlier tiles'
  kept_count earlier;                           // of those that earlier blocks have of the first tile's segment
  listed_tile tiles[most_write_tiles];
};
static_assert(write_threads >= 2 * most_write_tiles && most_write_tiles % 32 == 0 && write_warps < 32);

/// Consecutive tiles of one of `blocks` blocks. A ticket tells which: the blocks of earlier tickets run already. The
/// block's warps divide its candidates evenly, wherever tiles begin.
class tile_run {
 public:
  static constexpr std::uint32_t no_cell = ~std::uint32_t{0};

  __device__ tile_run(run_memory& shared, tables const& t, choice_tables const& c, std::uint32_t tiles_each,
                      std::uint32_t blocks)
      : s_{shared}, t_{t}, c_{c}, each_{tiles_each} {
    if (threadIdx.x == 0) s_.turn = atomicInc(c.list_tickets, blocks - 1);
    __syncthreads();
    first_ = s_.turn * tiles_each;
    count_ = smaller(tiles_each, t.tile_count - first_);
  }

  [[nodiscard]] __device__ std::uint32_t first() const { return first_; }  ///< its first tile
  [[nodiscard]] __device__ unsigned count() const { return count_; }       ///< of tiles
  [[nodiscard]] __device__ listed_tile const& operator[](unsigned number) const { return s_.tiles[number]; }
  [[nodiscard]] __device__ std::uint32_t cell(unsigned number) const { return s_.cells[number]; }

  /// Loads the tiles, one thread per tile, and divides their candidates among the warps.
  template <bool Means>
  __device__ void describe() {
    std::uint32_t count = 0;
    if (threadIdx.x < count_) {
      std::uint32_t const at = first_ + threadIdx.x;
      tile const mine = t_.tiles[at];
      place const here = t_.places[at];
      std::uint32_t const cell = mine.begin / cell_size;
      bool const begins_cell = t_.cell_tiles[cell] == at;
      listed_tile known{.first_tile = at, .from = entry_source::none, .source = here.offset};
      if (mine.segment != no_segment) {
        auto const& about = t_.segments[mine.segment];
        auto const& choice = c_.choices[mine.segment];
        known.key = choice.at.key;
        known.ties = choice.at.ties;
        known.start = t_.starts[mine.segment];
        known.capacity = about.out_capacity;
        known.first_tile = about.first;
        known.from = choice.source;
        known.source += about.base;
        if constexpr (Means) known.mean = t_.means[mine.segment];
      }
      s_.tiles[threadIdx.x] = known;
      s_.cells[threadIdx.x] = begins_cell ? cell : no_cell;
      if (known.from == entry_source::candidates && mine.excluded == 0) count = here.count;
    }
    std::uint32_t const up_to = warp_prefix_sum(count);
    if (threadIdx.x % 32 == 31 && threadIdx.x < most_write_tiles) s_.counts[threadIdx.x / 32] = up_to;
    if (threadIdx.x == 0) s_.earlier = {};
    __syncthreads();
    std::uint32_t first = up_to - count;
    total_ = 0;
#pragma unroll
    for (unsigned w = 0; w < most_write_tiles / 32; ++w) {
      if (w < threadIdx.x / 32) first += s_.counts[w];
      total_ += s_.counts[w];
    }
    if (threadIdx.x < 2 * most_write_tiles) s_.first[threadIdx.x] = threadIdx.x < count_ ? first : ~0u;
    if (threadIdx.x < count_) s_.tiles[threadIdx.x].source -= first;
    share_ = (total_ + write_warps * batch - 1) / (write_warps * batch) * batch;
    begin_ = threadIdx.x / 32 * share_;
    end_ = smaller(begin_ + share_, total_);
    __syncthreads();
  }

  /// Counts what each warp keeps of its candidates, in all and before each tile that begins there. @pre describe()
  __device__ void count_kept() {
    kept_count const all = each_candidate<true>({}, [&](std::uint32_t i, unsigned v, kept_count before, bool, bool) {
      if (i == s_.first[tiles_[v]]) s_.tiles[tiles_[v]].before = before;
    });
    if (threadIdx.x % 32 == 0) s_.kept[threadIdx.x / 32] = all;
    __syncthreads();
  }

  /// Publishes to later blocks the count that this one keeps of its last tile's segment, and waits for the counts that
  /// earlier ones keep of its first tile's (look-back). @pre count_kept()
  __device__ void exchange() {
    if (threadIdx.x < 32) {
      std::uint64_t const own = threadIdx.x < write_warps ? s_.kept[threadIdx.x].packed() : 0;
      std::uint64_t const up_to = warp_prefix_sum(own);
      if (threadIdx.x <= write_warps) s_.before_warp[threadIdx.x] = kept_count::unpacked(up_to - own);
      __syncwarp();
      if (threadIdx.x == 0) {
        kept_count const mine = s_.before_warp[write_warps] - before_segment(count_ - 1);
        atomicExch(reinterpret_cast<unsigned long long*>(&c_.list_counts[s_.turn]), present | mine.packed());
      }
    }
    __syncthreads();
    if (threadIdx.x < count_) {
      s_.before_tile[threadIdx.x] = before_tile(threadIdx.x);
      s_.tiles[threadIdx.x].origin = before_segment(threadIdx.x);
    }
    kept_count own{};
    for (std::uint32_t run = s_.tiles[0].first_tile / each_ + threadIdx.x; run < s_.turn; run += write_threads) {
      std::uint64_t count = 0;
      while (((count = published_by(run)) & present) == 0) {
      }
      own = own + kept_count::unpacked(count & ~present);
    }
    own = {warp_sum(own.above), warp_sum(own.equal)};
    if (threadIdx.x % 32 == 0) {
      atomicAdd(&s_.earlier.above, own.above);
      atomicAdd(&s_.earlier.equal, own.equal);
    }
    __syncthreads();
    if (threadIdx.x < count_ && s_.tiles[threadIdx.x].first_tile < first_)
      s_.tiles[threadIdx.x].origin = s_.tiles[threadIdx.x].origin - s_.earlier;
    __syncthreads();
  }

  [[nodiscard]] __device__ kept_count before(unsigned number) const {  // in its segment before it. @pre exchange()
    return s_.before_tile[number] - s_.tiles[number].origin;
  }

  /// Calls body(tile, place, index, value) for each entry, with its place among its segment's. @pre exchange()
  template <class Body>
  __device__ void each_entry(Body const& body) {
    auto const to_entry = [&](std::uint32_t, unsigned v, kept_count before, bool is_above, bool is_equal) {
      listed_tile const& mine = s_.tiles[tiles_[v]];
      kept_count const of_segment = before - mine.origin;
      bool const is_kept = is_above || (is_equal && of_segment.equal < mine.ties);
      std::uint32_t const to = of_segment.entries(mine.ties);
      if (is_kept && to < mine.capacity) body(mine, to, indices_[v], values_[v]);
    };
    (void)each_candidate<false>(s_.before_warp[threadIdx.x / 32], to_entry);
  }

 private:
  static constexpr std::uint64_t present = std::uint64_t{1} << 63;  // a block has fewer than 2^31 elements
  static constexpr std::uint32_t batch = 32 * write_loads;          // candidates that a warp has in registers

  [[nodiscard]] __device__ std::uint64_t published_by(std::uint32_t run) const {
    return *const_cast<std::uint64_t const volatile*>(&c_.list_counts[run]);
  }

  [[nodiscard]] __device__ unsigned tile_of(std::uint32_t i) const {  // that has candidate i
    unsigned at = 0;
#pragma unroll
    for (unsigned step = most_write_tiles / 2; step > 0; step /= 2)
      if (s_.first[at + step] <= i) at += step;
    return at;
  }

  [[nodiscard]] __device__ kept_count before_tile(unsigned number) const {  // kept by this block
    std::uint32_t const i = s_.first[number];
    if (i == total_) return s_.before_warp[write_warps];
    return s_.before_warp[i / share_] + s_.tiles[tile_of(i)].before;
  }
  [[nodiscard]] __device__ kept_count before_segment(unsigned number) const {  // of a tile, kept by this block
    std::uint32_t const begin = s_.tiles[number].first_tile;
    return begin <= first_ ? kept_count{} : before_tile(begin - first_);
  }

  /// Loads a batch; all loads are issued before the first is used. Tiles lie between its first and last candidate's.
  __device__ void load(std::uint32_t from, bool with_indices) {
    unsigned const lane = threadIdx.x % 32;
    unsigned const outer = tile_of(lane == 0 ? from : smaller(from + batch, end_) - 1);
    unsigned const first_tile = __shfl_sync(~0u, outer, 0);
    unsigned const others = __shfl_sync(~0u, outer, 1) - first_tile;
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v) tiles_[v] = first_tile;
    for (unsigned step = others == 0 ? 0 : 1u << (31 - __clz(others)); step > 0; step /= 2)
#pragma unroll
      for (unsigned v = 0; v < write_loads; ++v)
        if (s_.first[tiles_[v] + step] <= from + 32 * v + lane) tiles_[v] += step;
    std::uint32_t at[write_loads];
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v) at[v] = s_.tiles[tiles_[v]].source + from + 32 * v + lane;
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v)
      values_[v] = from + 32 * v + lane < end_ ? t_.candidate_values[at[v]] : 0.0f;
    if (!with_indices) return;
#pragma unroll
    for (unsigned v = 0; v < write_loads; ++v)
      indices_[v] = from + 32 * v + lane < end_ ? t_.candidate_indices[at[v]] : 0;
  }

  /// Calls body(i, v, before, is_above, is_equal) for each candidate of this warp, the lane's v-th of the batch: what
  /// is kept before it, from `before` on, and how it compares to the threshold. Returns what is kept before the end. If
  /// a warp has one batch only, the first walk loads it, and it stays in registers.
  template <bool First, class Body>
  __device__ kept_count each_candidate(kept_count before, Body const& body) {
    bool const is_only = share_ == batch;
    std::uint32_t const lower_lanes = (1u << threadIdx.x % 32) - 1;
    for (std::uint32_t from = begin_; from < end_; from += batch) {
      if (First || !is_only) load(from, !First || is_only);
#pragma unroll
      for (unsigned v = 0; v < write_loads; ++v) {
        std::uint32_t const i = from + 32 * v + threadIdx.x % 32;
        key_type const key = magnitude_key(values_[v]);
        key_type const least = s_.tiles[tiles_[v]].key;
        bool const is_above = i < end_ && key > least;
        bool const is_equal = i < end_ && key == least;
        std::uint32_t const above = __ballot_sync(~0u, is_above);
        std::uint32_t const equal = __ballot_sync(~0u, is_equal);
        if (i < end_) body(i, v, before + kept_count::of(above & lower_lanes, equal & lower_lanes), is_above, is_equal);
        before = before + kept_count::of(above, equal);
      }
    }
    return before;
  }

  run_memory& s_;
  tables const& t_;
  choice_tables const& c_;
  std::uint32_t each_;
  std::uint32_t first_;
  std::uint32_t count_;
  std::uint32_t total_;  // of candidates
  std::uint32_t share_;  // of a warp, in whole batches
  std::uint32_t begin_;  // of this warp's
  std::uint32_t end_;
  // The last batch, of this lane.
  unsigned tiles_[write_loads];
  float values_[write_loads];
  index_type indices_[write_loads];
};

/// Writes where a cell's entries begin, by the thread of the cell's first tile. @pre run.exchange()
__device__ inline void write_cells(tile_run const& run, tables const& t, entry_list const& lists,
                                   entry_list const& out) {
  unsigned const number = threadIdx.x;
  if (number >= run.count() || run.cell(number) == tile_run::no_cell) return;
  listed_tile const& mine = run[number];
  std::uint32_t begin = mine.start;
  if (mine.from == entry_source::candidates) {
    begin += smaller(run.before(number).entries(mine.ties), mine.capacity);
  } else if (tile const here = t.tiles[run.first() + number]; here.segment == no_segment) {
    begin = t.starts[count_before(t.segment_count,
                                  [&](std::uint64_t s) { return t.segments[s].offset < here.begin; })];
  } else if (mine.from == entry_source::list) {
    index_type const* const indices = lists.indices + t.segments[here.segment].out;
    std::uint32_t const count = t.starts[here.segment + 1] - begin;
    begin += static_cast<std::uint32_t>(first_not_below(indices, count, here.begin));
  }
  out.cells[run.cell(number)] = begin;
}

/// One warp per tile: copies the tile's share of a segment whose entries lie in `lists`.
__device__ inline void copy_lists(tile_run const& run, tables const& t, entry_list const& lists,
                                  entry_list const& out) {
  for (unsigned number = threadIdx.x / 32; number < run.count(); number += write_warps) {
    if (run[number].from != entry_source::list) continue;
    std::uint32_t const s = t.tiles[run.first() + number].segment;
    device_segment const about = t.segments[s];
    std::uint32_t const start = t.starts[s];
    std::uint64_t const count = t.starts[s + 1] - start;
    std::uint64_t const tiles_before = run.first() + number - about.first;
    std::uint64_t const begin = count * tiles_before / (about.last - about.first);
    std::uint64_t const end = count * (tiles_before + 1) / (about.last - about.first);
    for (std::uint64_t i = begin + threadIdx.x % 32; i < end; i += 32) {
      out.indices[start + i] = lists.indices[about.out + i];
      out.values[start + i] = lists.values[about.out + i];
    }
  }
}

/// Writes a block's part of the list of all segments. `lists`: as in write_entries().
template <class Selector>
__device__ __forceinline__ void write_run(Selector const& chosen, tile_run& run, tables const& t,
                                          entry_list const& lists, entry_list const& out) {
  run.describe<quantising_selector<Selector>>();
  run.count_kept();
  run.exchange();
  run.each_entry([&](listed_tile const& mine, std::uint32_t to, index_type index, float value) {
    out.indices[mine.start + to] = index;
    out.values[mine.start + to] = detail::value_sent<Selector>{chosen, mine.mean}(value);
  });
  write_cells(run, t, lists, out);
  if (lists.indices != out.indices) copy_lists(run, t, lists, out);
}

/// Writes the list of all segments, from their candidates or the selector's own `lists`, which may be `out` itself.
template <class Selector>
__global__ void __launch_bounds__(write_threads, write_blocks)
    write_entries(Selector const chosen, tables const t, choice_tables const c, std::uint32_t tiles_each,
                  entry_list const lists, entry_list const out) {
  wait_for_previous();
  if (blockIdx.x == 0) {
    if (threadIdx.x == write_threads - 1) out.cells[t.cell_count] = t.starts[t.segment_count];
    end_counts(t);
  }
  __shared__ run_memory shared;
  tile_run run{shared, t, c, tiles_each, gridDim.x};
  write_run(chosen, run, t, lists, out);
}

}  // namespace gradsieve::cuda_kernels
