// The index codecs of `packed` on a device. Every kernel looks whether its message has a part of that codec: with
// `automatic` the device alone knows.
#pragma once

#include <cub/block/block_scan.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/automatic.hpp>
#include <gradsieve/codec/bitmap.hpp>
#include <gradsieve/codec/delta.hpp>
#include <gradsieve/codec/fixed_width.hpp>
#include <gradsieve/codec/raw32.hpp>
#include <gradsieve/cuda/codec.cuh>
#include <gradsieve/cuda/packed_fields.cuh>
#include <gradsieve/cuda/scan.cuh>

namespace gradsieve {

/// How an index codec runs on a device: specialise it for one of one's own. reserve_writing(work, how, n, most) and
/// reserve_reading(work, how, n, most, senders) as of device_codec. encode(work, info, own, message) writes at
/// state->indices and sets state->values to where its part ends; decode(work, info, in, out) reads there. Either leaves
/// alone what has another index_codec.
template <class Indices>
class device_indices;

namespace cuda_kernels {

/// Whether a message's indices are for `Codec` to read.
template <class Codec>
[[nodiscard]] __device__ bool is_of(message_state const& state) {
  return state.index_codec == Codec::id && state.failed == 0;
}

/// One thread of a sender: the part of the indices takes so many bytes.
__device__ inline void end_indices(message_state& state, std::uint64_t bytes, std::uint32_t sender,
                                   std::uint64_t* error) {
  state.values = state.indices + bytes;
  if (state.values <= state.room) return;
  set_fault(error, exchange_fault::contents, sender);
  state.fail();
}

// ---- raw32 ---------------------------------------------------------------------------------------------------

template <int = 0>
__global__ void write_raw32(entry_list const own, std::byte* message, message_state* state) {
  if (!is_of<raw32>(*state)) return;
  if (blockIdx.x == 0 && threadIdx.x == 0) state->values = state->indices + 4 * std::uint64_t{state->count};
  for_each(state->count, [&](std::uint64_t p) { put_bytes(message + state->indices + 4 * p, own.indices[p], 4); });
}

template <int = 0>
__global__ void end_raw32(message_state* states, std::uint32_t senders, std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t r) {
    if (is_of<raw32>(states[r]))
      end_indices(states[r], 4 * std::uint64_t{states[r].count}, static_cast<std::uint32_t>(r), error);
  });
}

template <int = 0>
__global__ void read_raw32(slots const from, message_state const* states, device_places const out) {
  for (std::uint32_t r = 0; r < from.senders; ++r)
    if (is_of<raw32>(states[r]))
      for_each(states[r].count, [&](std::uint64_t p) {
        out.indices[r * out.most + p] =
            static_cast<index_type>(get_bytes(from.message(r) + states[r].indices + 4 * p, 4));
      });
}

// ---- delta ---------------------------------------------------------------------------------------------------

inline constexpr unsigned lanes = 32;
inline constexpr unsigned groups_of_block = delta::block / group_fields;  // a thread each: half a warp

/// Blocks of `delta`, and what a scan over all of them needs: `most` blocks a sender, and one more in the end.
struct delta_blocks {
  std::uint64_t most;
  std::uint64_t* bytes;  // of a block; scanned: those before it
  std::uint32_t* steps;  // modulo 2^32, from before a block to its last index; scanned: to before it
};

[[nodiscard]] __device__ inline std::uint64_t blocks_of(std::uint64_t count) {
  return (count + delta::block - 1) / delta::block;
}

/// Fields of block `b` of `count`.
[[nodiscard]] __device__ inline unsigned fields_of_block(std::uint64_t b, std::uint64_t count) {
  std::uint64_t const first = b * delta::block;
  return first >= count ? 0 : static_cast<unsigned>(smaller<std::uint64_t>(delta::block, count - first));
}

[[nodiscard]] __device__ inline std::uint32_t gap_before(index_type const* indices, std::uint64_t p) {
  return indices[p] - (p == 0 ? ~index_type{0} : indices[p - 1]) - 1;
}

