// The codec `packed` on a device: the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/packed.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/fixed_width.cuh>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/codec/raw32.cuh>
#include <gradsieve/cuda/codec/value_codecs.cuh>

namespace gradsieve {

namespace cuda_kernels {

inline constexpr std::uint64_t packed_start = message_header::bytes + 4;  // behind the parts' ids

/// The parts' ids, and what passes through; where the part of the indices begins.
template <class Indices, class Values>
__global__ void write_packed(float const* passthrough, std::uint64_t passthrough_elements, std::byte* message,
                             message_state* state) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    put_bytes(message + message_header::bytes, Indices::id | std::uint32_t{Values::id} << 16, 4);
    state->indices = packed_start + 4 * passthrough_elements;
  }
  auto* const to = reinterpret_cast<float*>(message + packed_start);
  for_each(passthrough_elements, [&](std::uint64_t p) { to[p] = passthrough[p]; });
}

/// A thread a sender.
template <class Indices, class Values>
__global__ void open_packed(slots const from, std::uint64_t passthrough_elements, message_state* states,
                            std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (state.failed != 0) return;
    state.indices = packed_start + 4 * passthrough_elements;
    state.passthrough = reinterpret_cast<float const*>(from.message(r) + packed_start);
    if (state.indices <= state.room &&
        get_bytes(from.message(r) + message_header::bytes, 4) == (Indices::id | std::uint32_t{Values::id} << 16))
      return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

}  // namespace cuda_kernels

/// Memory: device_entries, and its parts'.
template <class Indices, class Values>
class device_codec<packed<Indices, Values>> {
 public:
  static_assert(
      requires { sizeof(device_indices<Indices>); },
      "packed's indices do not run on a device: messages have a fixed size there, so that automatic and delta save "
      "nothing, nor does bitmap below a density of 0.2; use fixed_width or raw32, or specialise device_indices for a "
      "codec of one's own");
  static_assert(
      requires { sizeof(device_values<Values>); },
      "packed's values do not run on a device: specialise device_values for them");

  void reserve_writing(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most) {
    indices_.reserve_writing(work, how.indices, layers.size(), most);
    values_.reserve_writing(work, how.values, layers, most);
  }
  void reserve_reading(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most, std::uint32_t senders) {
    indices_.reserve_reading(work, how.indices, layers.size(), most, senders);
    values_.reserve_reading(work, how.values, layers, most, senders);
    found_.reserve(work, most, senders);
  }

  void quantise(cuda_workspace const& work, cuda_kernels::entry_list const& own) const
    requires requires(device_values<Values> const& how) { how.quantise(work, own); }
  {
    values_.quantise(work, own);
  }

  void encode(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
              float const* passthrough, device_message const& message) const {
    work.over(info.passthrough + 1, cuda_kernels::write_packed<Indices, Values>, passthrough, info.passthrough,
              message.to, message.state);
    indices_.encode(work, info, own, message);
    values_.encode(work, info, own, message);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              cuda_kernels::update* updates) const {
    work.over(in.from.senders, cuda_kernels::open_packed<Indices, Values>, in.from, info.passthrough, in.states,
              in.error);
    indices_.decode(work, info, in, found_.places());
    values_.decode(work, info, in, found_.places(), found_.values());
    found_.tell(work, in, updates);
  }

 private:
  device_indices<Indices> indices_;
  device_values<Values> values_;
  device_entries found_;
};

}  // namespace gradsieve
