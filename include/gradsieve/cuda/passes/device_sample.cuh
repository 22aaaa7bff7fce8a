// Keys of sampled elements, on a device.
#pragma once

#include <cstdint>

#include <gradsieve/core/search.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/warp_tiles.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Keys of some elements of a segment, as the host's key_sample.
template <bool FullGrid>
class device_sample {
 public:
  __device__ device_sample(thread_group<FullGrid>& group, key_type const* keys, std::uint64_t size)
      : group_{group}, keys_{keys}, size_{size} {}

  [[nodiscard]] __device__ std::uint64_t size() const { return size_; }

  /// The key of this rank, 1 being the largest.
  [[nodiscard]] __device__ __noinline__ key_type kth_largest(std::uint64_t rank) {
    detail::digit_search search{1, 0x7FFF'FFFFu, static_cast<index_type>(rank)};
    while (!search.done())
      group_.narrow(search, [&](auto const& add) {
        each(
            group_, size_, [&](std::uint64_t i) { return keys_[i]; },
            [&](key_type key, bool valid) { add(valid ? search.bin(key) : search.bins); });
      });
    threshold const at = search.result();
    if (at.ties > 0 || at.key == 0) return at.key;
    auto const smallest = group_.sum_over(size_, [&](std::uint64_t i, tile_sums& own) {
      if (keys_[i] > at.key) own.max_key = larger(own.max_key, ~keys_[i]);  // the largest complement
    });
    return ~smallest.max_key;
  }

  [[nodiscard]] __device__ std::uint64_t count_at_least(key_type key) {
    std::uint64_t count = 0;
    for (std::uint64_t i = group_.thread(); i < size_; i += group_.threads()) count += keys_[i] >= key ? 1 : 0;
    return group_.sum(count);
  }

  [[nodiscard]] __device__ double sum_abs() { return measure().sum_abs; }
  [[nodiscard]] __device__ std::uint64_t nonzero() { return measure().nonzero; }

 private:
  [[nodiscard]] __device__ tile_sums measure() {
    return group_.sum_over(size_, [&](std::uint64_t i, tile_sums& own) { own.add(magnitude_of(keys_[i])); });
  }

  thread_group<FullGrid>& group_;
  key_type const* keys_;
  std::uint64_t size_;
};

/// Memory for the samples of one group.
struct sample_buffer {
  key_type* keys;
  std::uint64_t size;
};

}  // namespace gradsieve::cuda_kernels
