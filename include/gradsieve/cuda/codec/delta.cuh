// The index codec `delta` on a device: the same bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/delta.hpp>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/scan.cuh>

namespace gradsieve {

namespace cuda_kernels {

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

}  // namespace cuda_kernels

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

}  // namespace gradsieve
