// Codecs on a device: members that a codec needs, `coo`, and the decoding of several ranks' messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradsieve/codec/coo.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Output of a device codec: memory for max_bytes() of a message, aligned to 8 bytes, and the message's state; of the
/// first message, if `rows` says that there are several.
struct device_message {
  std::byte* to;
  std::uint64_t capacity;
  cuda_kernels::message_state* state;
  cuda_kernels::message_rows rows{};
};

/// Input of a device codec: received messages, their states, and the error word.
struct device_messages {
  cuda_kernels::slots from;
  cuda_kernels::message_state* states;
  std::uint64_t* error;
};

/// Decoded indices, `most` consecutive places per sender.
struct device_places {
  index_type* indices;
  std::uint64_t most;
};

/// How a codec runs on a device; specialise it for your own. The bytes are those of the host's codec.
/// reserve_writing(work, how, layers, most) allocates for messages of up to `most` entries, reserve_reading(work, how,
/// layers, most, senders) for `senders` of them at once; the rest is in stream order.
/// quantise(work, info, own, limit, beyond), optional: clamps values to +-limit, counts those that were larger, and
/// replaces them by what a receiver will decode. info.rank is this rank's; the step is one less than *work.step().
/// send(work, info, own, passthrough, message, envelope) writes a message with its header and checksum, the envelope
/// before it, if it has a decision, and its state. @pre quantise() was called, the list has no more entries than this
/// was reserved for, and message.capacity is max_bytes() of those
/// writes_rows(), optional: true if a launch can write several messages, without passthrough values; `info` and `own`
/// are those of the first. reserve_writing() then has a further argument, how many, by default 1, and quantise() one as
/// message.rows, by default one message.
/// receive(work, info, capacity, in, updates, checks) sets indices, values and count of an update per sender, and all
/// states. It reads nothing past a state's capacity, whatever the bytes are, and reports faults in *checks.error: by
/// opened(), check_entry(), check_passthrough(), share_of_checksum(), end_check(). Optional: see receive_and_end().
template <class Codec>
class device_codec;

namespace cuda_kernels {

/// Writes a whole message in one launch. Threads add their words to the checksum, which the last block writes.
template <int = 0>
__global__ void send_coo(message_info const first_info, entry_list const first, float const* passthrough,
                         std::uint64_t capacity, envelope_source const envelope, message_rows const rows,
                         std::byte* first_message, message_state* states) {
  wait_for_previous();
  auto const info = rows.about(first_info);
  auto const own = rows.list(first);
  auto* const message = rows.message(first_message);
  auto* const state = states + blockIdx.y;
  constexpr std::uint64_t in_header = sizeof(header_words) / 8;
  std::uint64_t const count = *own.count;
  std::uint64_t const bytes = coo{}.max_bytes(0, count, info.passthrough);
  header_words const header{frame_of(coo::id), info.n, info.layout_hash, count, info.passthrough, 0};
  auto* const halves = reinterpret_cast<std::uint32_t*>(message);
  auto const payload = [&](std::uint64_t q) -> std::uint32_t {
    if (q < count) return own.indices[q];
    if (q < 2 * count) return gradsieve::bit_cast<std::uint32_t>(own.values[q - count]);
    return q < 2 * count + info.passthrough ? gradsieve::bit_cast<std::uint32_t>(passthrough[q - 2 * count]) : 0;
  };
  std::uint64_t sum = 0;
  for_each((bytes + 7) / 8 - in_header, [&](std::uint64_t w) {
    std::uint32_t const low = payload(2 * w);
    std::uint32_t const high = payload(2 * w + 1);
    auto* const to = halves + 2 * (in_header + w);
    if (8 * (in_header + w) + 8 <= bytes)
      *reinterpret_cast<uint2*>(to) = uint2{low, high};
    else
      *to = low;
    sum += wire::mixed(low | std::uint64_t{high} << 32, in_header + w + 1);
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) sum += share_of_header(header, bytes);
  add_words(&state->sum, sum);
  if (!is_last_block(&state->tickets) || threadIdx.x != 0) return;
  *message = header;
  message->checksum = as_it_is_now(state->sum);
  write_envelope(envelope, message);
  *state = {};
  state->capacity = capacity;
  state->bytes = bytes;
  state->count = static_cast<std::uint32_t>(count);
}

/// Opens and checks all messages. An update points into its message. With end.fills it ends the exchange.
template <int = 0>
__global__ void receive_coo(message_info const info, std::uint64_t capacity, slots const from, message_state* states,
                            update* updates, message_checks const to, exchange_end const end) {
  wait_for_previous();
  for_each_sender(from.senders, [&](std::uint32_t r, thread_team const& team) {
    auto fault = exchange_fault::none;
    auto state = opened(info, coo::id, capacity, from, r, fault);
    if (state.failed == 0) {
      state.bytes = coo{}.max_bytes(0, state.count, info.passthrough);
      if (state.bytes > state.capacity) {
        fault = exchange_fault::contents;
        state.fail();
      }
    }
    auto const* const indices = reinterpret_cast<index_type const*>(from.message(r) + message_header::bytes);
    auto const* const values = reinterpret_cast<float const*>(indices + state.count);
    state.passthrough = values + state.count;
    update const mine{indices, values, state.count, updates[r].cells};
    if (team.thread == 0) {
      states[r] = state;
      updates[r].indices = mine.indices;
      updates[r].values = mine.values;
      updates[r].count = mine.count;
      if (fault != exchange_fault::none) set_fault(to.error, fault, r);
    }
    if (state.failed != 0) return;
    add_words(&to.sums[r], share_of_checksum(from.message(r), state.bytes, team));
    check_passthrough(info, state, r, to, team);
    team.for_each(mine.count, [&](std::uint64_t p) {
      check_entry(info, mine.indices[p], p > 0 ? mine.indices[p - 1] : 0, p == 0, mine.values[p], r, to);
    });
    if (end.fills) fill_directory(mine, end.cells, team);
  });
  if (end_check(from, updates, to) && end.fills)
    end.end(as_it_is_now(*to.error), updates, from.senders, {threadIdx.x, blockDim.x});
}

}  // namespace cuda_kernels

template <>
class device_codec<coo> {
 public:
  [[nodiscard]] static constexpr bool writes_rows() noexcept { return true; }
  void reserve_writing(cuda_workspace const&, coo const&, layout const&, std::uint64_t most, std::uint32_t = 1) {
    most_ = most;
  }
  void reserve_reading(cuda_workspace const&, coo const&, layout const&, std::uint64_t, std::uint32_t) {}

