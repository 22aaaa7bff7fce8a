// The index codec `raw32` on a device: the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>

namespace gradsieve {

namespace cuda_kernels {

template <int = 0>
__global__ void write_raw32(entry_list const own, std::byte* message, message_state* state) {
  if (blockIdx.x == 0 && threadIdx.x == 0) state->values = state->indices + 4 * std::uint64_t{state->count};
  for_each(state->count, [&](std::uint64_t p) { put_bytes(message + state->indices + 4 * p, own.indices[p], 4); });
}

template <int = 0>
__global__ void end_raw32(message_state* states, std::uint32_t senders, std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t r) {
    if (states[r].failed == 0)
      end_indices(states[r], 4 * std::uint64_t{states[r].count}, static_cast<std::uint32_t>(r), error);
  });
}

template <int = 0>
__global__ void read_raw32(slots const from, message_state const* states, device_places const out) {
  for (std::uint32_t r = 0; r < from.senders; ++r)
    for_each(states[r].count, [&](std::uint64_t p) {
      out.indices[r * out.most + p] =
          static_cast<index_type>(get_bytes(from.message(r) + states[r].indices + 4 * p, 4));
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

}  // namespace gradsieve
