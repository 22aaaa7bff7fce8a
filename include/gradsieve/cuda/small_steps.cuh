// Which gradients are small enough for a step in one kernel, and that kernel's launch.
#pragma once

#include <cstdint>
#include <span>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/small_step.cuh>
#include <gradsieve/cuda/stream_work.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::detail {

/// Decides by what is planned, and launches.
class small_steps {
 public:
  /// `divides`: searches are divided among blocks, or their number was asked for.
  void plan(std::uint64_t n, std::span<segment const> segments, bool has_excluded, bool divides) noexcept {
    fits_ = n <= cuda_kernels::small_size && segments.size() == 1 && segments[0].size == n && n > 0 && !has_excluded &&
            !divides;
  }

  [[nodiscard]] bool fits() const noexcept { return fits_; }

  /// As cuda_kernels::small_step(). What is enqueued before it may be a kernel of others.
  template <class Selector, class T, class Residual>
  void run(stream_work const& work, Selector const& chosen, cuda_kernels::incoming<T, Residual> const& in,
           cuda_kernels::tables const& tables, cuda_kernels::search_memory const& memory,
           cuda_kernels::choice_tables const& choices, std::uint32_t* counts, cuda_kernels::entry_list const& out,
           bool leaves) const {
    work.launch<cuda_kernels::small_step<Selector, T, Residual>>(1, cuda_kernels::small_threads, chosen, in, tables,
                                                                 memory, choices, counts, out,
                                                                 cuda_kernels::list_end{out.count, leaves});
  }

 private:
  bool fits_ = false;
};

}  // namespace gradsieve::detail
