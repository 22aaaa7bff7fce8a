// The value codecs of `packed` on a device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/layer_scales.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>

namespace gradsieve {

/// How a value codec runs on a device: specialise it for one of one's own. reserve_writing, reserve_reading and
/// quantise(work, own) as of device_codec. encode(work, info, own, message) writes at state->values and sets
/// state->bytes; decode(work, info, in, places, values) reads there: `values` stand like the indices, which are
/// decoded, but not checked.
template <class Values>
class device_values;

namespace cuda_kernels {

/// One thread of a sender: its values take so many bytes, and the message ends there.
__device__ inline void end_values(message_state& state, std::uint64_t bytes, std::uint32_t sender,
                                  std::uint64_t* error) {
  state.bytes = state.values + bytes;
  if (state.bytes <= state.room) return;
  set_fault(error, exchange_fault::contents, sender);
  state.fail();
}

/// A value as `Width` bytes of its own.
template <class Values>
struct value_bytes;
template <>
struct value_bytes<fp32> {
  static constexpr unsigned width = 4;
  [[nodiscard]] static __device__ std::uint32_t write(float x) { return gradsieve::bit_cast<std::uint32_t>(x); }
  [[nodiscard]] static __device__ float read(std::uint32_t bits) { return gradsieve::bit_cast<float>(bits); }
};
template <class Format>
struct value_bytes<half_values<Format>> {
  static constexpr unsigned width = 2;
  [[nodiscard]] static __device__ std::uint32_t write(float x) { return half_values<Format>::rounded(x).bits; }
  [[nodiscard]] static __device__ float read(std::uint32_t bits) {
    return to_float(Format{static_cast<std::uint16_t>(bits)});
  }
};

template <class Values>
__global__ void round_values(entry_list const own) {
  using bytes = value_bytes<Values>;
  for_each(*own.count, [&](std::uint64_t p) { own.values[p] = bytes::read(bytes::write(own.values[p])); });
}

template <class Values>
__global__ void write_values(entry_list const own, std::byte* message, message_state* state) {
  using bytes = value_bytes<Values>;
  if (blockIdx.x == 0 && threadIdx.x == 0) state->bytes = state->values + bytes::width * std::uint64_t{state->count};
  for_each(state->count, [&](std::uint64_t p) {
    put_bytes(message + state->values + bytes::width * p, bytes::write(own.values[p]), bytes::width);
  });
}

template <class Values>
__global__ void end_plain_values(message_state* states, std::uint32_t senders, std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t r) {
    if (states[r].failed == 0)
      end_values(states[r], value_bytes<Values>::width * std::uint64_t{states[r].count}, static_cast<std::uint32_t>(r),
                 error);
  });
}

template <class Values>
__global__ void read_values(slots const from, message_state const* states, std::uint64_t most, float* values) {
  using bytes = value_bytes<Values>;
  for (std::uint32_t r = 0; r < from.senders; ++r)
    for_each(states[r].count, [&](std::uint64_t p) {
      auto const bits = get_bytes(from.message(r) + states[r].values + bytes::width * p, bytes::width);
      values[r * most + p] = bytes::read(static_cast<std::uint32_t>(bits));
    });
}

/// The scales of this rank's layers, and a sign bit for each entry, eight a thread.
template <int = 0>
__global__ void write_ternary(entry_list const own, layer_table const layers, layer_ranks const ranks,
                              std::byte* message, message_state* state) {
  std::uint64_t const count = state->count;
  std::uint64_t const scales = ranks.before[layers.count];
  std::byte* const part = message + state->values;
  if (blockIdx.x == 0 && threadIdx.x == 0) state->bytes = state->values + 4 * scales + wire::packed_bytes(count, 1);
  for_each(layers.count, [&](std::uint64_t l) {
    if (ranks.before[l + 1] == ranks.before[l]) return;
    auto const scale = magnitude_key(own.values[ranks.first[l]]);  // quantised: all of the layer have it
    put_bytes(part + 4 * std::uint64_t{ranks.before[l]}, scale, 4);
  });
  for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    pack_group(fields_of_group(g, count), 1, part + 4 * scales + g,
               [&](unsigned f) { return gradsieve::bit_cast<std::uint32_t>(own.values[g * group_fields + f]) >> 31; });
  });
}

template <int = 0>
__global__ void end_ternary(message_state* states, std::uint32_t senders, layer_table const layers,
                            layer_ranks const ranks, std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t r) {
    auto& state = states[r];
    auto const* const before = ranks.before + r * layers.count;
    if (state.failed == 0)
      end_values(state, 4 * std::uint64_t{before[layers.count] - before[0]} + wire::packed_bytes(state.count, 1),
                 static_cast<std::uint32_t>(r), error);
  });
}

