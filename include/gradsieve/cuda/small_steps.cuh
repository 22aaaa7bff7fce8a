// Which gradients are small enough for a step in one launch, and that launch.
#pragma once

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/small_step.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Decides by what is planned, and launches.
class small_steps {
 public:
  /// `divides`: searches are divided among blocks, or their number was asked for. Allocates n floats, if a step fits
  /// and layers are excluded.
  void plan(stream_work const& work, cuda_kernels::tables const& t, bool divides) {
    fits_ = cuda_kernels::has_small_step && t.n <= cuda_kernels::small_size && t.tile_count > 0 &&
            t.tile_count <= cuda_kernels::small_tiles && t.segment_count == 1 && !divides;
    held_ = cuda_buffer<float>(work.where(), fits_ && t.has_excluded ? t.n : 0);
  }

  [[nodiscard]] bool fits() const noexcept { return fits_; }

  /// As cuda_kernels::small_step(). What is enqueued before it may be a kernel of others.
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