/// A warp a block: its width, and the bytes that it takes.
template <int = 0>
__global__ void measure_gaps(entry_list const own, delta_blocks const blocks, std::uint8_t* widths) {
  std::uint64_t const count = *own.count;
  for_each(lanes * blocks.most, [&](std::uint64_t i) {
    std::uint64_t const b = i / lanes;
    unsigned const fields = fields_of_block(b, count);
    std::uint32_t used = 0;
    for (auto f = static_cast<unsigned>(i % lanes); f < fields; f += lanes)
      used |= gap_before(own.indices, b * delta::block + f);
    for (unsigned step = lanes / 2; step > 0; step /= 2) used |= __shfl_xor_sync(~0u, used, step);
    if (i % lanes != 0) return;
    widths[b] = static_cast<std::uint8_t>(bit_width(used));
    blocks.bytes[b] = wire::packed_bytes(fields, bit_width(used));
  });
}

/// Half a warp a block, once the bytes are scanned.
template <int = 0>
__global__ void write_delta(entry_list const own, delta_blocks const blocks, std::uint8_t const* widths,
                            std::byte* message, message_state* state) {
  if (!is_of<delta>(*state)) return;
  std::uint64_t const used = blocks_of(state->count);
  if (blockIdx.x == 0 && threadIdx.x == 0) state->values = state->indices + used + blocks.bytes[blocks.most];
  std::byte* const part = message + state->indices;
  for_each(groups_of_block * used, [&](std::uint64_t i) {
    std::uint64_t const b = i / groups_of_block;
    std::uint64_t const g = i % groups_of_block;
    if (g == 0) part[b] = static_cast<std::byte>(widths[b]);
    std::uint64_t const first = b * delta::block + g * group_fields;
    pack_group(fields_of_group(i, state->count), widths[b], part + used + blocks.bytes[b] + g * widths[b],
               [&](unsigned f) { return gap_before(own.indices, first + f); });
  });
}

/// A thread a block: the bytes that it takes, as its width says.
template <int = 0>
__global__ void measure_delta(slots const from, message_state const* states, delta_blocks const blocks) {
  for_each(from.senders * blocks.most, [&](std::uint64_t i) {
    auto const r = static_cast<std::uint32_t>(i / blocks.most);
    std::uint64_t const b = i % blocks.most;
    auto const& state = states[r];
    blocks.bytes[i] = 0;
    if (!is_of<delta>(state) || b >= blocks_of(state.count)) return;
    bool const there = state.indices + b < state.room;
    unsigned const width = there ? static_cast<unsigned>(from.message(r)[state.indices + b]) : ~0u;
    constexpr std::uint64_t no_room_is_enough = std::uint64_t{1} << 36;
    blocks.bytes[i] = width > 32 ? no_room_is_enough : wire::packed_bytes(fields_of_block(b, state.count), width);
  });
}

template <int = 0>
__global__ void end_delta(message_state* states, std::uint32_t senders, delta_blocks const blocks,
                          std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t r) {
    if (!is_of<delta>(states[r])) return;
    auto const* const mine = blocks.bytes + r * blocks.most;
    end_indices(states[r], blocks_of(states[r].count) + mine[blocks.most] - mine[0], static_cast<std::uint32_t>(r),
                error);
  });
}

/// A warp a block, of which half read: the steps of each block, or once those are scanned the indices. Sums are modulo
/// 2^32: a gap that leads around the end leads to an index that does not rise.
template <bool Write>
__global__ void read_delta(slots const from, message_state const* states, delta_blocks const blocks,
                           device_places const out, std::uint64_t* error) {
  for_each(lanes * from.senders * blocks.most, [&](std::uint64_t i) {
    auto const lane = static_cast<unsigned>(i % lanes);
    std::uint64_t const at = i / lanes;
    auto const r = static_cast<std::uint32_t>(at / blocks.most);
    std::uint64_t const b = at % blocks.most;
    auto const& state = states[r];
    // The whole warp has the same block.
    if (!is_of<delta>(state) || b >= blocks_of(state.count)) {
      if (!Write && lane == 0) blocks.steps[at] = 0;
      return;
    }
    std::byte const* const part = from.message(r) + state.indices;
    auto const width = static_cast<unsigned>(part[b]);
    std::uint64_t const group = b * groups_of_block + lane;
    unsigned const fields = lane < groups_of_block ? fields_of_group(group, state.count) : 0;
    std::byte const* const mine =
        part + blocks_of(state.count) + (blocks.bytes[at] - blocks.bytes[r * blocks.most]) + lane * width;
    std::uint32_t gaps[group_fields];
    std::uint32_t used = 0;
    std::uint32_t steps = 0;
    bool const clean = unpack_group(fields, width, mine, [&](unsigned f, std::uint32_t gap) {
      gaps[f] = gap;
      used |= gap;
      steps += gap + 1;
    });
    std::uint32_t before = steps;  // inclusive
    for (unsigned step = 1; step < lanes; step *= 2) {
      std::uint32_t const lower = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += lower;
    }
    if constexpr (Write) {
      // one less than the first element that may be selected
      std::uint32_t next = blocks.steps[at] - blocks.steps[r * blocks.most] + before - steps - 1;
      for (unsigned f = 0; f < fields; ++f) {
        next += gaps[f] + 1;
        out.indices[r * out.most + group * group_fields + f] = next;
      }
    } else {
      for (unsigned step = lanes / 2; step > 0; step /= 2) used |= __shfl_xor_sync(~0u, used, step);
      if (!clean || (lane == 0 && bit_width(used) != width)) set_fault(error, exchange_fault::contents, r);
      if (lane == lanes - 1) blocks.steps[at] = before;
    }
  });
}

