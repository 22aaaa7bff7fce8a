// A device's memory for the choice among candidates and for writing entries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/choices.cuh>
#include <gradsieve/cuda/passes/write_entries.cuh>
#include <gradsieve/cuda/stream_work.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// What choose_entries, end_searches, select_rest and write_entries hand over to each other.
class choice_memory {
 public:
  /// For `segments` and `tiles`, of which a step selects at most `expected` entries among `capacity` candidates.
  /// Allocates. Memory: 8 KiB for each chunk of candidates, and 4 bytes for each 16 candidates.
  void plan(stream_work const& work, std::size_t segments, std::size_t tiles, std::uint64_t expected,
            std::uint64_t capacity) {
    using namespace cuda_kernels;
    auto const at_least = [](std::uint64_t a, std::uint64_t b) { return static_cast<std::uint32_t>((a + b - 1) / b); };
    std::uint32_t const tile_count = static_cast<std::uint32_t>(tiles);
    auto const processors = static_cast<std::uint64_t>(work.processors());
    tiles_each_ = std::clamp(at_least(tile_count, write_blocks * processors), least_write_tiles, most_write_tiles);
    bool const shares = expected > most_alone / 4 * 3;  // else no segment has more of them, but by mistake
    // The candidates of a chunk, about: one chunk for each multiprocessor.
    auto const each = at_least(expected + expected / 2, processors);
    tables_.chunk = at_least(std::max(each, least_chunk), chunk_multiple) * chunk_multiple;
    tables_.list_blocks = tile_count == 0 ? 0 : at_least(tile_count, tiles_each_);
    tables_.shared_count = shares ? at_least(capacity, tables_.chunk) : 0;
    choices_ = work.zeroed<segment_choice>(segments);
    searches_ = work.zeroed<shared_search>(tables_.shared_count);
    chunks_ = work.zeroed<chunk_searches>(tables_.shared_count);
    keys_ = cuda_buffer<key_type>(work.where(), shares ? keys_begin(capacity) + 4 : 0);
    counts_ = work.zeroed<std::uint64_t>(tables_.list_blocks);
    words_ = work.zeroed<std::uint32_t>(3);
    tables_.choices = choices_.data();
    tables_.shared = searches_.data();
    tables_.chunks = chunks_.data();
    tables_.keys = keys_.data();
    tables_.list_counts = counts_.data();
    tables_.undecided = words_.data();
    tables_.tickets = words_.data() + 1;
    tables_.list_tickets = words_.data() + 2;
  }

  [[nodiscard]] cuda_kernels::choice_tables const& tables() const noexcept { return tables_; }
  /// Tiles that a block of write_entries writes.
  [[nodiscard]] std::uint32_t tiles_each() const noexcept { return tiles_each_; }

 private:
  cuda_kernels::choice_tables tables_;
  std::uint32_t tiles_each_ = 0;
  cuda_buffer<cuda_kernels::segment_choice> choices_;
  cuda_buffer<cuda_kernels::shared_search> searches_;
  cuda_buffer<cuda_kernels::chunk_searches> chunks_;
  cuda_buffer<key_type> keys_;
  cuda_buffer<std::uint64_t> counts_;
  cuda_buffer<std::uint32_t> words_;
};

}  // namespace gradsieve::detail
