// The index codec `fixed_width` on a device: the same bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/index/fixed_width.hpp>
#include <gradsieve/cuda/codec/index_codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/passes/scan.cuh>
#include <gradsieve/cuda/passes/sorted.cuh>

namespace gradsieve {

namespace cuda_kernels {

/// Chunks of 2^width elements, `chunks` a sender.
struct chunk_table {
  unsigned width;
  std::uint64_t chunks;
  std::uint32_t* counts;  // of selected elements; scanned: those before a chunk

  [[nodiscard]] __device__ std::uint64_t counts_bytes() const { return wire::packed_bytes(chunks, width + 1); }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count) const {
    return 1 + counts_bytes() + wire::packed_bytes(count, width);
  }
};

/// A thread eight chunks or eight entries.
template <int = 0>
__global__ void write_fixed_width(entry_list const own, chunk_table const table, std::byte* message,
                                  message_state* state) {
  std::uint64_t const count = state->count;
  std::byte* const part = message + state->indices;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    part[0] = static_cast<std::byte>(table.width);
    state->values = state->indices + table.bytes(count);
  }
  for_each((table.chunks + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    std::uint64_t last = first_not_below(own.indices, count, g * group_fields << table.width);
    pack_group(fields_of_group(g, table.chunks), table.width + 1, part + 1 + g * (table.width + 1), [&](unsigned f) {
      std::uint64_t const first = last;
      std::uint64_t const bound = (g * group_fields + f + 1) << table.width;
      last += first_not_below(own.indices + first, smaller(count - first, std::uint64_t{1} << table.width), bound);
      return static_cast<std::uint32_t>(last - first);
    });
  });
  for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
    pack_group(fields_of_group(g, count), table.width, part + 1 + table.counts_bytes() + g * table.width,
               [&](unsigned f) { return own.indices[g * group_fields + f] & wire::low_bits(table.width); });
  });
}

/// A thread a sender: whether the part is of this width, and all there.
template <int = 0>
__global__ void open_fixed_width(slots const from, message_state* states, chunk_table const table,
                                 std::uint64_t* error) {
  for_each(from.senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto& state = states[r];
    if (state.failed != 0) return;
    end_indices(state, table.bytes(state.count), r, error);
    if (state.failed != 0 || static_cast<unsigned>(from.message(r)[state.indices]) == table.width) return;
    set_fault(error, exchange_fault::contents, r);
    state.fail();
  });
}

/// A thread eight chunks of a sender.
template <int = 0>
__global__ void read_chunk_counts(slots const from, message_state const* states, std::uint64_t n,
                                  chunk_table const table, std::uint64_t* error) {
  std::uint64_t const groups = (table.chunks + group_fields - 1) / group_fields;
  for_each(from.senders * groups, [&](std::uint64_t i) {
    auto const r = static_cast<std::uint32_t>(i / groups);
    std::uint64_t const g = i % groups;
    auto* const to = table.counts + r * table.chunks + g * group_fields;
    unsigned const fields = fields_of_group(g, table.chunks);
    if (states[r].failed != 0) {
      for (unsigned f = 0; f < fields; ++f) to[f] = 0;
      return;
    }
    std::uint64_t const chunk = std::uint64_t{1} << table.width;
    bool good = true;
    auto const* const part = from.message(r) + states[r].indices + 1 + g * (table.width + 1);
    good = unpack_group(fields, table.width + 1, part,
                        [&](unsigned f, std::uint32_t count) {
                          good = good && count <= smaller(chunk, n - (g * group_fields + f) * chunk);
                          to[f] = count;
                        }) &&
           good;
    if (!good) set_fault(error, exchange_fault::contents, r);
  });
}

template <int = 0>
__global__ void end_fixed_width(message_state* states, std::uint32_t senders, chunk_table const table,
                                std::uint64_t* error) {
  for_each(senders, [&](std::uint64_t sender) {
    auto const r = static_cast<std::uint32_t>(sender);
    auto const* const mine = table.counts + r * table.chunks;
    if (states[r].failed != 0 || mine[table.chunks] - mine[0] == states[r].count) return;
    set_fault(error, exchange_fault::contents, r);
    states[r].fail();
  });
}

/// A thread eight entries of a sender, once the counts are scanned.
template <int = 0>
__global__ void read_offsets(slots const from, message_state const* states, chunk_table const table,
                             device_places const out, std::uint64_t* error) {
  for (std::uint32_t r = 0; r < from.senders; ++r) {
    auto const& state = states[r];
    auto const* const before = table.counts + r * table.chunks;
    std::byte const* const part = from.message(r) + state.indices + 1 + table.counts_bytes();
    for_each((std::uint64_t{state.count} + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      bool const clean = unpack_group(
          fields_of_group(g, state.count), table.width, part + g * table.width, [&](unsigned f, std::uint32_t offset) {
            std::uint64_t const p = g * group_fields + f;
            auto const begun =  // chunks whose first entry is this one or one before
                count_before(table.chunks, [&](std::uint64_t c) { return before[c] - before[0] <= p; });
            out.indices[r * out.most + p] = (static_cast<index_type>(begun - 1) << table.width) + offset;
          });
      if (!clean) set_fault(error, exchange_fault::contents, r);
    });
  }
}

}  // namespace cuda_kernels

/// A device takes chunks of its own length only. Memory: 4 bytes a chunk and sender.
template <>
class device_indices<fixed_width> {
 public:
  void reserve_writing(cuda_workspace const&, fixed_width const& how, std::uint64_t n, std::uint64_t most) {
    most_ = most;
    table_ = table_of(how, n);
  }
  void reserve_reading(cuda_workspace const& work, fixed_width const& how, std::uint64_t n, std::uint64_t most,
                       std::uint32_t senders) {
    most_ = most;
    table_ = table_of(how, n);
    counts_ = work.zeroed<std::uint32_t>(table_.chunks * senders + 1);
    scan_.reserve(work.where(), counts_.size());
    table_.counts = counts_.data();
  }

  void encode(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own,
              device_message const& message) const {
    work.over(std::max(most_, table_.chunks) / cuda_kernels::group_fields + 1, cuda_kernels::write_fixed_width<>, own,
              table_, message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              device_places const& out) const {
    auto const senders = in.from.senders;
    work.over(senders, cuda_kernels::open_fixed_width<>, in.from, in.states, table_, in.error);
    work.over(senders * (table_.chunks / cuda_kernels::group_fields + 1), cuda_kernels::read_chunk_counts<>, in.from,
              in.states, info.n, table_, in.error);
    scan_.run(work.where(), table_.counts, table_.counts);
    work.over(senders, cuda_kernels::end_fixed_width<>, in.states, senders, table_, in.error);
    work.over(most_ / cuda_kernels::group_fields + 1, cuda_kernels::read_offsets<>, in.from, in.states, table_, out,
              in.error);
  }

 private:
  [[nodiscard]] static cuda_kernels::chunk_table table_of(fixed_width const& how, std::uint64_t n) {
    unsigned const width = bit_width(how.chunk) - 1;
    return {width, (n + how.chunk - 1) >> width, nullptr};
  }

  std::uint64_t most_ = 0;
  cuda_buffer<std::uint32_t> counts_;
  device_scan<std::uint32_t> scan_;
  cuda_kernels::chunk_table table_{};
};

}  // namespace gradsieve