// ---- bitmap --------------------------------------------------------------------------------------------------

inline constexpr std::uint32_t bytes_of_cell = cell_size / 8;

/// Block c, a word a thread: a cell's bits.
template <int = 0>
__global__ void __launch_bounds__(words_of_cell)
    write_bitmap(entry_list const own, std::uint64_t n, std::byte* message, message_state* state) {
  __shared__ std::uint32_t bits[words_of_cell];
  __shared__ std::uint64_t ends[2];
  if (!is_of<bitmap>(*state)) return;
  std::uint64_t const cell = blockIdx.x;
  if (cell == 0 && threadIdx.x == 0) state->values = state->indices + bitmap{}.max_bytes(n, 0);
  bits[threadIdx.x] = 0;
  if (threadIdx.x < 2) ends[threadIdx.x] = first_not_below(own.indices, *own.count, (cell + threadIdx.x) * cell_size);
  __syncthreads();
  for (std::uint64_t p = ends[0] + threadIdx.x; p < ends[1]; p += words_of_cell) {
    std::uint32_t const i = own.indices[p] % cell_size;
    atomicOr(&bits[i / 32], 1u << (i % 32));
  }
  __syncthreads();
  std::uint64_t const first = cell * bytes_of_cell + 4 * threadIdx.x;
  std::uint64_t const all = bitmap{}.max_bytes(n, 0);
  if (first < all)
    put_bytes(message + state->indices + first, bits[threadIdx.x],
              static_cast<unsigned>(smaller<std::uint64_t>(4, all - first)));
}

/// A word of a sender's map; zeros behind it and where there is none.
[[nodiscard]] __device__ inline std::uint32_t map_word(slots const& from, message_state const* states, std::uint64_t n,
                                                       std::uint32_t r, std::uint64_t w) {
  auto const& state = states[r];
  std::uint64_t const all = bitmap{}.max_bytes(n, 0);
  if (!is_of<bitmap>(state) || 4 * w >= all || state.indices + all > state.room) return 0;
  return static_cast<std::uint32_t>(get_bytes(from.message(r) + state.indices + 4 * w,
                                              static_cast<unsigned>(smaller<std::uint64_t>(4, all - 4 * w))));
}

/// Calls f(sender, cell) for the cells of all maps, a block each up to a full device.
template <class F>
__device__ void for_each_map_cell(slots const& from, message_state const* states, std::uint32_t cells, F const& f) {
  for (std::uint32_t r = 0; r < from.senders; ++r)
    if (is_of<bitmap>(states[r]))
      for (std::uint32_t cell = blockIdx.x; cell < cells; cell += gridDim.x) f(r, cell);
}

/// How many bits a cell of a sender's map has.
template <int = 0>
__global__ void __launch_bounds__(words_of_cell)
    count_map(slots const from, message_state const* states, std::uint64_t n, std::uint32_t cells,
              std::uint32_t* counts) {
  __shared__ std::uint32_t total;
  for_each_map_cell(from, states, cells, [&](std::uint32_t r, std::uint32_t cell) {
    __syncthreads();
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    auto const word = map_word(from, states, n, r, std::uint64_t{cell} * words_of_cell + threadIdx.x);
    if (word != 0) atomicAdd(&total, static_cast<std::uint32_t>(__popc(word)));
    __syncthreads();
    if (threadIdx.x == 0) counts[std::uint64_t{r} * cells + cell] = total;
  });
}

