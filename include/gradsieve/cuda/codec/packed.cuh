// The codec `packed` on a device; bytes as on the host.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <gradsieve/codec/packed.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/block_values.cuh>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/device_indices.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/codec/ternary.cuh>
#include <gradsieve/cuda/codec/value_codec.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// A part for the message of this row of blocks, about n elements.
template <class Part>
concept part_in_rows = requires(Part const part) {
  { part.of_row(0u, std::uint64_t{0}) } -> std::same_as<Part>;
};
template <class Part>
[[nodiscard]] __device__ Part part_of_row(Part const& part, std::uint64_t n) {
  if constexpr (part_in_rows<Part>)
    return part.of_row(blockIdx.y, n);
  else
    return part;
}

inline constexpr std::uint64_t packed_start = message_header::bytes + 4;  // after the parts' ids

/// Writes envelope, header without checksum, passthrough values, and both parts.
template <class Codec, class Indices, class Values>
__global__ void write_packed(message_info const first_info, entry_list const first, float const* passthrough,
                             std::uint64_t capacity, envelope_source const envelope, message_rows const rows,
                             Indices const first_indices, Values const first_values, std::byte* first_message,
                             message_state* states) {
  wait_for_previous();
  auto const info = rows.about(first_info);
  auto const own = rows.list(first);
  auto const indices = part_of_row(first_indices, info.n);
  auto const values = part_of_row(first_values, info.n);
  auto* const header = rows.message(first_message);
  auto* const message = reinterpret_cast<std::byte*>(header);
  std::uint64_t const count = *own.count;
  message_state mine{};
  mine.capacity = capacity;
  mine.count = static_cast<std::uint32_t>(count);
  mine.indices = packed_start + 4 * info.passthrough;
  mine.values = mine.indices + indices.bytes(count);
  mine.bytes = mine.values + values.bytes(count, 0);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    write_envelope(envelope, header);
    *header = {frame_of(Codec::id), info.n, info.layout_hash, count, info.passthrough, 0};
    store_value<4>(message + message_header::bytes, Codec::part_ids);
    states[blockIdx.y] = mine;
  }
  auto* const to = reinterpret_cast<float*>(message + packed_start);
  for_each(info.passthrough, [&](std::uint64_t p) { to[p] = passthrough[p]; });
  indices.write(own, count, message + mine.indices);
  values.write(own, count, message + mine.values);
}

/// One block per sender, or as many as the indices ask for: checks header and ids, opens the indices, and sizes the
/// values if that needs no indices.
template <class Codec, class Indices, class Values>
__global__ void __launch_bounds__(part_threads)
    open_packed(message_info const info, std::uint64_t capacity, slots const from, Indices const indices,
                Values const values, message_state* states, std::uint64_t* error) {
  wait_for_previous();
  __shared__ message_state state;
  std::uint32_t const blocks = gridDim.x / from.senders;
  std::uint32_t const r = blockIdx.x / blocks;
  std::byte const* const message = from.message(r);
  auto fault = exchange_fault::none;
  if (threadIdx.x == 0) {
    state = opened(info, Codec::id, capacity, from, r, fault);
    state.indices = packed_start + 4 * info.passthrough;
    state.values = state.indices + indices.bytes(state.count);
    state.passthrough = reinterpret_cast<float const*>(message + packed_start);
    if (state.failed == 0 &&
        (state.values > state.capacity || load_value<4>(message + message_header::bytes) != Codec::part_ids)) {
      fault = exchange_fault::contents;
      state.fail();
    }
  }
  __syncthreads();
  if constexpr (prepared_indices<Indices>)
    if (std::uint32_t const block = blockIdx.x % blocks;
        state.failed != 0 ? block > 0 : !indices.prepare(message + state.indices, state.count, r, block))
      return;
  bool const good = state.failed == 0 && indices.open(message + state.indices, state.count, r);
  if (threadIdx.x != 0) return;
  if (state.failed == 0) {
    state.bytes = Values::needs_indices ? state.capacity : state.values + values.bytes(state.count, r);
    if (!good || state.bytes > state.capacity) {
      fault = exchange_fault::contents;
      state.fail();
    }
  }
  states[r] = state;
  if (fault != exchange_fault::none) set_fault(error, fault, r);
}

