// The list of a step: the entries of all segments in index order, and where each cell's entries begin.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/tile_run.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/selector/select.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

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
