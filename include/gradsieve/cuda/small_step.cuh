// A whole step on a small gradient in one launch: accumulate, select, write the entries.
#pragma once

#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/accumulate.cuh>
#include <gradsieve/cuda/passes/block_group.cuh>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/choose.cuh>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/incoming.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/select.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/write_entries.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

static_assert(small_threads == group_threads && small_threads == write_threads);

struct small_memory {
  union {
    accumulate_memory<small_threads> pass;
    block_shared_state selection;
    part_memory part;
  };
};

/// Calls body(i) for the elements of all excluded layers. By all threads of the block.
template <class Body>
__device__ void each_excluded(tables const& t, Body const& body) {
  for (std::uint32_t at = 0; t.has_excluded && at < t.tile_count; ++at)
    if (tile const here = t.tiles[at]; here.excluded != 0)
      for (std::uint32_t i = here.begin + threadIdx.x; i < here.begin + here.size; i += small_threads) body(i);
  __syncthreads();
}

/// Selects as select_entries() if the candidates do not suffice. Excluded layers are zero meanwhile, since selectors
/// may read a whole segment. By all threads of the block.
template <class Selector, class Stored>
__device__ __forceinline__ void select_small(Selector const& chosen, Stored* accumulator, tables const& t,
                                             search_memory const& memory, choice_tables const& c, float* held,
                                             block_shared_state& shared, entry_list const& out, list_end const& end) {
  each_excluded(t, [&](std::uint32_t i) {
    held[i] = to_float(accumulator[i]);
    accumulator[i] = to_stored<Stored>(0.0f);
  });
  thread_group<true> group{*memory.launch, *memory.teams, {0, 1, 0}, shared};
  select_segment(chosen, group, const_cast<Stored const*>(accumulator), t, memory.all, c, false, out, 0);
  group.release();
  if (group.is_first()) memory.teams->arrived = 0;
  begin_list(group, t, c, end);
  __syncthreads();
  each_excluded(t, [&](std::uint32_t i) { accumulator[i] = to_stored<Stored>(held[i]); });
  std::uint32_t const count = t.written[0];
  for (std::uint32_t cell = threadIdx.x; cell <= t.cell_count; cell += small_threads)
    out.cells[cell] = static_cast<std::uint32_t>(first_not_below(out.indices, count, std::uint64_t{cell} * cell_size));
}

/// One block per tile: accumulate(); then the last block does select_entries() and write_entries(), with the same
/// results, for one segment of at most small_size elements and small_tiles tiles. `held`: n values, or null.
template <class Selector, class T, class Residual>
__global__ void __launch_bounds__(small_threads, 1)
    small_step(Selector const chosen, incoming<T, Residual> const in, tables const t, search_memory const memory,
               choice_tables const c, float* held, entry_list const out, list_end const end) {
  wait_for_previous();
  __shared__ small_memory shared;
  accumulate_tile<true, false>(in, t, shared.pass);
  if (!is_last_block(c.tickets)) return;
  thread_group<false> group{shared.selection};
  from_memory<stored_t<Residual>> const read{in.states[0]};
  kernel_workspace work{group, t, read, memory.all, false};
  if (choose_entries(chosen, group, work, t, c, 0)) {
    __syncthreads();
    begin_list(group, t, c, end);
    __syncthreads();
    write_part(chosen, shared.part, t, c, out, out, 0, 0, ~0u);
  } else {
    select_small(chosen, in.states[0], t, memory, c, held, shared.selection, out, end);
  }
  end_counts(t);
}

}  // namespace gradsieve::cuda_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

class small_steps {
 public:
  /// `divides`: several blocks search, or their number was set. Allocates n floats if steps fit and exclude layers.
  void plan(stream_work const& work, cuda_kernels::tables const& t, bool divides) {
    fits_ = cuda_kernels::has_small_step && t.n <= cuda_kernels::small_size && t.tile_count > 0 &&
            t.tile_count <= cuda_kernels::small_tiles && t.segment_count == 1 && !divides;
    held_ = cuda_buffer<float>(work.where(), fits_ && t.has_excluded ? t.n : 0);
  }

  [[nodiscard]] bool fits() const noexcept { return fits_; }

  /// Launches cuda_kernels::small_step(). The work enqueued before may be any kernel.
  template <class Selector, class T, class Residual>
  void run(stream_work const& work, Selector const& chosen, cuda_kernels::incoming<T, Residual> const& in,
           cuda_kernels::tables const& tables, cuda_kernels::search_memory const& memory,
           cuda_kernels::choice_tables const& choices, cuda_kernels::entry_list const& out, bool leaves) const {
    work.launch<cuda_kernels::small_step<Selector, T, Residual>>(tables.tile_count, cuda_kernels::small_threads, chosen,
                                                                 in, tables, memory, choices, held_.data(), out,
                                                                 cuda_kernels::list_end{out.count, leaves});
  }

 private:
  bool fits_ = false;
  cuda_buffer<float> held_;
};

}  // namespace gradsieve::detail
