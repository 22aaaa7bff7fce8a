// The codec `packed` on a device, with the index codecs `raw32` and `fixed_width`; bytes as on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cub/block/block_scan.cuh>

#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/codec/index/raw32.hpp>
#include <gradsieve/codec/packed.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/block_values.cuh>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/codec/ternary.cuh>
#include <gradsieve/cuda/codec/value_codec.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// How an index codec runs on a device; specialise it for your own. reserve_writing(work, how, n) and
/// reserve_reading(work, how, n, senders) allocate. part() returns a small value for kernels, with
///   bytes(count): size of the part for `count` entries; the part may begin at any byte of a message;
///   write(own, count, to): by all threads of a launch;
///   open(part, count, sender): by all threads of one block of part_threads; in thread 0, true if the part is well
///     formed. It may rely on the part's size only;
///   index(part, count, sender, p): index of entry p, by one thread, of a part that an earlier launch has opened.
/// The caller checks order and range of the indices.
template <class Indices>
class device_indices;

namespace cuda_kernels {

struct raw32_part {
  [[nodiscard]] static __device__ std::uint64_t bytes(std::uint64_t count) { return 4 * count; }
  static __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) {
    for_each(count, [&](std::uint64_t p) { put_bytes(to + 4 * p, own.indices[p], 4); });
  }
  [[nodiscard]] static __device__ bool open(std::byte const*, std::uint64_t, std::uint32_t) { return true; }
  [[nodiscard]] static __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t,
                                                   std::uint64_t p) {
    return static_cast<index_type>(get_bytes(part + 4 * p, 4));
  }
};

}  // namespace cuda_kernels

template <>
class device_indices<raw32> {
 public:
  static void reserve_writing(cuda_workspace const&, raw32 const&, std::uint64_t) noexcept {}
  static void reserve_reading(cuda_workspace const&, raw32 const&, std::uint64_t, std::uint32_t) noexcept {}
  [[nodiscard]] static cuda_kernels::raw32_part part() noexcept { return {}; }
};

namespace cuda_kernels {

/// A byte with the width, the entry counts of all chunks of 2^width elements, and the entries' offsets in their chunks.
struct fixed_width_part {
  unsigned width;
  std::uint64_t chunks;
  std::uint64_t n;
  std::uint32_t* before;  // of each sender and chunk: entries in the chunks before it

  [[nodiscard]] __device__ std::uint64_t counts_bytes() const { return wire::packed_bytes(chunks, width + 1); }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return 1 + counts_bytes() + wire::packed_bytes(count, width);
  }

  __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) const {
    if (blockIdx.x == 0 && threadIdx.x == 0) to[0] = static_cast<std::byte>(width);
    for_each((chunks + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      std::uint64_t last = first_not_below(own.indices, count, g * group_fields << width);
      pack_group(fields_of_group(g, chunks), width + 1, to + 1 + g * (width + 1), [&](unsigned f) {
        std::uint64_t const first = last;
        std::uint64_t const bound = (g * group_fields + f + 1) << width;
        last += first_not_below(own.indices + first, smaller(count - first, std::uint64_t{1} << width), bound);
        return static_cast<std::uint32_t>(last - first);
      });
    });
    for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      pack_group(fields_of_group(g, count), width, to + 1 + counts_bytes() + g * width,
                 [&](unsigned f) { return own.indices[g * group_fields + f] & wire::low_bits(width); });
    });
  }

  /// Turns the counts into prefix sums; each thread takes consecutive chunks.
  [[nodiscard]] __device__ bool open(std::byte const* part, std::uint64_t count, std::uint32_t sender) const {
    using scanner = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, part_threads>;
    __shared__ typename scanner::TempStorage shared;
    auto* const mine = before + sender * chunks;
    std::uint64_t const groups = (chunks + group_fields - 1) / group_fields;
    std::uint64_t const each = (groups + part_threads - 1) / part_threads;
    std::uint64_t const begin = smaller(groups, each * threadIdx.x);
    std::uint64_t const end = smaller(groups, begin + each);
    bool good = static_cast<unsigned>(part[0]) == width;
    auto const counts = [&](std::uint64_t g, auto const& take) {
      return unpack_group(fields_of_group(g, chunks), width + 1, part + 1 + g * (width + 1),
                          [&](unsigned f, std::uint32_t here) { take(g * group_fields + f, here); });
    };
    std::uint64_t own = 0;
    for (std::uint64_t g = begin; g < end; ++g) {
      bool const clean = counts(g, [&](std::uint64_t c, std::uint32_t here) {
        good = good && here <= smaller(std::uint64_t{1} << width, n - (c << width));
        own += here;
      });
      good = good && clean;
    }
    std::uint64_t at = 0;
    std::uint64_t total = 0;
    scanner{shared}.ExclusiveSum(own, at, total);
    for (std::uint64_t g = begin; g < end; ++g)
      counts(g, [&](std::uint64_t c, std::uint32_t here) {
        mine[c] = static_cast<std::uint32_t>(at);
        at += here;
      });
    unsigned const last_bits = static_cast<unsigned>(count * width % 8);
    bool const clean = last_bits == 0 || static_cast<unsigned>(part[bytes(count) - 1]) >> last_bits == 0;
    return __syncthreads_and(good && clean && total == count);
  }

  [[nodiscard]] __device__ index_type index(std::byte const* part, std::uint64_t, std::uint32_t sender,
                                            std::uint64_t p) const {
    auto const* const mine = before + sender * chunks;
    auto const begun =  // chunks that begin at entry p or before
        count_before(chunks, [&](std::uint64_t c) { return mine[c] <= p; });
    std::uint64_t const bit = p * width;
    auto const shift = static_cast<unsigned>(bit % 8);
    auto const bits = get_bytes(part + 1 + counts_bytes() + bit / 8, (shift + width + 7) / 8);
    return (static_cast<index_type>(begun - 1) << width) +
           (static_cast<std::uint32_t>(bits >> shift) & wire::low_bits(width));
  }
};

}  // namespace cuda_kernels

