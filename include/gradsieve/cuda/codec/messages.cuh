// The frame around every codec's bytes, written and checked in device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

struct header_words {
  std::uint64_t frame;  // magic, version, codec
  std::uint64_t n;
  std::uint64_t layout_hash;
  std::uint64_t count;
  std::uint64_t passthrough;
  std::uint64_t checksum;
};
static_assert(sizeof(header_words) == message_header::bytes);
inline constexpr std::uint64_t checksum_word = 5;

[[nodiscard]] __host__ __device__ constexpr std::uint64_t frame_of(std::uint16_t codec) {
  return message_header::magic | std::uint64_t{message_version} << 32 | std::uint64_t{codec} << 48;
}

/// State of one message. `indices` and `values` are byte offsets in it.
struct message_state {
  std::uint64_t capacity = 0;  // bytes that may be read or written
  std::uint64_t bytes = 0;     // of the message
  std::uint64_t indices = 0;   // begin of the indices' part, if there is one
  std::uint64_t values = 0;    // begin of the values' part, if there is one
  std::uint32_t count = 0;     // entries
  std::uint32_t failed = 0;    // not 0: not a valid message; it has no entries
  std::uint32_t tickets = 0;   // of the launch that writes it; `sum` is its checksum so far
  std::uint64_t sum = 0;
  float const* passthrough = nullptr;  // passthrough values

  __device__ void fail() {
    bytes = 0;
    count = 0;
    failed = 1;
  }
};

/// Words before a message: the decision; the step, with the sender's failure in its highest bit.
inline constexpr std::uint64_t envelope_words = 2;
inline constexpr std::uint64_t failed_bit = std::uint64_t{1} << 63;

struct envelope_source {  // all null: no envelope
  std::uint64_t const* decision = nullptr;
  std::uint64_t const* step = nullptr;
  std::uint64_t const* error = nullptr;
};

__device__ inline void write_envelope(envelope_source const& from, header_words* message) {
  if (from.decision == nullptr) return;
  auto* const words = reinterpret_cast<std::uint64_t*>(message) - envelope_words;
  words[0] = *from.decision;
  words[1] = *from.step | (*from.error != 0 ? failed_bit : 0);
}

/// Messages that a launch writes, a row of blocks each: their lists, memory and states follow one another at equal
/// distances. Each is about a part of a gradient, as large as the first; the last ones may be shorter.
struct message_rows {
  std::uint32_t count = 1;
  std::uint64_t entries = 0;      // of a list's memory
  std::uint64_t bytes = 0;        // of a message's memory
  std::uint64_t n = 0;            // elements of the gradient
  std::uint64_t layout_hash = 0;  // of the gradient

  [[nodiscard]] __device__ message_info about(message_info first) const {
    if (count == 1) return first;
    std::uint64_t const begin = smaller(blockIdx.y * first.n, n);
    first.n = smaller(first.n, n - begin);
    first.layout_hash = hash_of_part(layout_hash, blockIdx.y);
    return first;
  }
  [[nodiscard]] __device__ entry_list list(entry_list const& first) const {
    std::uint64_t const place = blockIdx.y * entries;
    return {first.indices + place, first.values + place, first.count + blockIdx.y, nullptr};
  }
  [[nodiscard]] __device__ header_words* message(std::byte* first) const {
    return reinterpret_cast<header_words*>(first + blockIdx.y * bytes);
  }
};

/// Received messages: one slot of equal size per sender, which begins with the envelope, if any.
struct slots {
  std::byte const* memory;
  std::uint64_t bytes;     // of a slot
  std::uint64_t envelope;  // bytes of the envelope
  std::uint32_t senders;
  std::uint64_t const* sizes;  // of the messages, if they may be shorter than their slots
  [[nodiscard]] __device__ std::byte const* message(std::uint32_t r) const { return memory + bytes * r + envelope; }
  [[nodiscard]] __device__ header_words const& header(std::uint32_t r) const {
    return *reinterpret_cast<header_words const*>(message(r));
  }
};

/// A thread's share of a checksum: its words, where the checksum's own word counts as zero and adds the size.
[[nodiscard]] __device__ inline std::uint64_t share_of_checksum(std::byte const* message, std::uint64_t bytes,
                                                                thread_team const& team) {
  std::uint64_t own = 0;
  team.for_each((bytes + 7) / 8, [&](std::uint64_t w) {
    own += w != checksum_word ? wire::mixed(load_word(message + 8 * w, bytes - 8 * w), w + 1)
                              : wire::mixed(bytes, 0) + wire::mixed(0, checksum_word + 1);
  });
  return own;
}

