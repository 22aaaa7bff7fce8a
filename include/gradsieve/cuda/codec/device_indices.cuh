// Index codecs on a device: `raw32`, `fixed_width` and `elias_fano`; bytes as on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cub/block/block_scan.cuh>

#include <gradsieve/codec/index/elias_fano.hpp>
#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How an index codec runs on a device; specialise it for your own. reserve_writing(work, how, n) and
/// reserve_reading(work, how, n, senders), or (work, how, n, most, senders) for messages of up to `most` entries,
/// allocate. part() returns a small value for kernels, with
///   bytes(count): size of the part for `count` entries; the part may begin at any byte of a message;
///   write(own, count, to): by all threads of a row of blocks;
///   of_row(row, n), optional: the part of that message, about n elements, of several that a launch writes;
///   blocks and prepare(part, count, sender, block), optional: prepare() is called before open(), by all threads of so
///     many blocks of part_threads per sender; true in the last of them to end, which calls open();
///   open(part, count, sender): by all threads of one block of part_threads; in thread 0, true if the part is well
///     formed. It may rely on the part's size only;
///   index(part, count, sender, p): index of entry p, by one thread, of a part that an earlier launch has opened.
/// The caller checks order and range of the indices.
template <class Indices>
class device_indices;

namespace cuda_kernels {

template <class Part>
concept prepared_indices = requires { &Part::prepare; };

struct raw32_part {
  [[nodiscard]] static __device__ raw32_part of_row(std::uint32_t, std::uint64_t) { return {}; }
  [[nodiscard]] static __device__ std::uint64_t bytes(std::uint64_t count) { return 4 * count; }
  static __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) {
    for_each(count, [&](std::uint64_t p) { store_value<4>(to + 4 * p, own.indices[p]); });
  }
  [[nodiscard]] static __device__ bool open(std::byte const*, std::uint64_t, std::uint32_t) { return true; }
  [[nodiscard]] static __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t,
                                                   std::uint64_t p) {
    return static_cast<index_type>(load_value<4>(part + 4 * p));
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

namespace cuda_kernels {

/// How many entries each place of a part has (a chunk, or a word of a row), and so which place an entry is in. Several
/// blocks count, a span of places each.
struct entry_counts {
  static constexpr unsigned each = 4;  // places of a thread
  static constexpr std::uint64_t span = part_threads * each;
  std::uint32_t blocks = 0;
  std::uint32_t* memory = nullptr;

  [[nodiscard]] cuda_buffer<std::uint32_t> reserve(cuda_workspace const& work, std::uint64_t places,
                                                   std::uint32_t senders) {
    blocks = static_cast<std::uint32_t>(places / span + 1);
    auto made = work.zeroed<std::uint32_t>((2 + blocks * (span + 1)) * senders);
    memory = made.data();
    return made;
  }

  /// As prepare() of a part. count_at(place): entries of a place, also beyond the last.
  template <class CountAt>
  [[nodiscard]] __device__ bool count(std::uint32_t sender, std::uint32_t block, CountAt const& count_at) const {
    using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint32_t, part_threads>;
    __shared__ typename scanner::TempStorage shared;
    auto const mine = of_sender(sender);
    std::uint64_t const first = block * span + threadIdx.x * each;
    std::uint32_t counts[each];
    std::uint32_t total = 0;
    for (unsigned v = 0; v < each; ++v) counts[v] = count_at(first + v);
    scanner{shared}.ExclusiveSum(counts, counts, total);
    for (unsigned v = 0; v < each; ++v) mine.in_span[first + v] = counts[v];
    if (threadIdx.x == 0) mine.before_span[block] = total;
    return is_last_block(mine.tickets, blocks);
  }

  /// Sum of all counts; keeps the part's width. By the last block.
  [[nodiscard]] __device__ std::uint64_t sum(std::uint32_t sender, unsigned width) const {
    using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, part_threads>;
    __shared__ typename scanner::TempStorage shared;
    auto const mine = of_sender(sender);
    if (threadIdx.x == 0) *mine.width = width;
    std::uint64_t before = 0;
    for (std::uint32_t first = 0; first < blocks; first += part_threads) {
      std::uint32_t const s = first + threadIdx.x;
      std::uint64_t at = 0;
      std::uint64_t total = 0;
      scanner{shared}.ExclusiveSum(s < blocks ? mine.before_span[s] : 0, at, total);
      if (s < blocks) mine.before_span[s] = static_cast<std::uint32_t>(before + at);
      before += total;
      __syncthreads();  // the memory is used again
    }
    return before;
  }

  struct location {
    std::uint64_t place;
    std::uint32_t rank;  // entries of the place before this one
  };
  [[nodiscard]] __device__ location find(std::uint32_t sender, std::uint64_t p) const {
    auto const mine = of_sender(sender);
    auto const s = count_before(blocks, [&](std::uint64_t i) { return mine.before_span[i] <= p; }) - 1;
    auto const* const here = mine.in_span + s * span;
    auto const rank = static_cast<std::uint32_t>(p - mine.before_span[s]);
    auto const place = count_before(span, [&](std::uint64_t i) { return here[i] <= rank; }) - 1;
    return {s * span + place, rank - here[place]};
  }
  [[nodiscard]] __device__ unsigned width_of(std::uint32_t sender) const { return *of_sender(sender).width; }

 private:
  struct notes {
    std::uint32_t* tickets;
    std::uint32_t* width;
    std::uint32_t* before_span;  // of each span: entries before it
    std::uint32_t* in_span;      // of each place: entries before it in its span
  };
  [[nodiscard]] __device__ notes of_sender(std::uint32_t sender) const {
    auto* const at = memory + sender * (2 + blocks * (span + 1));
    return {at, at + 1, at + 2, at + 2 + blocks};
  }
};

/// A byte with the width, the entry counts of all chunks of 2^width elements, and the entries' offsets in their chunks.
struct fixed_width_part : entry_counts {
  unsigned width;
  std::uint64_t chunks;

  [[nodiscard]] __device__ fixed_width_part of_row(std::uint32_t, std::uint64_t n) const {
    return {{}, width, (n + wire::low_bits(width)) >> width};
  }
  [[nodiscard]] __device__ std::uint64_t offsets() const { return 1 + wire::packed_bytes(chunks, width + 1); }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return offsets() + wire::packed_bytes(count, width);
  }

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
    write_fields(count, width, to + offsets(), [&](std::uint64_t p) { return own.indices[p]; });
  }

  [[nodiscard]] __device__ bool prepare(std::byte const* part, std::uint64_t, std::uint32_t sender,
                                        std::uint32_t block) const {
    return this->count(sender, block,
                       [&](std::uint64_t c) { return c < chunks ? packed_field(part + 1, c, width + 1) : 0; });
  }
  [[nodiscard]] __device__ bool open(std::byte const* part, std::uint64_t count, std::uint32_t sender) const {
    return sum(sender, width) == count && static_cast<unsigned>(part[0]) == width &&
           padding_is_zero(part + 1, chunks, width + 1) && padding_is_zero(part + offsets(), count, width);
  }
  [[nodiscard]] __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t sender,
                                            std::uint64_t p) const {
    return (static_cast<index_type>(find(sender, p).place) << width) + packed_field(part + offsets(), p, width);
  }
};