template <int = 0>
__global__ void end_bitmap(message_state* states, std::uint32_t senders, std::uint64_t n, std::uint32_t cells,
                           std::uint32_t const* counts, std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (!is_of<bitmap>(state)) return;
    end_indices(state, bitmap{}.max_bytes(n, 0), r, error);
    auto const* const mine = counts + std::uint64_t{r} * cells;
    if (state.failed != 0 || mine[cells] - mine[0] == state.count) return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

/// Once the counts are scanned: the indices.
template <int = 0>
__global__ void __launch_bounds__(words_of_cell)
    read_map(slots const from, message_state const* states, std::uint64_t n, std::uint32_t cells,
             std::uint32_t const* counts, device_places const out) {
  using scan = cub::BlockScan<std::uint32_t, words_of_cell>;
  __shared__ typename scan::TempStorage shared;
  for_each_map_cell(from, states, cells, [&](std::uint32_t r, std::uint32_t cell) {
    __syncthreads();
    std::uint32_t word = map_word(from, states, n, r, std::uint64_t{cell} * words_of_cell + threadIdx.x);
    std::uint32_t before = 0;
    scan{shared}.ExclusiveSum(static_cast<std::uint32_t>(__popc(word)), before);
    auto const* const mine = counts + std::uint64_t{r} * cells;
    index_type* to = out.indices + r * out.most + (mine[cell] - mine[0]) + before;
    for (; word != 0; word &= word - 1)
      *to++ = cell * cell_size + threadIdx.x * 32 + static_cast<std::uint32_t>(__ffs(static_cast<int>(word)) - 1);
  });
}

// ---- fixed_width ---------------------------------------------------------------------------------------------

/// Chunks of 2^width elements, `chunks` a sender.
struct chunk_table {
  unsigned width;
  std::uint64_t chunks;
  std::uint32_t* counts;  // of selected elements; scanned: those before a chunk

  [[nodiscard]] __device__ std::uint64_t counts_bytes() const { return wire::packed_bytes(chunks, width + 1); }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return 1 + counts_bytes() + wire::packed_bytes(count, width);
  }
};

/// A thread eight chunks or eight entries.
template <int = 0>
__global__ void write_fixed_width(entry_list const own, chunk_table const table, std::byte* message,
                                  message_state* state) {
  if (!is_of<fixed_width>(*state)) return;
  std::uint64_t const count = state->count;
  std::byte* const part = message + state->indices;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    part[0] = static_cast<std::byte>(table.width);
    state->values = state->indices + table.bytes(count);
  }
  for_each((table.chunks + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    std::uint64_t last = first_not_below(own.indices, count, g * group_fields << table.width);
    pack_group(fields_of_group(g, table.chunks), table.width + 1, part + 1 + g * (table.width + 1), [&](unsigned f) {
      std::uint64_t const first = last;
      std::uint64_t const bound = (g * group_fields + f + 1) << table.width;
      last += first_not_below(own.indices + first, smaller(count - first, std::uint64_t{1} << table.width), bound);
      return static_cast<std::uint32_t>(last - first);
    });
  });
  for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    pack_group(fields_of_group(g, count), table.width, part + 1 + table.counts_bytes() + g * table.width,
               [&](unsigned f) { return own.indices[g * group_fields + f] & wire::low_bits(table.width); });
  });
}

