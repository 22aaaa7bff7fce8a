// A selection cut at the borders of shards, each part in a slot of its own; what does not fit is not given up.
#pragma once

#include <cstdint>

#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/early.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Entries in slots of equal capacity, one a shard of `size` elements; indices count from the shard's first element.
struct shard_slots {
  std::uint32_t shards;
  std::uint32_t capacity;  // entries of a slot
  std::uint64_t size;     // elements of a shard; the last ones may have fewer
  std::uint32_t* begins;  // of each shard: its first entry in the selection, and behind the last the selection's end
  std::uint32_t* counts;  // of each shard: its entries that fit
  std::uint32_t* bases;   // of each shard: those of the shards before it, and behind the last those of all
  index_type* indices;
  float* values;

  [[nodiscard]] __device__ std::uint64_t first(std::uint32_t r) const { return std::uint64_t{r} * capacity; }
};

/// Which entries of a shard with more than its capacity are taken: consecutive ones from a place that differs from step
/// to step, so that each has its turn; behind the last the first follow.
struct taken_run {
  std::uint32_t count;
  std::uint32_t capacity;
  std::uint32_t start;

  [[nodiscard]] static __device__ taken_run of(std::uint32_t count, std::uint32_t capacity, std::uint32_t r,
                                               std::uint64_t step) {
    return {count, capacity, count <= capacity ? 0 : static_cast<std::uint32_t>(mix(step ^ mix(r)) % count)};
  }

  /// The place of an entry in its slot; `capacity` or more: it has none.
  [[nodiscard]] __device__ std::uint32_t place(std::uint32_t at) const {
    if (count <= capacity) return at;
    std::uint32_t const behind =
        count - start < capacity ? capacity - (count - start) : 0;  // those taken from the front
    if (at >= start) return at - start + behind;
    return at < behind ? at : capacity;
  }
};

/// By one warp: searches for the borders.
template <int = 0>
__global__ void find_shards(entry_list const own, shard_slots const to) {
  wait_for_previous();
  std::uint32_t const count = *own.count;
  std::uint32_t all = 0;
  for (std::uint32_t from = 0; from < to.shards; from += 32) {
    std::uint32_t const r = from + threadIdx.x;
    std::uint32_t begin = 0;
    std::uint32_t kept = 0;
    if (r < to.shards) {
      begin = static_cast<std::uint32_t>(first_not_below(own.indices, count, r * to.size));
      auto const end = static_cast<std::uint32_t>(first_not_below(own.indices, count, (r + 1) * to.size));
      kept = smaller(end - begin, to.capacity);
    }
    std::uint32_t const until = warp_prefix_sum(kept);
    if (r < to.shards) {
      to.begins[r] = begin;
      to.counts[r] = kept;
      to.bases[r] = all + until - kept;
    }
    all += __shfl_sync(~0u, until, 31);
  }
  if (threadIdx.x != 0) return;
  to.begins[to.shards] = count;
  to.bases[to.shards] = all;
}

/// Entries to their slots, clamped to +-limit.
template <int = 0>
__global__ void cut_entries(entry_list const own, shard_slots const to, std::uint64_t const* step, float limit,
                            std::uint64_t* beyond) {
  wait_for_previous();
  for_each(*own.count, [&](std::uint64_t p) {
    index_type const i = own.indices[p];
    auto const r = static_cast<std::uint32_t>(i / to.size);
    std::uint32_t const begin = to.begins[r];
    auto const taken = taken_run::of(to.begins[r + 1] - begin, to.capacity, r, *step);
    std::uint32_t const place = taken.place(static_cast<std::uint32_t>(p) - begin);
    if (place >= to.capacity) return;
    to.indices[to.first(r) + place] = static_cast<index_type>(i - r * to.size);
    to.values[to.first(r) + place] = saturated(own.values[p], limit, beyond);
  });
}

/// What this rank gives up: the slots' entries, as the receivers will decode them.
template <int = 0>
__global__ void keep_cut(shard_slots const from, entry_list const own) {
  wait_for_previous();
  for_each_sender(from.shards, [&](std::uint32_t r, thread_team const& team) {
    team.for_each(from.counts[r], [&](std::uint64_t j) {
      own.indices[from.bases[r] + j] = static_cast<index_type>(from.indices[from.first(r) + j] + r * from.size);
      own.values[from.bases[r] + j] = from.values[from.first(r) + j];
    });
    if (r == 0 && team.thread == 0) *own.count = from.bases[from.shards];
  });
}

/// Its directory, where that has changed. @pre keep_cut()
template <int = 0>
__global__ void list_cut(shard_slots const from, entry_list const own, std::uint32_t cells) {
  wait_for_previous();
  std::uint32_t const count = from.bases[from.shards];
  if (count == from.begins[from.shards]) return;
  fill_directory({own.indices, own.values, count, own.cells}, cells, whole_launch());
}

/// Indices of a shard become those of the whole gradient.
template <int = 0>
__global__ void shift_indices(update const* updates, std::uint32_t senders, index_type first) {
  wait_for_previous();
  for_each_sender(senders, [&](std::uint32_t u, thread_team const& team) {
    team.for_each(updates[u].count, [&](std::uint64_t p) { const_cast<index_type*>(updates[u].indices)[p] += first; });
  });
}

}  // namespace gradsieve::cuda_kernels