/// Eight entries a thread.
template <int = 0>
__global__ void read_ternary(slots const from, message_state const* states, layer_table const layers,
                             layer_ranks const ranks, device_places const places, float* values, std::uint64_t* error) {
  for (std::uint32_t r = 0; r < from.senders; ++r) {
    auto const& state = states[r];
    auto const* const before = ranks.before + std::uint64_t{r} * layers.count;
    std::byte const* const part = from.message(r) + state.values;
    std::uint32_t const scales = before[layers.count] - before[0];
    std::byte const* const signs = part + 4 * std::uint64_t{scales};
    auto const* const indices = places.indices + r * places.most;
    for_each((std::uint64_t{state.count} + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      bool const clean =
          unpack_group(fields_of_group(g, state.count), 1, signs + g, [&](unsigned f, std::uint32_t negative) {
            std::uint64_t const p = g * group_fields + f;
            // Where indices do not rise, which is found behind this, a layer may have no scale.
            auto const which = before[layers.of(indices[p])] - before[0];
            auto const scale = which < scales
                                   ? static_cast<std::uint32_t>(get_bytes(part + 4 * std::uint64_t{which}, 4))
                                   : infinite_key;
            if (scale >= infinite_key) set_fault(error, exchange_fault::contents, r);
            values[r * places.most + p] = gradsieve::bit_cast<float>(scale | negative << 31);
          });
      if (!clean) set_fault(error, exchange_fault::contents, r);
    });
  }
}

}  // namespace cuda_kernels

/// Values of a fixed number of bytes each.
template <class Values>
class device_plain_values {
 public:
  void reserve_writing(cuda_workspace const&, Values const&, layout const&, std::uint64_t most) { most_ = most; }
  void reserve_reading(cuda_workspace const&, Values const&, layout const&, std::uint64_t most, std::uint32_t) {
    most_ = most;
  }

  void quantise(cuda_workspace const& work, cuda_kernels::entry_list const& own) const
    requires(cuda_kernels::value_bytes<Values>::width < sizeof(float))
  {
    work.over(most_, cuda_kernels::round_values<Values>, own);
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    work.over(most_ + 1, cuda_kernels::write_values<Values>, own, message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const&, device_messages const& in, device_places const& places,
              float* values) const {
    work.over(in.from.senders, cuda_kernels::end_plain_values<Values>, in.states, in.from.senders, in.error);
    work.over(most_, cuda_kernels::read_values<Values>, in.from, in.states, places.most, values);
  }

 private:
  std::uint64_t most_ = 0;
};

template <>
class device_values<fp32> : public device_plain_values<fp32> {};
template <class Format>
class device_values<half_values<Format>> : public device_plain_values<half_values<Format>> {};

/// Memory: for each layer 28 bytes to write, and 4 bytes and 8 a sender to read.
template <>
class device_values<ternary> {
 public:
  void reserve_writing(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t most) {
    most_ = most;
    layers_.reserve(work, layers);
    scales_.reserve(work, layers_.table(), most);
    ranks_.reserve(work, layers_.table(), 1);
  }
  void reserve_reading(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t most,
                       std::uint32_t senders) {
    most_ = most;
    layers_.reserve(work, layers);
    ranks_.reserve(work, layers_.table(), senders);
  }

  void quantise(cuda_workspace const& work, cuda_kernels::entry_list const& own) const {
    scales_.apply(work, layers_.table(), own);
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    ranks_.find(work, layers_.table(), own);
    work.over(std::max(most_ / cuda_kernels::group_fields + 1, std::uint64_t{layers_.table().count}),
              cuda_kernels::write_ternary<>, own, layers_.table(), ranks_.ranks(), message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const&, device_messages const& in, device_places const& places,
              float* values) const {
    ranks_.find(work, layers_.table(), in, places);
    work.over(in.from.senders, cuda_kernels::end_ternary<>, in.states, in.from.senders, layers_.table(), ranks_.ranks(),
              in.error);
    work.over(most_ / cuda_kernels::group_fields + 1, cuda_kernels::read_ternary<>, in.from, in.states, layers_.table(),
              ranks_.ranks(), places, values, in.error);
  }

 private:
  std::uint64_t most_ = 0;
  device_layers layers_;
  layer_scales scales_;
  layer_finder ranks_;
};

}  // namespace gradsieve