/// The header's share of a checksum, for a header that is not in memory yet.
[[nodiscard]] __device__ inline std::uint64_t share_of_header(header_words const& header, std::uint64_t bytes) {
  return wire::mixed(bytes, 0) + wire::mixed(header.frame, 1) + wire::mixed(header.n, 2) +
         wire::mixed(header.layout_hash, 3) + wire::mixed(header.count, 4) + wire::mixed(header.passthrough, 5) +
         wire::mixed(0, checksum_word + 1);
}

/// Adds the threads' own numbers to *sum. By all threads of whole warps.
__device__ inline void add_words(std::uint64_t* sum, std::uint64_t own) {
  own = warp_sum(own);
  if (threadIdx.x % 32 == 0 && own != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), own);
}

template <int = 0>
__global__ void seal_message(message_rows const rows, std::byte* first, message_state const* states) {
  wait_for_previous();
  auto* const message = rows.message(first);
  auto const* const bytes = reinterpret_cast<std::byte const*>(message);
  add_words(&message->checksum, share_of_checksum(bytes, states[blockIdx.y].bytes, whole_launch()));
}

/// Reads a header; sets `fault` if it or the envelope is wrong. With a wrong header the message has no entries.
[[nodiscard]] __device__ inline message_state opened(message_info const& info, std::uint16_t codec,
                                                     std::uint64_t capacity, slots const& from, std::uint32_t r,
                                                     exchange_fault& fault) {
  auto const& header = from.header(r);
  message_state state{};
  state.capacity = from.sizes != nullptr ? from.sizes[r] : from.bytes - from.envelope;
  state.count = static_cast<std::uint32_t>(header.count);
  if (header.frame != frame_of(codec) || header.n != info.n || header.layout_hash != info.layout_hash ||
      header.passthrough != info.passthrough || header.count > capacity) {
    fault = exchange_fault::header;
    state.fail();
  }
  if (from.envelope == 0) return state;
  auto const* const mine = reinterpret_cast<std::uint64_t const*>(from.memory + from.bytes * r);
  auto const* const first = reinterpret_cast<std::uint64_t const*>(from.memory);
  if ((mine[1] & failed_bit) != 0)
    fault = exchange_fault::failed;
  else if (mine[0] != first[0] || mine[1] != (first[1] & ~failed_bit))
    fault = exchange_fault::decision;
  return state;
}

/// Results of a launch that checks messages. `sums`, one per sender, and `tickets` are zero before and after it.
struct message_checks {
  std::uint64_t* sums;
  std::uint32_t* tickets;
  std::uint64_t* error;
};

/// Checks an entry: indices rise and are below n, values are finite. `before`: index of the previous entry, if any.
__device__ inline void check_entry(message_info const& info, index_type i, index_type before, bool is_first,
                                   float value, std::uint32_t r, message_checks const& to) {
  if ((!is_first && before >= i) || i >= info.n) set_fault(to.error, exchange_fault::order, r);
  if (!is_finite(value)) set_fault(to.error, exchange_fault::value, r);
}

__device__ inline void check_passthrough(message_info const& info, message_state const& state, std::uint32_t r,
                                         message_checks const& to, thread_team const& team) {
  team.for_each(info.passthrough, [&](std::uint64_t p) {
    if (!is_finite(state.passthrough[p])) set_fault(to.error, exchange_fault::value, r);
  });
}

/// Ends a launch that checked all messages: compares checksums; after a fault none has entries. True in the last block.
__device__ inline bool end_check(slots const& from, update* updates, message_checks const& found) {
  if (!is_last_block(found.tickets)) return false;
  bool const good = as_it_is_now(*found.error) == 0;
  __syncthreads();  // all have read it
  for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x) {
    if (good && from.header(r).checksum != as_it_is_now(found.sums[r]))
      set_fault(found.error, exchange_fault::checksum, r);
    found.sums[r] = 0;
  }
  __syncthreads();
  if (as_it_is_now(*found.error) == 0) return true;
  for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x) updates[r].count = 0;
  return true;
}

/// Means of passthrough values, summed in rank order, in binary64 if the sum overflows. @pre no message has failed
template <int = 0>
__global__ void mean_of_passthrough(message_state const* states, std::uint32_t senders, std::uint64_t elements,
                                    float divisor, float* means) {
  for_each(elements, [&](std::uint64_t p) {
    float total = senders == 0 ? 0.0f : states[0].passthrough[p];
    for (std::uint32_t u = 1; u < senders; ++u) total = add(total, states[u].passthrough[p]);
    double wide = 0;
    for (std::uint32_t u = 0; !is_finite(total) && u < senders; ++u) wide += widened(states[u].passthrough[p]);
    means[p] = is_finite(total) ? divide(total, divisor) : narrowed(wide / widened(divisor));
  });
}

}  // namespace gradsieve::cuda_kernels
