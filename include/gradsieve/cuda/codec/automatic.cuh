// The index codec `automatic` on a device: the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/automatic.hpp>
#include <gradsieve/cuda/codec/bitmap.cuh>
#include <gradsieve/cuda/codec/delta.cuh>
#include <gradsieve/cuda/codec/raw32.cuh>

namespace gradsieve {

namespace cuda_kernels {

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