/// Decodes all indices, for value codecs that need them first.
template <class Indices>
__global__ void read_indices(slots const from, message_state const* states, Indices const indices,
                             device_places const places) {
  wait_for_previous();
  for_each_sender(from.senders, [&](std::uint32_t r, thread_team const& team) {
    team.for_each(states[r].count, [&](std::uint64_t p) {
      places.indices[r * places.most + p] = indices.index(from.message(r) + states[r].indices, states[r].count, r, p);
    });
  });
}

/// One thread per sender: sizes the values' part, which depends on the indices.
template <class Values>
__global__ void end_values(std::uint32_t senders, Values const values, message_state* states, std::uint64_t* error) {
  wait_for_previous();
  for_each(senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (state.failed != 0) return;
    state.bytes = state.values + values.bytes(state.count, r);
    if (state.bytes <= state.capacity) return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

template <class Indices, class Values>
__global__ void read_packed(message_info const info, slots const from, message_state const* states,
                            Indices const indices, Values const values, device_places const places, float* decoded,
                            update* updates, message_checks const to) {
  wait_for_previous();
  for_each_sender(from.senders, [&](std::uint32_t r, thread_team const& team) {
    auto const state = states[r];
    std::byte const* const message = from.message(r);
    update const mine{places.indices + r * places.most, decoded + r * places.most, state.count, nullptr};
    if (team.thread == 0) {
      updates[r].indices = mine.indices;
      updates[r].values = mine.values;
      updates[r].count = mine.count;
    }
    if (state.failed != 0) return;
    add_words(&to.sums[r], share_of_checksum(message, state.bytes, team));
    check_passthrough(info, state, r, to, team);
    if (!values.well_formed(message + state.values, state.count, r, team))
      set_fault(to.error, exchange_fault::contents, r);
    team.for_each((std::uint64_t{state.count} + 31) / 32 * 32, [&](std::uint64_t p) {  // by whole warps
      bool const here = p < state.count;
      index_type const i = here ? indices.index(message + state.indices, state.count, r, p) : 0;
      index_type before = __shfl_up_sync(~0u, i, 1);
      if (!here) return;
      if (p % 32 == 0 && p > 0) before = indices.index(message + state.indices, state.count, r, p - 1);
      bool good = true;
      float const x = values.value(message + state.values, state.count, r, p, i, good);
      if (!good) set_fault(to.error, exchange_fault::contents, r);
      check_entry(info, i, p > 0 ? before : 0, p == 0, x, r, to);
      places.indices[r * places.most + p] = i;
      decoded[r * places.most + p] = x;
    });
  });
  end_check(from, updates, to);
}

}  // namespace cuda_kernels

/// Memory: 8 bytes for each possible entry of each sender, and what the parts need.
template <class Indices, class Values>
class device_codec<packed<Indices, Values>> {
 public:
  static_assert(
      requires { sizeof(device_indices<Indices>); },
      "packed's indices do not run on a device: messages have a fixed size there, so that automatic and delta save "
      "nothing, nor does bitmap below a density of 0.2; use elias_fano, fixed_width or raw32, or specialise "
      "device_indices for your own codec");
  static_assert(
      requires { sizeof(device_values<Values>); },
      "packed's values do not run on a device, where fp32, fp16, bf16, int8, int4, int2, ternary, sign and qsgd do: "
      "specialise device_values for your own");

  static constexpr std::uint16_t id = packed<Indices, Values>::id;
  static constexpr std::uint32_t part_ids = Indices::id | std::uint32_t{Values::id} << 16;

  [[nodiscard]] static constexpr bool writes_rows() noexcept {
    return cuda_kernels::part_in_rows<decltype(std::declval<device_indices<Indices> const&>().part())> &&
           cuda_kernels::part_in_rows<decltype(std::declval<device_values<Values> const&>().part())>;
  }
  void reserve_writing(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most, std::uint32_t messages = 1) {
    most_ = most;
    indices_.reserve_writing(work, how.indices, layers.size());
    if constexpr (writes_rows())
      values_.reserve_writing(work, how.values, layers, most, messages);
    else
      values_.reserve_writing(work, how.values, layers, most);
  }
  void reserve_reading(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most, std::uint32_t senders) {
    most_ = most;
    if constexpr (requires { indices_.reserve_reading(work, how.indices, layers.size(), most, senders); })
      indices_.reserve_reading(work, how.indices, layers.size(), most, senders);
    else
      indices_.reserve_reading(work, how.indices, layers.size(), senders);
    values_.reserve_reading(work, how.values, layers, most, senders);
    found_indices_ = work.zeroed<index_type>(most * senders);
    found_values_ = work.zeroed<float>(most * senders);
  }

  void quantise(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond, cuda_kernels::message_rows const& rows = {}) const
    requires requires(device_values<Values> const& how) { how.quantise(work, info, own, limit, beyond); }
  {
    if constexpr (writes_rows())
      values_.quantise(work, info, own, limit, beyond, rows);
    else
      values_.quantise(work, info, own, limit, beyond);
  }

  void send(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
            float const* passthrough, device_message const& message,
            cuda_kernels::envelope_source const& envelope) const {
    values_.prepare(work, own);
    auto const indices = indices_.part();
    auto const values = values_.part();
    bool const in_exchange = envelope.decision != nullptr;  // after a kernel of the step
    work.over_early_if<cuda_kernels::write_packed<device_codec, decltype(indices), decltype(values)>>(
        in_exchange, {message.capacity / 8 + 1, message.rows.count}, info, own, passthrough, message.capacity, envelope,
        message.rows, indices, values, message.to, message.state);
    work.over_early<cuda_kernels::seal_message<>>({message.capacity / 8 + 1, message.rows.count}, message.rows,
                                                  message.to, message.state);
  }

  void receive(cuda_workspace const& work, message_info const& info, std::uint64_t capacity, device_messages const& in,
               cuda_kernels::update* updates, cuda_kernels::message_checks const& checks) const {
    using namespace cuda_kernels;
    auto const indices = indices_.part();
    auto const values = values_.part();
    using index_part = std::remove_const_t<decltype(indices)>;
    using value_part = std::remove_const_t<decltype(values)>;
    device_places const places{found_indices_.data(), most_};
    if (in.from.senders == 0) return;
    std::uint32_t blocks = in.from.senders;
    if constexpr (cuda_kernels::prepared_indices<index_part>) blocks *= indices.blocks;
    work.launch<open_packed<device_codec, index_part, value_part>>(blocks, part_threads, info, capacity, in.from,
                                                                   indices, values, in.states, in.error);
    if constexpr (value_part::needs_indices) {
      work.over_early<read_indices<index_part>>(in.from.senders * most_, in.from, in.states, indices, places);
      values_.prepare(work, in, places);
      work.over_early<end_values<value_part>>(in.from.senders, in.from.senders, values, in.states, in.error);
    }
    work.over_early<read_packed<index_part, value_part>>(
        in.from.senders * (std::max(most_, in.from.bytes / 8) + info.passthrough + 1), info, in.from, in.states,
        indices, values, places, found_values_.data(), updates, checks);
  }

 private:
  std::uint64_t most_ = 0;
  device_indices<Indices> indices_;
  device_values<Values> values_;
  cuda_buffer<index_type> found_indices_;
  cuda_buffer<float> found_values_;
};

}  // namespace gradsieve