/// The low bits of all indices, and a row of bits in which entry p sets bit p + (index >> width). Places are its words.
struct elias_fano_part : entry_counts {
  std::uint64_t n;

  [[nodiscard]] static __device__ elias_fano_part of_row(std::uint32_t, std::uint64_t elements) {
    return {{}, elements};
  }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return elias_fano::split(n, count).bytes();
  }

  __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) const {
    auto const parts = elias_fano::split(n, count);
    write_fields(count, parts.width, to, [&](std::uint64_t p) { return own.indices[p]; });
    auto const bit_of = [&](std::uint64_t p) { return p + (own.indices[p] >> parts.width); };
    for_each((parts.high + 7) / 8, [&](std::uint64_t w) {
      std::uint64_t const first = 64 * w;
      std::uint64_t bits = 0;
      auto p = count_before(smaller(count, first), [&](std::uint64_t at) { return bit_of(at) < first; });
      for (; p < count && bit_of(p) < first + 64; ++p) bits |= std::uint64_t{1} << (bit_of(p) - first);
      for (std::uint64_t b = 8 * w; b < parts.high && b < 8 * w + 8; ++b, bits >>= 8)
        to[parts.low + b] = static_cast<std::byte>(bits & 0xFFu);
    });
  }

  [[nodiscard]] __device__ bool prepare(std::byte const* part, std::uint64_t count, std::uint32_t sender,
                                        std::uint32_t block) const {
    auto const parts = elias_fano::split(n, count);
    return this->count(sender, block, [&](std::uint64_t w) {
      return 8 * w < parts.high ? static_cast<std::uint32_t>(__popcll(word(part, parts, w))) : 0;
    });
  }
  [[nodiscard]] __device__ bool open(std::byte const* part, std::uint64_t count, std::uint32_t sender) const {
    auto const width = elias_fano::split(n, count).width;
    return sum(sender, width) == count && padding_is_zero(part, count, width);
  }
  [[nodiscard]] __device__ index_type index(std::byte const* part, std::uint64_t count, std::uint32_t sender,
                                            std::uint64_t p) const {
    elias_fano::sizes const parts{n, count, width_of(sender)};
    auto const at = find(sender, p);
    std::uint64_t const high = 64 * at.place + place_of_bit(word(part, parts, at.place), at.rank) - p;
    return high >> (32 - parts.width) != 0
               ? ~index_type{0}  // which is refused
               : static_cast<index_type>(high << parts.width) | packed_field(part, p, parts.width);
  }

 private:
  [[nodiscard]] static __device__ std::uint64_t word(std::byte const* part, elias_fano::sizes const& parts,
                                                     std::uint64_t w) {
    return load_word(part + parts.low + 8 * w, parts.high - 8 * w);
  }
};

}  // namespace cuda_kernels

