// The list of a step: the entries of all segments in index order, and where those of every cell begin.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::cuda_kernels {

/// Candidates above a threshold and equal to it.
struct kept_count {
  std::uint32_t above = 0;
  std::uint32_t equal = 0;

  [[nodiscard]] __device__ std::uint64_t packed() const { return above | std::uint64_t{equal} << 32; }
  [[nodiscard]] static __device__ kept_count unpacked(std::uint64_t both) {
    return {static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
  }
  /// Entries that come of them, as far as there is room.
  [[nodiscard]] __device__ std::uint32_t entries(threshold const at, std::uint32_t room) const {
    return smaller(above + smaller(equal, at.ties), room);
  }
};

/// One of the launch's blocks: consecutive tiles, by turns. Those of earlier turns run already.
class tile_run {
 public:
  __device__ tile_run(tables const& t, choice_tables const& c, std::uint32_t tiles_each) : t_{t}, c_{c} {
    __shared__ std::uint32_t turn;
    if (threadIdx.x == 0) turn = atomicInc(c.list_tickets, gridDim.x - 1);
    __syncthreads();
    turn_ = turn;
    each_ = tiles_each;
    first_ = turn_ * tiles_each;
    last_ = smaller(first_ + tiles_each, t.tile_count);
  }

  /// Calls body(number) by a warp for each of its tiles.
  template <class Body>
  __device__ void each(Body const& body) const {
    for (std::uint32_t at = first_ + threadIdx.x / 32; at < last_; at += write_warps) body(at);
  }

  /// t.kept, the count of every tile, becomes that of the run's tiles before it.
  __device__ void scan() {
    using scanner = cub::BlockScan<std::uint64_t, write_threads>;
    __shared__ typename scanner::TempStorage shared;
    total_ = 0;
    for (std::uint32_t from = first_; from < last_; from += write_threads) {
      std::uint32_t const at = from + threadIdx.x;
      std::uint64_t before = 0;
      std::uint64_t all = 0;
      scanner{shared}.ExclusiveSum(at < last_ ? t_.kept[at] : 0, before, all);
      if (at < last_) t_.kept[at] = total_ + before;
      total_ += all;
      __syncthreads();
    }
  }

  /// Tells later runs what this one has of the segment that the next begins in, and waits for what earlier ones have of
  /// the segment that this one begins in. @pre scan()
  __device__ void exchange() {
    if (threadIdx.x == 0) {
      std::uint64_t mine = total_;
      if (std::uint32_t const s = segment_at(last_); s != no_segment && t_.segments[s].first > first_) {
        std::uint32_t const begin = t_.segments[s].first;
        mine = begin < last_ ? total_ - t_.kept[begin] : 0;
      }
      atomicExch(reinterpret_cast<unsigned long long*>(&c_.list_counts[turn_]), present | mine);
    }
    using scanner = cub::BlockScan<std::uint64_t, write_threads>;
    __shared__ typename scanner::TempStorage shared;
    std::uint32_t const s = segment_at(first_);
    std::uint32_t const from = s == no_segment ? first_ : t_.segments[s].first;
    std::uint64_t own = 0;
    for (std::uint32_t run = from / each_ + threadIdx.x; run < turn_; run += write_threads) {
      std::uint64_t told = 0;
      while (((told = told_by(run)) & present) == 0) {
      }
      own += told & ~present;
    }
    std::uint64_t unused = 0;
    scanner{shared}.ExclusiveSum(own, unused, before_);
  }

  /// What a tile's segment has before it. @pre exchange()
  [[nodiscard]] __device__ kept_count before(std::uint32_t at, device_segment const& about) const {
    std::uint64_t const here = t_.kept[at];
    return kept_count::unpacked(about.first >= first_ ? here - t_.kept[about.first] : here + before_);
  }

 private:
  static constexpr std::uint64_t present = std::uint64_t{1} << 63;  // a run has fewer than 2^31 elements

  [[nodiscard]] __device__ std::uint32_t segment_at(std::uint32_t at) const {
    return at < t_.tile_count ? t_.tiles[at].segment : no_segment;
  }
  [[nodiscard]] __device__ std::uint64_t told_by(std::uint32_t run) const {
    return *const_cast<std::uint64_t const volatile*>(&c_.list_counts[run]);
  }

