// The index codec `fixed_width` on a device: the same bytes.
#pragma once

#include <cub/block/block_scan.cuh>

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// Chunks of 2^width elements; a byte with the width, the chunks' counts, the entries' offsets.
struct fixed_width_part {
  unsigned width;
  std::uint64_t chunks;
  std::uint64_t n;
  std::uint32_t* before;  // of each sender and chunk: entries in the chunks before it

  [[nodiscard]] __device__ std::uint64_t counts_bytes() const { return wire::packed_bytes(chunks, width + 1); }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return 1 + counts_bytes() + wire::packed_bytes(count, width);
  }

  /// A thread eight chunks or eight entries.
  __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) const {
    if (blockIdx.x == 0 && threadIdx.x == 0) to[0] = static_cast<std::byte>(width);
    for_each((chunks + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      std::uint64_t last = first_not_below(own.indices, count, g * group_fields << width);
      pack_group(fields_of_group(g, chunks), width + 1, to + 1 + g * (width + 1), [&](unsigned f) {
        std::uint64_t const first = last;
        std::uint64_t const bound = (g * group_fields + f + 1) << width;
        last += first_not_below(own.indices + first, smaller(count - first, std::uint64_t{1} << width), bound);
        return static_cast<std::uint32_t>(last - first);
      });
    });
    for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      pack_group(fields_of_group(g, count), width, to + 1 + counts_bytes() + g * width,
                 [&](unsigned f) { return own.indices[g * group_fields + f] & wire::low_bits(width); });
    });
  }

  /// The counts become sums, a run of consecutive chunks a thread.
  [[nodiscard]] __device__ bool open(std::byte const* part, std::uint64_t count, std::uint32_t sender) const {
    using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, part_threads>;
    __shared__ typename scanner::TempStorage shared;
    auto* const mine = before + sender * chunks;
    std::uint64_t const groups = (chunks + group_fields - 1) / group_fields;
    std::uint64_t const each = (groups + part_threads - 1) / part_threads;
    std::uint64_t const begin = smaller(groups, each * threadIdx.x);
    std::uint64_t const end = smaller(groups, begin + each);
    bool good = static_cast<unsigned>(part[0]) == width;
    auto const counts = [&](std::uint64_t g, auto const& take) {
      return unpack_group(fields_of_group(g, chunks), width + 1, part + 1 + g * (width + 1),
                          [&](unsigned f, std::uint32_t here) { take(g * group_fields + f, here); });
    };
    std::uint64_t own = 0;
    for (std::uint64_t g = begin; g < end; ++g) {
      bool const clean = counts(g, [&](std::uint64_t c, std::uint32_t here) {
        good = good && here <= smaller(std::uint64_t{1} << width, n - (c << width));
        own += here;
      });
      good = good && clean;
    }
    std::uint64_t at = 0;
    std::uint64_t total = 0;
    scanner{shared}.ExclusiveSum(own, at, total);
    for (std::uint64_t g = begin; g < end; ++g)
      counts(g, [&](std::uint64_t c, std::uint32_t here) {
        mine[c] = static_cast<std::uint32_t>(at);
        at += here;
      });
    unsigned const last_bits = static_cast<unsigned>(count * width % 8);
    bool const clean = last_bits == 0 || static_cast<unsigned>(part[bytes(count) - 1]) >> last_bits == 0;
    return __syncthreads_and(good && clean && total == count);
  }

  /// Cost: a search among the chunks.
  [[nodiscard]] __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t sender,
                                            std::uint64_t p) const {
    auto const* const mine = before + sender * chunks;
    auto const begun =  // chunks whose first entry is this one or one before
        count_before(chunks, [&](std::uint64_t c) { return mine[c] <= p; });
    std::uint64_t const bit = p * width;
    auto const shift = static_cast<unsigned>(bit % 8);
    auto const bits = get_bytes(part + 1 + counts_bytes() + bit / 8, (shift + width + 7) / 8);
    return (static_cast<index_type>(begun - 1) << width) +
           (static_cast<std::uint32_t>(bits >> shift) & wire::low_bits(width));
  }
};

}  // namespace cuda_kernels

/// A device takes chunks of its own length only. Memory: 4 bytes a chunk and sender.
template <>
class device_indices<fixed_width> {
 public:
  void reserve_writing(cuda_workspace const&, fixed_width const& how, std::uint64_t n) { part_ = part_of(how, n); }
  void reserve_reading(cuda_workspace const& work, fixed_width const& how, std::uint64_t n, std::uint32_t senders) {
    part_ = part_of(how, n);
    before_ = work.zeroed<std::uint32_t>(part_.chunks * senders);
    part_.before = before_.data();
  }
  [[nodiscard]] cuda_kernels::fixed_width_part part() const noexcept { return part_; }

 private:
  [[nodiscard]] static cuda_kernels::fixed_width_part part_of(fixed_width const& how, std::uint64_t n) {
    unsigned const width = bit_width(how.chunk) - 1;
    return {width, (n + how.chunk - 1) >> width, n, nullptr};
  }

  cuda_buffer<std::uint32_t> before_;
  cuda_kernels::fixed_width_part part_{};
};

}  // namespace gradsieve