/// Accepts messages of its own chunk length only. Memory of a reader: 4 bytes per chunk and sender, 8 KiB at least.
template <>
class device_indices<fixed_width> {
 public:
  void reserve_writing(cuda_workspace const&, fixed_width const& how, std::uint64_t n) {
    unsigned const width = bit_width(how.chunk) - 1;
    part_ = {{}, width, (n + how.chunk - 1) >> width};
  }
  void reserve_reading(cuda_workspace const& work, fixed_width const& how, std::uint64_t n, std::uint32_t senders) {
    reserve_writing(work, how, n);
    notes_ = part_.reserve(work, part_.chunks, senders);
  }
  [[nodiscard]] cuda_kernels::fixed_width_part part() const noexcept { return part_; }

 private:
  cuda_buffer<std::uint32_t> notes_;
  cuda_kernels::fixed_width_part part_{};
};

/// Memory of a reader, per sender: half as much as the indices of the longest message take, 8 KiB at least.
template <>
class device_indices<elias_fano> {
 public:
  void reserve_writing(cuda_workspace const&, elias_fano const&, std::uint64_t n) { part_.n = n; }
  void reserve_reading(cuda_workspace const& work, elias_fano const& how, std::uint64_t n, std::uint64_t most,
                       std::uint32_t senders) {
    part_.n = n;
    notes_ = part_.reserve(work, how.max_bytes(n, most) / 8 + 1, senders);
  }
  [[nodiscard]] cuda_kernels::elias_fano_part part() const noexcept { return part_; }

 private:
  cuda_buffer<std::uint32_t> notes_;
  cuda_kernels::elias_fano_part part_{};
};

}  // namespace gradsieve
