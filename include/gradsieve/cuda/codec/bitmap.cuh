// The index codec `bitmap` on a device: the same bytes.
#pragma once

#include <cub/block/block_scan.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/bitmap.hpp>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/scan.cuh>

namespace gradsieve {

namespace cuda_kernels {

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

}  // namespace cuda_kernels

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

}  // namespace gradsieve
