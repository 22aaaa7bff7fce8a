// The frame around every codec's bytes, written and checked where they lie on a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/selection.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/passes/warp.cuh>

namespace gradsieve::cuda_kernels {

/// The words of a header, as message_header says.
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

/// What a device knows of one message. Places are bytes from its first.
struct message_state {
  std::uint64_t room = 0;              // bytes that may be read or written
  std::uint64_t bytes = 0;             // of the message
  std::uint64_t indices = 0;           // where the part with the indices begins, if there is one
  std::uint64_t values = 0;            // and the part with the values
  std::uint32_t count = 0;             // entries
  std::uint32_t failed = 0;            // not 0: is not a message, and has no entries
  float const* passthrough = nullptr;  // the elements that pass through

  /// What was believed of it is wrong.
  __device__ void fail() {
    bytes = 0;
    count = 0;
    failed = 1;
  }
};

/// Before a message of an exchange: the decision; the step, and in its highest bit whether the sender has failed.
inline constexpr std::uint64_t envelope_words = 2;
inline constexpr std::uint64_t failed_bit = std::uint64_t{1} << 63;

template <int = 0>
__global__ void write_envelope(std::uint64_t const* decision, std::uint64_t const* step, std::uint64_t const* error,
                               std::uint64_t* words) {
  words[0] = *decision;
  words[1] = *step | (*error != 0 ? failed_bit : 0);
}

/// What arrived: one slot of equal size a sender, its first words an envelope or nothing.
struct slots {
  std::byte const* memory;
  std::uint64_t bytes;     // of one
  std::uint64_t envelope;  // bytes before a message
  std::uint32_t senders;
  std::uint64_t const* sizes;  // of the messages, if they may be shorter than what a slot has room for
  [[nodiscard]] __device__ std::byte const* message(std::uint32_t r) const { return memory + bytes * r + envelope; }
  [[nodiscard]] __device__ header_words const& header(std::uint32_t r) const {
    return *reinterpret_cast<header_words const*>(message(r));
  }
};

/// A word of a message; one behind the end counts as far as it belongs to the message.
[[nodiscard]] __device__ inline std::uint64_t word_of(std::byte const* message, std::uint64_t w, std::uint64_t bytes) {
  if (8 * w + 8 <= bytes) return reinterpret_cast<std::uint64_t const*>(message)[w];
  std::uint64_t word = 0;
  for (std::uint64_t b = 8 * w; b < bytes; ++b) word |= static_cast<std::uint64_t>(message[b]) << (8 * (b - 8 * w));
  return word;
}

/// What a thread of a launch adds to a checksum: its share of the words, and one of them the size, and the checksum
/// itself as a zero.
[[nodiscard]] __device__ inline std::uint64_t share_of_checksum(std::byte const* message, std::uint64_t bytes) {
  std::uint64_t own = 0;
  for_each((bytes + 7) / 8, [&](std::uint64_t w) {
    own += w != checksum_word ? wire::mixed(word_of(message, w, bytes), w + 1)
                              : wire::mixed(bytes, 0) + wire::mixed(0, checksum_word + 1);
  });
  return own;
}

/// Adds up what all threads of whole warps bring.
__device__ inline void add_words(std::uint64_t* sum, std::uint64_t own) {
  own = warp_sum(own);
  if (threadIdx.x % 32 == 0 && own != 0) atomicAdd(reinterpret_cast<unsigned long long*>(sum), own);
}

/// One thread: a header without checksum, and what is known of the message by then.
template <int = 0>
__global__ void write_header(message_info const info, std::uint16_t codec, entry_list const from, std::uint64_t room,
                             header_words* message, message_state* state) {
  *message = {frame_of(codec), info.n, info.layout_hash, *from.count, info.passthrough, 0};
  *state = {};
  state->room = room;
  state->count = *from.count;
}

template <int = 0>
__global__ void seal_message(header_words* message, message_state const* state) {
  add_words(&message->checksum, share_of_checksum(reinterpret_cast<std::byte const*>(message), state->bytes));
}

/// A thread a sender: reads the headers; a message that is not ours has no entries.
template <int = 0>
__global__ void open_messages(message_info const info, std::uint16_t codec, std::uint64_t capacity, slots const from,
                              message_state* states, std::uint64_t* sums, std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto const& header = from.header(r);
    bool const good = header.frame == frame_of(codec) && header.n == info.n && header.layout_hash == info.layout_hash &&
                      header.passthrough == info.passthrough && header.count <= capacity;
    states[r] = {};
    states[r].room = from.sizes != nullptr ? from.sizes[r] : from.bytes - from.envelope;
    states[r].count = good ? static_cast<std::uint32_t>(header.count) : 0;
    if (!good) states[r].fail();
    if (!good) set_fault(error, exchange_fault::header, r);
    sums[r] = 0;
    auto const* const mine = reinterpret_cast<std::uint64_t const*>(from.memory + from.bytes * r);
    auto const* const first = reinterpret_cast<std::uint64_t const*>(from.memory);
    if (from.envelope == 0) return;
    if ((mine[1] & failed_bit) != 0)
      set_fault(error, exchange_fault::failed, r);
    else if (mine[0] != first[0] || mine[1] != (first[1] & ~failed_bit))
      set_fault(error, exchange_fault::decision, r);
  });
}

/// Sums up what arrived, and looks at every entry: indices that rise below n, values that are finite.
template <int = 0>
__global__ void check_messages(message_info const info, slots const from, message_state const* states,
                               update const* updates, std::uint64_t* sums, std::uint64_t* error) {
  for (std::uint32_t r = 0; r < from.senders; ++r) {
    auto const mine = updates[r];
    add_words(&sums[r], share_of_checksum(from.message(r), states[r].bytes));
    for_each(mine.count, [&](std::uint64_t p) {
      if ((p > 0 && mine.indices[p - 1] >= mine.indices[p]) || mine.indices[p] >= info.n)
        set_fault(error, exchange_fault::order, r);
      if (!is_finite(mine.values[p])) set_fault(error, exchange_fault::value, r);
    });
    if (states[r].failed == 0)
      for_each(info.passthrough, [&](std::uint64_t p) {
        if (!is_finite(states[r].passthrough[p])) set_fault(error, exchange_fault::value, r);
      });
  }
}

/// The senders' uncompressed elements, added in their order, / divisor. A sum that overflows is formed again in
/// binary64. @pre no message has failed
template <int = 0>
__global__ void mean_of_passthrough(message_state const* states, std::uint32_t senders, std::uint64_t elements,
                                    float divisor, float* means) {
  for_each(elements, [&](std::uint64_t p) {
    float total = senders == 0 ? 0.0f : states[0].passthrough[p];
    for (std::uint32_t u = 1; u < senders; ++u) total = add(total, states[u].passthrough[p]);
    double wide = 0;
    for (std::uint32_t u = 0; !is_finite(total) && u < senders; ++u)
      wide += static_cast<double>(states[u].passthrough[p]);
    means[p] = is_finite(total) ? divide(total, divisor) : static_cast<float>(wide / static_cast<double>(divisor));
  });
}

/// After check_messages(): where anything was wrong no message has entries.
template <int = 0>
__global__ void compare_sums(slots const from, update* updates, std::uint64_t const* sums, std::uint64_t* error) {
  bool const good = *error == 0;
  __syncthreads();  // all have read it
  if (good)
    for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x)
      if (from.header(r).checksum != sums[r]) set_fault(error, exchange_fault::checksum, r);
  __syncthreads();
  if (*error == 0) return;
  for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x) updates[r].count = 0;
}

}  // namespace gradsieve::cuda_kernels