  template <int = 0>
  void send(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
            float const* passthrough, device_message const& message,
            cuda_kernels::envelope_source const& envelope) const {
    bool const in_exchange = envelope.decision != nullptr;  // after a kernel of the step
    work.over_early_if<cuda_kernels::send_coo<>>(in_exchange, {most_ + info.passthrough / 2 + 1, message.rows.count},
                                                 info, own, passthrough, message.capacity, envelope, message.rows,
                                                 message.to, message.state);
  }

  template <int = 0>
  bool receive(cuda_workspace const& work, message_info const& info, std::uint64_t capacity, device_messages const& in,
               cuda_kernels::update* updates, cuda_kernels::message_checks const& checks,
               cuda_kernels::exchange_end const& end) const {
    work.over<cuda_kernels::receive_coo<>>(in.from.senders * (capacity + info.passthrough + end.cells + 1), info,
                                           capacity, in.from, in.states, updates, checks, end);
    return end.fills;
  }

 private:
  std::uint64_t most_ = 0;
};

/// receive(); of a codec whose receive() takes `end`, too, whether it has done end_exchange()'s work, with end.fills.
template <class Codec>
bool receive_and_end(device_codec<Codec> const& how, cuda_workspace const& work, message_info const& info,
                     std::uint64_t capacity, device_messages const& in, cuda_kernels::update* updates,
                     cuda_kernels::message_checks const& checks, cuda_kernels::exchange_end const& end) {
  if constexpr (requires { how.receive(work, info, capacity, in, updates, checks, end); }) {
    return how.receive(work, info, capacity, in, updates, checks, end);
  } else {
    how.receive(work, info, capacity, in, updates, checks);
    return false;
  }
}

/// Reads the messages of all ranks, in stream order.
template <class Codec>
class device_decoded_messages {
 public:
  /// Allocates, for messages of up to `most` entries.
  void reserve(cuda_workspace const& work, Codec const& how, layout const& layers, std::uint64_t most,
               std::uint32_t senders) {
    most_ = most;
    senders_ = senders;
    codec_.reserve_reading(work, how, layers, most, senders);
    directories_ = work.zeroed<std::uint32_t>(std::uint64_t{senders} * (work.tables().cell_count + 1));
    sums_ = work.zeroed<std::uint64_t>(senders);
    tickets_ = work.zeroed<std::uint32_t>(1);
    states_ = work.zeroed<cuda_kernels::message_state>(senders);
    std::vector<cuda_kernels::update> updates(senders);
    for (std::uint64_t r = 0; r < senders; ++r)
      updates[r].cells = directories_.data() + r * (work.tables().cell_count + std::uint64_t{1});
    updates_ = work.uploaded<cuda_kernels::update>(updates);
  }

  [[nodiscard]] std::uint32_t senders() const noexcept { return senders_; }

  /// Checks what arrived: a slot of `bytes` per sender, whose message follows `envelope` bytes that must agree.
  /// `sizes`: of the messages, if given. After any fault no update has entries; *error names it. See receive_and_end().
  bool read(cuda_workspace const& work, message_info const& info, std::byte const* memory, std::uint64_t bytes,
            std::uint64_t envelope, std::uint64_t const* sizes, std::uint64_t* error,
            cuda_kernels::exchange_end const& end = {}) const {
    device_messages const in{{memory, bytes, envelope, senders_, sizes}, states_.data(), error};
    return receive_and_end(codec_, work, info, most_, in, updates_.data(), {sums_.data(), tickets_.data(), error}, end);
  }

  [[nodiscard]] cuda_kernels::update* updates() const noexcept { return updates_.data(); }  ///< @pre read()
  [[nodiscard]] std::uint64_t most() const noexcept { return most_; }                       ///< entries of an update

  /// The updates, with their directories, which this writes. @pre read()
  [[nodiscard]] cuda_kernels::update* updates_with_directories(cuda_workspace const& work) const {
    cuda_kernels::exchange_end const end{{}, work.tables().cell_count, true};
    work.over<cuda_kernels::end_exchange<>>(senders_ * (most_ + end.cells + 1), nullptr, updates_.data(), senders_,
                                            nullptr, end);
    return updates_.data();
  }

  /// Sum of the messages' passthrough values / divisor. @pre read() has found no fault
  void mean_of_passthrough(cuda_workspace const& work, std::uint64_t elements, float divisor, float* means) const {
    work.over<cuda_kernels::mean_of_passthrough<>>(elements, states_.data(), senders_, elements, divisor, means);
  }

 private:
  std::uint64_t most_ = 0;
  std::uint32_t senders_ = 0;
  device_codec<Codec> codec_;
  cuda_buffer<std::uint32_t> directories_;
  cuda_buffer<std::uint64_t> sums_;
  cuda_buffer<std::uint32_t> tickets_;
  cuda_buffer<cuda_kernels::message_state> states_;
  cuda_buffer<cuda_kernels::update> updates_;
};

}  // namespace gradsieve
