// A device's memory for accumulate passes that collect before the step's budgets are known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <gradsieve/cuda/passes/early_candidates.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/stream_work.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The segments of this step and of the last, by which the pass has collected.
class early_memory {
 public:
  /// Passes are to collect by the last step's segments, from the next plan() on.
  void want() noexcept { wanted_ = true; }

  /// For `segments`, whose candidates have `capacity`; returns that of all candidates.
  /// `open`: a word that is zero before an accumulate pass. Allocates.
  [[nodiscard]] std::uint64_t plan(stream_work const& work, std::size_t segments, std::uint64_t capacity,
                                   std::uint32_t* open) {
    bool const runs = wanted_ && 2 * capacity <= std::numeric_limits<std::uint32_t>::max();
    planned_ = work.zeroed<cuda_kernels::device_segment>(runs ? 2 * segments : 0);
    early_ = {};
    if (!runs) return capacity;
    early_ = {planned_.data() + segments, planned_.data(), static_cast<std::uint32_t>(capacity), open};
    return 2 * capacity;
  }

  [[nodiscard]] cuda_kernels::early_candidates const& early() const noexcept { return early_; }

  /// What the pass knows of its segments.
  [[nodiscard]] cuda_kernels::tables for_pass(cuda_kernels::tables tables) const noexcept {
    if (early_.apart != 0) tables.segments = planned_.data();
    return tables;
  }

  /// Uploads a step's segments: before its pass, or after a pass that has collected by the last step's.
  template <int = 0>
  void upload(stream_work const& work, std::span<cuda_kernels::device_segment const> table,
              std::span<cuda_kernels::device_segment> segments, cuda_kernels::tables const& tables) const {
    if (early_.apart == 0) return work.upload(table, segments);
    auto const now = planned_.first(table.size());
    work.where().copy(std::as_bytes(now), std::as_writable_bytes(planned_.span().subspan(table.size())));
    work.upload(table, now);
    work.over<cuda_kernels::keep_candidates<>>(table.size(), segments.data(), tables, early_);
  }

 private:
  bool wanted_ = false;
  cuda_buffer<cuda_kernels::device_segment> planned_;
  cuda_kernels::early_candidates early_;
};

}  // namespace gradsieve::detail
