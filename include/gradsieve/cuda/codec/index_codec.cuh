// What an index codec of `packed` must offer on a device. Every kernel looks whether its message has a part of that
// codec: with `automatic` the device alone knows.
#pragma once

#include <cstdint>

#include <gradsieve/cuda/codec.cuh>

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

}  // namespace cuda_kernels

}  // namespace gradsieve