  tables const& t_;
  choice_tables const& c_;
  std::uint32_t turn_;
  std::uint32_t each_;
  std::uint32_t first_;
  std::uint32_t last_;
  std::uint64_t total_ = 0;
  std::uint64_t before_ = 0;
};

/// What a threshold keeps of a tile's candidates. By a warp.
[[nodiscard]] __device__ inline kept_count count_kept(tables const& t, std::uint32_t at, threshold const kept,
                                                      std::uint32_t base) {
  place const here = t.places[at];
  if (kept == threshold{}) return {here.count, 0};
  unsigned const lane = threadIdx.x % 32;
  std::uint64_t own = 0;
#pragma unroll 4
  for (std::uint32_t i = lane; i < here.count; i += 32) {
    key_type const key = magnitude_key(t.candidate_values[std::uint64_t{base} + here.offset + i]);
    own += (key > kept.key ? 1u : 0u) + (std::uint64_t{key == kept.key ? 1u : 0u} << 32);
  }
  return kept_count::unpacked(warp_sum(own));
}

/// Those candidates to their places, the first at `to`. By a warp.
template <class Sent>
__device__ void copy_kept(tables const& t, std::uint32_t at, threshold const kept, device_segment const& about,
                          kept_count before, Sent const& sent, std::uint32_t to_segment, entry_list const& out) {
  place const here = t.places[at];
  unsigned const lane = threadIdx.x % 32;
  std::uint32_t to = before.above + smaller(before.equal, kept.ties);
  for (std::uint32_t i = 0; i < here.count && to < about.out_room; i += 32) {
    bool const valid = i + lane < here.count;
    std::uint64_t const from = std::uint64_t{about.base} + here.offset + i + lane;
    float const value = valid ? t.candidate_values[from] : 0.0f;
    index_type const index = valid ? t.candidate_indices[from] : 0;
    key_type const key = magnitude_key(value);
    std::uint32_t const lower_lanes = (1u << lane) - 1;
    std::uint32_t const ties = __ballot_sync(~0u, valid && key == kept.key);
    bool const take =
        valid && (key > kept.key || (key == kept.key && before.equal + __popc(ties & lower_lanes) < kept.ties));
    std::uint32_t const all = __ballot_sync(~0u, take);
    std::uint32_t const place_here = to + __popc(all & lower_lanes);
    if (take && place_here < about.out_room) {
      out.indices[to_segment + place_here] = index;
      out.values[to_segment + place_here] = sent(value);
    }
    to += __popc(all);
    before.equal += __popc(ties);
  }
}

/// A tile's share of its segment's list, which lies elsewhere. By a warp.
__device__ inline void copy_share(std::uint32_t at, device_segment const& about, std::uint32_t count,
                                  entry_list const& from, std::uint32_t to_segment, entry_list const& out) {
  std::uint64_t const tiles_here = about.last - about.first;
  std::uint64_t const begin = std::uint64_t{count} * (at - about.first) / tiles_here;
  std::uint64_t const end = std::uint64_t{count} * (at + 1 - about.first) / tiles_here;
  for (std::uint64_t i = begin + threadIdx.x % 32; i < end; i += 32) {
    out.indices[to_segment + i] = from.indices[about.out + i];
    out.values[to_segment + i] = from.values[about.out + i];
  }
}

/// The list of all segments, from their candidates or from the selector's own `lists`, which may be where the list of
/// all is to be. A warp a tile.
template <class Selector>
__global__ void __launch_bounds__(write_threads)
    write_entries(Selector const chosen, tables const t, choice_tables const c, std::uint32_t tiles_each,
                  entry_list const lists, entry_list const out) {
  wait_for_previous();
  tile_run run{t, c, tiles_each};
  run.each([&](std::uint32_t at) {
    tile const mine = t.tiles[at];
    kept_count kept;
    if (mine.segment != no_segment && mine.excluded == 0 &&
        c.choices[mine.segment].source == entry_source::candidates)
      kept = count_kept(t, at, c.choices[mine.segment].at, t.segments[mine.segment].base);
    if (threadIdx.x % 32 == 0) t.kept[at] = kept.packed();
  });
  __syncthreads();
  run.scan();
  run.exchange();
  run.each([&](std::uint32_t at) {
    tile const mine = t.tiles[at];
    std::uint32_t const cell = mine.begin / cell_size;
    bool const begins_cell = threadIdx.x % 32 == 0 && t.cell_tiles[cell] == at;
    if (mine.segment == no_segment) {
      if (!begins_cell) return;
      auto const before =
          count_before(t.segment_count, [&](std::uint64_t s) { return t.segments[s].offset < mine.begin; });
      out.cells[cell] = t.starts[before];
      return;
    }
    auto const about = t.segments[mine.segment];
    auto const choice = c.choices[mine.segment];
    std::uint32_t const start = t.starts[mine.segment];
    std::uint32_t before = 0;
    if (choice.source == entry_source::candidates) {
      auto const kept = run.before(at, about);
      before = kept.entries(choice.at, about.out_room);
      float mean = 0;
      if constexpr (quantising_selector<Selector>) mean = t.means[mine.segment];
      if (mine.excluded == 0)
        copy_kept(t, at, choice.at, about, kept, value_sent<Selector>{chosen, mean}, start, out);
    } else if (choice.source == entry_source::list) {
      std::uint32_t const count = t.starts[mine.segment + 1] - start;
      if (begins_cell)
        before = static_cast<std::uint32_t>(first_not_below(lists.indices + about.out, count, mine.begin));
      if (lists.indices != out.indices) copy_share(at, about, count, lists, start, out);
    }
    if (begins_cell) out.cells[cell] = start + before;
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) out.cells[t.cell_count] = t.starts[t.segment_count];
}

}  // namespace gradsieve::cuda_kernels
