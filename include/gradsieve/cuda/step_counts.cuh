// What a step on a device counts, in its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/core/selection.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/stream_work.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Words that the accumulate pass clears, and behind them those that it adds to, which the end of the selection clears.
/// So the pass needs no memset before it.
class step_counts {
 public:
  /// Zeros. Allocates.
  void plan(stream_work const& work, std::size_t segments) { words_ = work.zeroed<std::uint32_t>(now + 2 + segments); }

  [[nodiscard]] std::uint64_t* non_finite() const noexcept { return at(0); }  ///< elements
  [[nodiscard]] std::uint64_t* saturated() const noexcept { return at(2); }   ///< values
  /// Not 0: a layer that passes through keeps something, as it was clamped.
  [[nodiscard]] std::uint64_t* stays() const noexcept { return at(4); }
  [[nodiscard]] threshold_counts* thresholds() const noexcept { return reinterpret_cast<threshold_counts*>(at(6)); }
  /// Segments whose candidates of a pass that ran ahead do not serve.
  [[nodiscard]] std::uint32_t* open() const noexcept { return words_.data() + now - 2; }

  /// What kernels know of them.
  void show_in(cuda_kernels::tables& tables) const noexcept {
    tables.found = words_.data() + now + 2;
    tables.bad = non_finite();
    tables.bad_now = at(now);
    tables.thresholds = thresholds();
    tables.counts = words_.data();
    tables.count_words = now;
  }

 private:
  static constexpr std::uint32_t now = (4 * sizeof(std::uint64_t) + sizeof(threshold_counts)) / sizeof(std::uint32_t);

  [[nodiscard]] std::uint64_t* at(std::size_t word) const noexcept {
    return reinterpret_cast<std::uint64_t*>(words_.data() + word);
  }

  cuda_buffer<std::uint32_t> words_;
};

}  // namespace gradsieve::detail
