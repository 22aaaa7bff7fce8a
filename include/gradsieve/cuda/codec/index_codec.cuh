// The members that an index codec of `packed` must have on a device, and `raw32`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How an index codec runs on a device: specialise it for one of one's own. reserve_writing(work, how, n) and
/// reserve_reading(work, how, n, senders) allocate. part() is what kernels take of it, a small value with
///   bytes(count): of the part of a message with this many entries, which any byte of the message may begin;
///   write(own, count, to): by all threads of a launch;
///   open(part, count, sender): by all threads of one block of part_threads; returns, in its thread 0, whether the
///     part is well formed, of which it may take nothing for granted but its size;
///   index(part, count, sender, p): of the p-th entry, by one thread, of a part that was opened before the launch.
/// Order and range of the indices are checked behind it.
template <class Indices>
class device_indices;

namespace cuda_kernels {

struct raw32_part {
  [[nodiscard]] static __device__ std::uint64_t bytes(std::uint64_t count) { return 4 * count; }
  static __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) {
    for_each(count, [&](std::uint64_t p) { put_bytes(to + 4 * p, own.indices[p], 4); });
  }
  [[nodiscard]] static __device__ bool open(std::byte const*, std::uint64_t, std::uint32_t) { return true; }
  [[nodiscard]] static __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t,
                                                   std::uint64_t p) {
    return static_cast<index_type>(get_bytes(part + 4 * p, 4));
  }
};

}  // namespace cuda_kernels

template <>
class device_indices<raw32> {
 public:
  static void reserve_writing(cuda_workspace const&, raw32 const&, std::uint64_t) noexcept {}
  static void reserve_reading(cuda_workspace const&, raw32 const&, std::uint64_t, std::uint32_t) noexcept {}
  [[nodiscard]] static cuda_kernels::raw32_part part() noexcept { return {}; }
};

}  // namespace gradsieve