/// A thread a sender: whether the part is of this width, and all there.
template <int = 0>
__global__ void open_fixed_width(slots const from, message_state* states, chunk_table const table,
                                 std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (!is_of<fixed_width>(state)) return;
    end_indices(state, table.bytes(state.count), r, error);
    if (state.failed != 0 || static_cast<unsigned>(from.message(r)[state.indices]) == table.width) return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

/// A thread eight chunks of a sender.
template <int = 0>
__global__ void read_chunk_counts(slots const from, message_state const* states, std::uint64_t n,
                                  chunk_table const table, std::uint64_t* error) {
  std::uint64_t const groups = (table.chunks + group_fields - 1) / group_fields;
  for_each(from.senders * groups, [&](std::uint64_t i) {
    auto const r = static_cast<std::uint32_t>(i / groups);
    std::uint64_t const g = i % groups;
    auto* const to = table.counts + r * table.chunks + g * group_fields;
    unsigned const fields = fields_of_group(g, table.chunks);
    if (!is_of<fixed_width>(states[r])) {
      for (unsigned f = 0; f < fields; ++f) to[f] = 0;
      return;
    }
    std::uint64_t const chunk = std::uint64_t{1} << table.width;
    bool good = true;
    auto const* const part = from.message(r) + states[r].indices + 1 + g * (table.width + 1);
    good = unpack_group(fields, table.width + 1, part,
                        [&](unsigned f, std::uint32_t count) {
                          good = good && count <= smaller(chunk, n - (g * group_fields + f) * chunk);
                          to[f] = count;
                        }) &&
           good;
    if (!good) set_fault(error, exchange_fault::contents, r);
  });
}

template <int = 0>
__global__ void end_fixed_width(message_state* states, std::uint32_t senders, chunk_table const table,
                                std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto const* const mine = table.counts + r * table.chunks;
    if (!is_of<fixed_width>(states[r]) || mine[table.chunks] - mine[0] == states[r].count) return;
    set_fault(error, exchange_fault::contents, r);
    states[r].fail();
  });
}

/// A thread eight entries of a sender, once the counts are scanned.
template <int = 0>
__global__ void read_offsets(slots const from, message_state const* states, chunk_table const table,
                             device_places const out, std::uint64_t* error) {
  for (std::uint32_t r = 0; r < from.senders; ++r) {
    auto const& state = states[r];
    if (!is_of<fixed_width>(state)) continue;
    auto const* const before = table.counts + r * table.chunks;
    std::byte const* const part = from.message(r) + state.indices + 1 + table.counts_bytes();
    for_each((std::uint64_t{state.count} + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      bool const clean = unpack_group(
          fields_of_group(g, state.count), table.width, part + g * table.width, [&](unsigned f, std::uint32_t offset) {
            std::uint64_t const p = g * group_fields + f;
            auto const begun =  // chunks whose first entry is this one or one before
                count_before(table.chunks, [&](std::uint64_t c) { return before[c] - before[0] <= p; });
            out.indices[r * out.most + p] = (static_cast<index_type>(begun - 1) << table.width) + offset;
          });
      if (!clean) set_fault(error, exchange_fault::contents, r);
    });
  }
}

// ---- automatic -----------------------------------------------------------------------------------------------

/// One thread: which codec takes the fewest bytes, and the byte that says so.
template <int = 0>
__global__ void choose_codec(std::uint64_t n, delta_blocks const blocks, std::byte* message, message_state* state) {
  std::uint64_t const by_delta = blocks_of(state->count) + blocks.bytes[blocks.most];
  std::uint64_t const by_bitmap = bitmap{}.max_bytes(n, 0);
  std::uint64_t const by_raw32 = raw32{}.max_bytes(n, state->count);
  state->index_codec = by_delta <= by_bitmap && by_delta <= by_raw32 ? delta::id
                       : by_bitmap <= by_raw32                       ? bitmap::id
                                                                     : raw32::id;
  message[state->indices++] = static_cast<std::byte>(state->index_codec);
}

/// A thread a sender: what that byte says.
template <int = 0>
__global__ void read_choice(slots const from, message_state* states, std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (state.failed != 0) return;
    auto const which = state.indices < state.room ? static_cast<unsigned>(from.message(r)[state.indices]) : 0;
    state.index_codec = which;
    ++state.indices;
    if (which == raw32::id || which == delta::id || which == bitmap::id) return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

}  // namespace cuda_kernels