/// Accepts messages of its own chunk length only. Memory: 4 bytes per chunk and sender.
template <>
class device_indices<fixed_width> {
 public:
  void reserve_writing(cuda_workspace const&, fixed_width const& how, std::uint64_t n) { part_ = part_of(how, n); }
  void reserve_reading(cuda_workspace const& work, fixed_width const& how, std::uint64_t n, std::uint32_t senders) {
    part_ = part_of(how, n);
    before_ = work.zeroed<std::uint32_t>(part_.chunks * senders);
    part_.before = before_.data();
  }
  [[nodiscard]] cuda_kernels::fixed_width_part part() const noexcept { return part_; }

 private:
  [[nodiscard]] static cuda_kernels::fixed_width_part part_of(fixed_width const& how, std::uint64_t n) {
    unsigned const width = bit_width(how.chunk) - 1;
    return {width, (n + how.chunk - 1) >> width, n, nullptr};
  }

  cuda_buffer<std::uint32_t> before_;
  cuda_kernels::fixed_width_part part_{};
};

namespace cuda_kernels {

inline constexpr std::uint64_t packed_start = message_header::bytes + 4;  // after the parts' ids

/// Writes envelope, header without checksum, passthrough values, and both parts.
template <class Codec, class Indices, class Values>
__global__ void write_packed(message_info const info, entry_list const own, float const* passthrough,
                             std::uint64_t capacity, envelope_source const envelope, Indices const indices,
                             Values const values, std::byte* message, message_state* state) {
  wait_for_previous();
  std::uint64_t const count = *own.count;
  message_state mine{};
  mine.capacity = capacity;
  mine.count = static_cast<std::uint32_t>(count);
  mine.indices = packed_start + 4 * info.passthrough;
  mine.values = mine.indices + indices.bytes(count);
  mine.bytes = mine.values + values.bytes(count, 0);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    auto* const header = reinterpret_cast<header_words*>(message);
    write_envelope(envelope, header);
    *header = {frame_of(Codec::id), info.n, info.layout_hash, count, info.passthrough, 0};
    put_bytes(message + message_header::bytes, Codec::part_ids, 4);
    *state = mine;
  }
  auto* const to = reinterpret_cast<float*>(message + packed_start);
  for_each(info.passthrough, [&](std::uint64_t p) { to[p] = passthrough[p]; });
  indices.write(own, count, message + mine.indices);
  values.write(own, count, message + mine.values);
}

/// One block per sender: checks header and ids, opens the indices, and sizes the values if that needs no indices.
template <class Codec, class Indices, class Values>
__global__ void __launch_bounds__(part_threads)
    open_packed(message_info const info, std::uint64_t capacity, slots const from, Indices const indices,
                Values const values, message_state* states, std::uint64_t* error) {
  wait_for_previous();
  __shared__ message_state state;
  std::uint32_t const r = blockIdx.x;
  std::byte const* const message = from.message(r);
  auto fault = exchange_fault::none;
  if (threadIdx.x == 0) {
    state = opened(info, Codec::id, capacity, from, r, fault);
    state.indices = packed_start + 4 * info.passthrough;
    state.values = state.indices + indices.bytes(state.count);
    state.passthrough = reinterpret_cast<float const*>(message + packed_start);
    if (state.failed == 0 &&
        (state.values > state.capacity || get_bytes(message + message_header::bytes, 4) != Codec::part_ids)) {
      fault = exchange_fault::contents;
      state.fail();
    }
  }
  __syncthreads();
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
      "nothing, nor does bitmap below a density of 0.2; use fixed_width or raw32, or specialise device_indices for "
      "your own codec");
  static_assert(
      requires { sizeof(device_values<Values>); },
      "packed's values do not run on a device, where fp32, fp16, bf16, int8, int4, int2, ternary, sign and qsgd do: "
      "specialise device_values for your own");

  static constexpr std::uint16_t id = packed<Indices, Values>::id;
  static constexpr std::uint32_t part_ids = Indices::id | std::uint32_t{Values::id} << 16;

  void reserve_writing(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most) {
    most_ = most;
    indices_.reserve_writing(work, how.indices, layers.size());
    values_.reserve_writing(work, how.values, layers, most);
  }
  void reserve_reading(cuda_workspace const& work, packed<Indices, Values> const& how, layout const& layers,
                       std::uint64_t most, std::uint32_t senders) {
    most_ = most;
    indices_.reserve_reading(work, how.indices, layers.size(), senders);
    values_.reserve_reading(work, how.values, layers, most, senders);
    found_indices_ = work.zeroed<index_type>(most * senders);
    found_values_ = work.zeroed<float>(most * senders);
  }

  void quantise(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond) const
    requires requires(device_values<Values> const& how) { how.quantise(work, info, own, limit, beyond); }
  {
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
        in_exchange, message.capacity / 8 + 1, info, own, passthrough, message.capacity, envelope, indices, values,
        message.to, message.state);
    work.over_early<cuda_kernels::seal_message<>>(message.capacity / 8 + 1, message.header(), message.state);
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
    work.launch<open_packed<device_codec, index_part, value_part>>(in.from.senders, part_threads, info, capacity,
                                                                   in.from, indices, values, in.states, in.error);
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
