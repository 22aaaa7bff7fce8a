// What an index codec of `packed` must offer on a device.
#pragma once

#include <cstdint>

#include <gradsieve/cuda/codec/codec.cuh>

namespace gradsieve {

/// How an index codec runs on a device: specialise it for one of one's own. reserve_writing(work, how, n, most) and
/// reserve_reading(work, how, n, most, senders) as of device_codec. encode(work, info, own, message) writes at
/// state->indices and sets state->values to where its part ends; decode(work, info, in, out) reads there, and
/// leaves alone a message that has failed.
template <class Indices>
class device_indices;

namespace cuda_kernels {

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