template <>
class device_indices<raw32> {
 public:
  void reserve_writing(cuda_workspace const&, raw32 const&, std::uint64_t, std::uint64_t most) { most_ = most; }
  void reserve_reading(cuda_workspace const&, raw32 const&, std::uint64_t, std::uint64_t most, std::uint32_t) {
    most_ = most;
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    work.over(most_ + 1, cuda_kernels::write_raw32<>, own, message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const&, device_messages const& in,
              device_places const& out) const {
    work.over(in.from.senders, cuda_kernels::end_raw32<>, in.states, in.from.senders, in.error);
    work.over(most_, cuda_kernels::read_raw32<>, in.from, in.states, out);
  }

 private:
  std::uint64_t most_ = 0;
};

/// Memory: for each 128 entries 9 bytes to write, and 12 and sender to read.
template <>
class device_indices<delta> {
 public:
  void reserve_writing(cuda_workspace const& work, delta const&, std::uint64_t, std::uint64_t most) {
    widths_ = work.zeroed<std::uint8_t>(most_blocks(most));
    own_bytes_ = work.zeroed<std::uint64_t>(most_blocks(most) + 1);
    own_scan_.reserve(work.where(), own_bytes_.size());
    own_ = {most_blocks(most), own_bytes_.data(), nullptr};
  }
  void reserve_reading(cuda_workspace const& work, delta const&, std::uint64_t, std::uint64_t most,
                       std::uint32_t senders) {
    bytes_ = work.zeroed<std::uint64_t>(most_blocks(most) * senders + 1);
    steps_ = work.zeroed<std::uint32_t>(most_blocks(most) * senders + 1);
    scan_bytes_.reserve(work.where(), bytes_.size());
    scan_steps_.reserve(work.where(), steps_.size());
    all_ = {most_blocks(most), bytes_.data(), steps_.data()};
  }

  /// Widths and places of blocks. Returns the blocks.
  cuda_kernels::delta_blocks measure(cuda_workspace const& work, cuda_kernels::entry_list const& own) const {
    work.over(cuda_kernels::lanes * own_.most, cuda_kernels::measure_gaps<>, own, own_, widths_.data());
    own_scan_.run(work.where(), own_.bytes, own_.bytes);
    return own_;
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    measure(work, own);
    write(work, own, message);
  }

  /// @pre measure()
  void write(cuda_workspace const& work, cuda_kernels::entry_list const& own, device_message const& message) const {
    work.over(cuda_kernels::groups_of_block * own_.most, cuda_kernels::write_delta<>, own, own_, widths_.data(),
              message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const&, device_messages const& in,
              device_places const& out) const {
    auto const senders = in.from.senders;
    std::uint64_t const blocks = all_.most * senders;
    work.over(blocks, cuda_kernels::measure_delta<>, in.from, in.states, all_);
    scan_bytes_.run(work.where(), all_.bytes, all_.bytes);
    work.over(senders, cuda_kernels::end_delta<>, in.states, senders, all_, in.error);
    work.over(cuda_kernels::lanes * blocks, cuda_kernels::read_delta<false>, in.from, in.states, all_, out, in.error);
    scan_steps_.run(work.where(), all_.steps, all_.steps);
    work.over(cuda_kernels::lanes * blocks, cuda_kernels::read_delta<true>, in.from, in.states, all_, out, in.error);
  }

 private:
  [[nodiscard]] static std::uint64_t most_blocks(std::uint64_t most) {
    return std::max<std::uint64_t>((most + delta::block - 1) / delta::block, 1);
  }

  cuda_buffer<std::uint8_t> widths_;
  cuda_buffer<std::uint64_t> own_bytes_, bytes_;
  cuda_buffer<std::uint32_t> steps_;
  device_scan<std::uint64_t> own_scan_, scan_bytes_;
  device_scan<std::uint32_t> scan_steps_;
  cuda_kernels::delta_blocks own_{}, all_{};
};

/// Memory: 4 bytes for each 4096 elements and sender.
template <>
class device_indices<bitmap> {
 public:
  void reserve_writing(cuda_workspace const&, bitmap const&, std::uint64_t, std::uint64_t) {}
  void reserve_reading(cuda_workspace const& work, bitmap const&, std::uint64_t, std::uint64_t, std::uint32_t senders) {
    counts_ = work.zeroed<std::uint32_t>(std::uint64_t{work.tables().cell_count} * senders + 1);
    scan_.reserve(work.where(), counts_.size());
  }

