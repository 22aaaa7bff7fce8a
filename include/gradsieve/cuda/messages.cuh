// Messages of the coo codec, written and checked where they lie on a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/cuda/updates.cuh>
#include <gradsieve/selection.hpp>
#include <gradsieve/space/cuda_entries.cuh>
#include <gradsieve/space/cuda_tables.cuh>
#include <gradsieve/types.hpp>

namespace gradsieve::cuda_kernels {

/// The words of a header, as message_header says.
struct header_words {
  std::uint64_t frame;  // magic, version, codec
  std::uint64_t n;
  std::uint64_t layout_hash;
  std::uint64_t count;
  std::uint64_t dense;
  std::uint64_t checksum;
};
static_assert(sizeof(header_words) == message_header::bytes);
inline constexpr std::uint64_t checksum_word = 5;

[[nodiscard]] __host__ __device__ constexpr std::uint64_t frame_of(std::uint16_t codec) {
  return message_header::magic | std::uint64_t{message_version} << 32 | std::uint64_t{codec} << 48;
}

/// Words of a message, a last half one included, and its bytes.
[[nodiscard]] __device__ inline std::uint64_t bytes_of(header_words const& header) {
  return message_header::bytes + 8 * header.count + 4 * header.dense;
}

/// A word behind the end counts as far as it belongs to the message.
[[nodiscard]] __device__ inline std::uint64_t word_of(std::uint64_t const* message, std::uint64_t w,
                                                      std::uint64_t bytes) {
  if (8 * w + 8 <= bytes) return message[w];
  return reinterpret_cast<std::uint32_t const*>(message)[2 * w];
}

/// What a checksum begins with: the size, and itself as a zero.
[[nodiscard]] __device__ inline std::uint64_t first_sum(std::uint64_t bytes) {
  return wire::mixed(bytes, 0) + wire::mixed(0, checksum_word + 1);
}

__device__ inline void add_word(std::uint64_t* sum, std::uint64_t word) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), word);
}

/// Header and payload of a message; the checksum is left to seal_message().
template <int = 0>
__global__ void write_message(message_info const info, std::uint16_t codec, entry_list const from, float const* dense,
                              header_words* message) {
  std::uint64_t const count = *from.count;
  header_words header{frame_of(codec), info.n, info.layout_hash, count, info.dense, 0};
  header.checksum = first_sum(bytes_of(header));
  if (blockIdx.x == 0 && threadIdx.x == 0) *message = header;
  auto* const indices = reinterpret_cast<index_type*>(message + 1);
  auto* const values = reinterpret_cast<float*>(indices + count);
  for_each(count, [&](std::uint64_t p) {
    indices[p] = from.indices[p];
    values[p] = from.values[p];
  });
  for_each(info.dense, [&](std::uint64_t p) { values[count + p] = dense[p]; });
}

template <int = 0>
__global__ void seal_message(header_words* message) {
  std::uint64_t const bytes = bytes_of(*message);
  auto const* const words = reinterpret_cast<std::uint64_t const*>(message);
  std::uint64_t own = 0;
  for_each((bytes + 7) / 8, [&](std::uint64_t w) {
    if (w != checksum_word) own += wire::mixed(word_of(words, w, bytes), w + 1);
  });
  if (own != 0) add_word(&message->checksum, own);
}

/// What arrived: one slot of equal size a sender, its first words an envelope.
struct slots {
  std::byte const* memory;
  std::uint64_t bytes;     // of one
  std::uint64_t envelope;  // bytes before a message
  std::uint32_t senders;
  [[nodiscard]] __device__ header_words const* message(std::uint32_t r) const {
    return reinterpret_cast<header_words const*>(memory + bytes * r + envelope);
  }
};

__device__ inline void set_fault(std::uint64_t* error, exchange_fault what, std::uint32_t sender) {
  *error = static_cast<std::uint64_t>(what) | std::uint64_t{sender} << 32;
}

/// A thread a sender: reads the headers; a message that is not ours counts as empty.
template <int = 0>
__global__ void open_messages(message_info const info, std::uint16_t codec, std::uint64_t capacity, slots const from,
                              std::uint32_t* directories, std::uint32_t cells, update* updates, std::uint64_t* sums,
                              std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto const* const message = from.message(r);
    auto const header = *message;
    bool const good = header.frame == frame_of(codec) && header.n == info.n && header.layout_hash == info.layout_hash &&
                      header.dense == info.dense && header.count <= capacity;
    auto const count = good ? static_cast<std::uint32_t>(header.count) : 0;
    auto const* const indices = reinterpret_cast<index_type const*>(message + 1);
    updates[r] = {indices, reinterpret_cast<float const*>(indices + count), count,
                  directories + std::uint64_t{r} * (cells + 1)};
    sums[r] = first_sum(bytes_of(header));
    if (!good) set_fault(error, exchange_fault::header, r);
    auto const* const mine = reinterpret_cast<std::uint64_t const*>(from.memory + from.bytes * r);
    auto const* const first = reinterpret_cast<std::uint64_t const*>(from.memory);
    for (std::uint64_t w = 0; w < from.envelope / 8; ++w)
      if (mine[w] != first[w]) set_fault(error, exchange_fault::decision, r);
  });
}

/// Sums up what arrived, and looks at every entry: indices that rise below n, values that are finite.
template <int = 0>
__global__ void check_messages(message_info const info, slots const from, update const* updates, std::uint64_t* sums,
                               std::uint64_t* error) {
  for (std::uint32_t r = 0; r < from.senders; ++r) {
    auto const mine = updates[r];
    std::uint64_t const bytes = message_header::bytes + 8 * std::uint64_t{mine.count} + 4 * info.dense;
    auto const* const words = reinterpret_cast<std::uint64_t const*>(from.message(r));
    std::uint64_t own = 0;
    for_each((bytes + 7) / 8, [&](std::uint64_t w) {
      if (w != checksum_word) own += wire::mixed(word_of(words, w, bytes), w + 1);
    });
    if (own != 0) add_word(&sums[r], own);
    for_each(mine.count, [&](std::uint64_t p) {
      if ((p > 0 && mine.indices[p - 1] >= mine.indices[p]) || mine.indices[p] >= info.n)
        set_fault(error, exchange_fault::order, r);
      if (!is_finite(mine.values[p])) set_fault(error, exchange_fault::value, r);
    });
    for_each(info.dense, [&](std::uint64_t p) {
      if (!is_finite(mine.values[mine.count + p])) set_fault(error, exchange_fault::value, r);
    });
  }
}

/// The senders' uncompressed elements, added in their order.
template <int = 0>
__global__ void sum_dense(update const* updates, std::uint32_t senders, std::uint64_t elements, float* sums) {
  for_each(elements, [&](std::uint64_t p) {
    float total = senders == 0 ? 0.0f : updates[0].values[updates[0].count + p];
    for (std::uint32_t u = 1; u < senders; ++u) total += updates[u].values[updates[u].count + p];
    sums[p] = total;
  });
}

/// After check_messages(): where anything was wrong no message has entries.
template <int = 0>
__global__ void compare_sums(slots const from, update* updates, std::uint64_t const* sums, std::uint64_t* error) {
  if (*error == 0)
    for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x)
      if (from.message(r)->checksum != sums[r]) set_fault(error, exchange_fault::checksum, r);
  __syncthreads();
  if (*error == 0) return;
  for (std::uint32_t r = threadIdx.x; r < from.senders; r += blockDim.x) updates[r].count = 0;
}

}  // namespace gradsieve::cuda_kernels
