// Device memory of a list of entries.
#pragma once

#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/stream_work.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// A list of up to `capacity` entries.
struct list_memory {
  cuda_buffer<index_type> indices;
  cuda_buffer<float> values;
  cuda_buffer<std::uint32_t> count, cells;
  std::uint64_t capacity = 0;

  /// Empty, of a gradient with so many cells. Allocates.
  [[nodiscard]] static list_memory make(stream_work const& work, std::uint64_t capacity, std::uint32_t cells) {
    return {cuda_buffer<index_type>(work.where(), capacity), cuda_buffer<float>(work.where(), capacity),
            work.zeroed<std::uint32_t>(1), work.zeroed<std::uint32_t>(cells + 1), capacity};
  }

  [[nodiscard]] cuda_kernels::entry_list list() const noexcept {
    return {indices.data(), values.data(), count.data(), cells.data()};
  }
};

}  // namespace gradsieve::detail