  void encode(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    work.launch(cuda_kernels::write_bitmap<>, std::max(work.tables().cell_count, 1u), cuda_kernels::words_of_cell, own,
                info.n, message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              device_places const& out) const {
    auto const cells = work.tables().cell_count;
    unsigned const blocks = std::clamp(cells, 1u, 4096u);
    work.zero(counts_);
    work.launch(cuda_kernels::count_map<>, blocks, cuda_kernels::words_of_cell, in.from, in.states, info.n, cells,
                counts_.data());
    scan_.run(work.where(), counts_.data(), counts_.data());
    work.over(in.from.senders, cuda_kernels::end_bitmap<>, in.states, in.from.senders, info.n, cells, counts_.data(),
              in.error);
    work.launch(cuda_kernels::read_map<>, blocks, cuda_kernels::words_of_cell, in.from, in.states, info.n, cells,
                counts_.data(), out);
  }

 private:
  cuda_buffer<std::uint32_t> counts_;
  device_scan<std::uint32_t> scan_;
};

/// A device takes chunks of its own length only. Memory: 4 bytes a chunk and sender.
template <>
class device_indices<fixed_width> {
 public:
  void reserve_writing(cuda_workspace const&, fixed_width const& how, std::uint64_t n, std::uint64_t most) {
    most_ = most;
    table_ = table_of(how, n);
  }
  void reserve_reading(cuda_workspace const& work, fixed_width const& how, std::uint64_t n, std::uint64_t most,
                       std::uint32_t senders) {
    most_ = most;
    table_ = table_of(how, n);
    counts_ = work.zeroed<std::uint32_t>(table_.chunks * senders + 1);
    scan_.reserve(work.where(), counts_.size());
    table_.counts = counts_.data();
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    work.over(std::max(most_, table_.chunks) / cuda_kernels::group_fields + 1, cuda_kernels::write_fixed_width<>, own,
              table_, message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              device_places const& out) const {
    auto const senders = in.from.senders;
    work.over(senders, cuda_kernels::open_fixed_width<>, in.from, in.states, table_, in.error);
    work.over(senders * (table_.chunks / cuda_kernels::group_fields + 1), cuda_kernels::read_chunk_counts<>, in.from,
              in.states, info.n, table_, in.error);
    scan_.run(work.where(), table_.counts, table_.counts);
    work.over(senders, cuda_kernels::end_fixed_width<>, in.states, senders, table_, in.error);
    work.over(most_ / cuda_kernels::group_fields + 1, cuda_kernels::read_offsets<>, in.from, in.states, table_, out,
              in.error);
  }

 private:
  [[nodiscard]] static cuda_kernels::chunk_table table_of(fixed_width const& how, std::uint64_t n) {
    unsigned const width = bit_width(how.chunk) - 1;
    return {width, (n + how.chunk - 1) >> width, nullptr};
  }

  std::uint64_t most_ = 0;
  cuda_buffer<std::uint32_t> counts_;
  device_scan<std::uint32_t> scan_;
  cuda_kernels::chunk_table table_{};
};

/// Runs all three, of which two find nothing to do.
template <>
class device_indices<automatic> {
 public:
  void reserve_writing(cuda_workspace const& work, automatic const&, std::uint64_t n, std::uint64_t most) {
    raw32_.reserve_writing(work, {}, n, most);
    delta_.reserve_writing(work, {}, n, most);
    bitmap_.reserve_writing(work, {}, n, most);
  }
  void reserve_reading(cuda_workspace const& work, automatic const&, std::uint64_t n, std::uint64_t most,
                       std::uint32_t senders) {
    raw32_.reserve_reading(work, {}, n, most, senders);
    delta_.reserve_reading(work, {}, n, most, senders);
    bitmap_.reserve_reading(work, {}, n, most, senders);
  }

  void encode(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    auto const blocks = delta_.measure(work, own);
    work.launch(cuda_kernels::choose_codec<>, 1, 1, info.n, blocks, message.to, message.state);
    raw32_.encode(work, info, own, message);
    delta_.write(work, own, message);
    bitmap_.encode(work, info, own, message);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              device_places const& out) const {
    work.over(in.from.senders, cuda_kernels::read_choice<>, in.from, in.states, in.error);
    raw32_.decode(work, info, in, out);
    delta_.decode(work, info, in, out);
    bitmap_.decode(work, info, in, out);
  }

 private:
  device_indices<raw32> raw32_;
  device_indices<delta> delta_;
  device_indices<bitmap> bitmap_;
};

}  // namespace gradsieve
