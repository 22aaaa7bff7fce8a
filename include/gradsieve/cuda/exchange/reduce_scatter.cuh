// The exchange `reduce_scatter` on a device: each rank receives the update of its own shard.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/core/random.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/reduce_scatter.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Entries in slots of equal capacity, one per shard of `size` elements; indices count from the shard's first element.
struct shard_slots {
  std::uint32_t shards;
  std::uint32_t capacity;  // entries of a slot
  std::uint64_t size;      // elements of a shard; the last ones may have fewer
  std::uint32_t* begins;   // of each shard: its first entry in the selection; then the selection's end
  std::uint32_t* counts;   // of each shard: its entries that fit
  std::uint32_t* bases;    // of each shard: the sum of earlier `counts`; then the sum of all
  index_type* indices;
  float* values;

  [[nodiscard]] __device__ std::uint64_t first(std::uint32_t r) const { return std::uint64_t{r} * capacity; }
};

/// Entries taken from a shard with too many: cyclically consecutive, from a start that changes with every step.
struct taken_run {
  std::uint32_t count;
  std::uint32_t capacity;
  std::uint32_t start;

  [[nodiscard]] static __device__ taken_run of(std::uint32_t count, std::uint32_t capacity, std::uint32_t r,
                                               std::uint64_t step) {
    return {count, capacity, count <= capacity ? 0 : static_cast<std::uint32_t>(mix(step ^ mix(r)) % count)};
  }

  /// Place of an entry in its slot; `capacity` or more if it has none.
  [[nodiscard]] __device__ std::uint32_t place(std::uint32_t at) const {
    if (count <= capacity) return at;
    std::uint32_t const behind =
        count - start < capacity ? capacity - (count - start) : 0;  // those taken from the front
    if (at >= start) return at - start + behind;
    return at < behind ? at : capacity;
  }
};

/// By one warp: finds the shards' borders in the selection.
template <int = 0>
__global__ void find_shards(entry_list const own, shard_slots const to) {
  wait_for_previous();
  std::uint32_t const count = *own.count;
  std::uint32_t all = 0;
  for (std::uint32_t from = 0; from < to.shards; from += 32) {
    std::uint32_t const r = from + threadIdx.x;
    std::uint32_t begin = 0;
    std::uint32_t kept = 0;
    if (r < to.shards) {
      begin = static_cast<std::uint32_t>(first_not_below(own.indices, count, r * to.size));
      auto const end = static_cast<std::uint32_t>(first_not_below(own.indices, count, (r + 1) * to.size));
      kept = smaller(end - begin, to.capacity);
    }
    std::uint32_t const until = warp_prefix_sum(kept);
    if (r < to.shards) {
      to.begins[r] = begin;
      to.counts[r] = kept;
      to.bases[r] = all + until - kept;
    }
    all += __shfl_sync(~0u, until, 31);
  }
  if (threadIdx.x != 0) return;
  to.begins[to.shards] = count;
  to.bases[to.shards] = all;
}

/// Copies entries to their slots, clamped to +-limit.
template <int = 0>
__global__ void cut_entries(entry_list const own, shard_slots const to, std::uint64_t const* step, float limit,
                            std::uint64_t* beyond) {
  wait_for_previous();
  for_each(*own.count, [&](std::uint64_t p) {
    index_type const i = own.indices[p];
    auto const r = static_cast<std::uint32_t>(i / to.size);
    std::uint32_t const begin = to.begins[r];
    auto const taken = taken_run::of(to.begins[r + 1] - begin, to.capacity, r, *step);
    std::uint32_t const place = taken.place(static_cast<std::uint32_t>(p) - begin);
    if (place >= to.capacity) return;
    to.indices[to.first(r) + place] = static_cast<index_type>(i - r * to.size);
    to.values[to.first(r) + place] = saturated(own.values[p], limit, beyond);
  });
}

/// Writes the slots' entries, as receivers will decode them, to `own`: what this rank gives up.
template <int = 0>
__global__ void keep_cut(shard_slots const from, entry_list const own) {
  wait_for_previous();
  for_each_sender(from.shards, [&](std::uint32_t r, thread_team const& team) {
    team.for_each(from.counts[r], [&](std::uint64_t j) {
      own.indices[from.bases[r] + j] = static_cast<index_type>(from.indices[from.first(r) + j] + r * from.size);
      own.values[from.bases[r] + j] = from.values[from.first(r) + j];
    });
    if (r == 0 && team.thread == 0) *own.count = from.bases[from.shards];
  });
}

/// Writes the directory of `own` if it has changed. @pre keep_cut()
template <int = 0>
__global__ void list_cut(shard_slots const from, entry_list const own, std::uint32_t cells) {
  wait_for_previous();
  std::uint32_t const count = from.bases[from.shards];
  if (count == from.begins[from.shards]) return;
  fill_directory({own.indices, own.values, count, own.cells}, cells, whole_launch());
}

/// Converts indices in a shard, which of sender u begins u * size behind the first of `all`, to indices in the
/// gradient. Those that are not in `all` are a fault.
template <int = 0>
__global__ void shift_indices(update const* updates, std::uint32_t senders, range const all, std::uint64_t size,
                              std::uint64_t* error) {
  wait_for_previous();
  for_each_sender(senders, [&](std::uint32_t u, thread_team const& team) {
    std::uint64_t const first = all.offset + u * size;
    team.for_each(updates[u].count, [&](std::uint64_t p) {
      auto& index = const_cast<index_type*>(updates[u].indices)[p];
      if (first + index >= all.offset + all.size) set_fault(error, exchange_fault::order, u);
      index = static_cast<index_type>(first + index);
    });
  });
}

}  // namespace gradsieve::cuda_kernels

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
/// Slots have a fixed size, as no rank waits for counts: `slack` times a shard's share of the budget, k / P, and
/// `spare` entries more; for disjoint choices, where a rank may select from one shard alone, all that a rank selects.
/// Entries that do not fit stay in the residual, others in every step. If all fit, the update is the host's to the bit.
/// Cost: a rank sends and receives P - 1 slots, together about `slack` times k entries. A launch writes all messages,
/// where the codec can (`ternary` cannot). Memory: 2 P slots, 8 bytes for each entry of P slots, and what the codec
/// needs for P messages.
template <class Codec>
class device_exchange<reduce_scatter, Codec> {
 public:
  static constexpr std::uint64_t slack = 2;
  static constexpr std::uint64_t spare = 64;

  void reserve(cuda_workspace const& work, Codec const& how, message_info const info, int world, std::uint64_t most,
               bool disjoint) {
    auto const ranks = static_cast<std::uint64_t>(world);
    shards_ = detail::shard_infos{info, world};
    auto const infos = shards_.infos();
    most_ = most;
    capacity_ = std::min(most, infos[0].n);
    if (!disjoint) capacity_ = std::min(capacity_, slack * ((most + ranks - 1) / ranks) + spare);
    std::uint64_t bytes = 0;
    for (auto const& each : infos) bytes = std::max(bytes, how.max_bytes(each.n, std::min(capacity_, each.n), 0));
    slot_ = (envelope + bytes + 15) / 16 * 16;
    outgoing_ = work.zeroed<std::byte>(slot_ * ranks);
    incoming_ = work.zeroed<std::byte>(slot_ * ranks);
    sizes_.assign(static_cast<std::size_t>(world), slot_);
    states_ = work.zeroed<cuda_kernels::message_state>(ranks);
    counts_ = work.zeroed<std::uint32_t>(3 * ranks + 2);
    indices_ = work.zeroed<index_type>(capacity_ * ranks);
    values_ = work.zeroed<float>(capacity_ * ranks);
    reserve_writing(work, how, info);
    how_ = how;
    reserve_reading(work, std::min(info.rank, static_cast<std::uint32_t>(world) - 1));
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }
  [[nodiscard]] std::uint64_t slot_entries() const noexcept { return capacity_; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return nullptr; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    cuda_workspace& work = round.work;
    auto const me = static_cast<std::uint32_t>(round.comm.rank());
    auto const senders = static_cast<std::uint32_t>(sizes_.size());
    if (me != reader_) {
      work.where().refuse_capture("it allocates for another rank");
      work.where().synchronize();  // the step before reads what is freed now
      reserve_reading(work, me);
    }
    write(round);
    round.comm.all_to_all(work.where(), std::span<std::byte const>{outgoing_.span()}, std::span{sizes_},
                          incoming_.span(), std::span{sizes_});
    decoded_.read(work, about(me, round.info), incoming_.data(), slot_, envelope, nullptr, round.error);
    if (auto const first = shards_.borders()[me]; first > 0)
      work.over_early<cuda_kernels::shift_indices<>>(senders * decoded_.most(), decoded_.updates(), senders,
                                                     range{first, shards_.infos()[me].n}, std::uint64_t{0},
                                                     round.error);
    std::uint64_t const moved = slot_ * (senders - 1);
    return {decoded_.updates(), senders, moved, moved, decoded_.most(), nullptr, nullptr, true};
  }

 private:
  static constexpr std::uint64_t envelope = 8 * cuda_kernels::envelope_words;

  /// Allocates for the messages of all shards: by one writer, if it can, or by one each.
  void reserve_writing(cuda_workspace const& work, Codec const& how, message_info const& whole) {
    auto const infos = shards_.infos();
    rows_ = {};
    if constexpr (requires(device_codec<Codec> const& one) { one.writes_rows(); }) {
      auto const count = static_cast<std::uint32_t>(infos.size());
      writers_ = std::vector<device_codec<Codec>>(1);
      writers_[0].reserve_writing(work, how, *infos[0].layers, capacity_, count);
      if (writers_[0].writes_rows()) {
        rows_ = {count, capacity_, slot_, whole.n, whole.layout_hash};
        return;
      }
    }
    writers_ = std::vector<device_codec<Codec>>(infos.size());
    for (std::size_t r = 0; r < infos.size(); ++r)
      writers_[r].reserve_writing(work, how, *infos[r].layers, std::min(capacity_, infos[r].n));
  }

  /// Allocates for messages about one rank's shard.
  void reserve_reading(cuda_workspace const& work, std::uint32_t rank) {
    auto const& shard = shards_.infos()[rank];
    decoded_.reserve(work, how_, *shard.layers, std::min(capacity_, shard.n),
                     static_cast<std::uint32_t>(sizes_.size()));
    reader_ = rank;
  }

  [[nodiscard]] message_info about(std::size_t r, message_info const& whole) const noexcept {
    auto info = shards_.infos()[r];
    info.rank = whole.rank;
    info.step = whole.step;
    return info;
  }

  /// Writes this rank's messages, and reduces what it gives up to what they hold.
  template <class Comm, class Stored>
  void write(device_round<Comm, Stored, Codec> const& round) {
    cuda_workspace& work = round.work;
    auto const ranks = static_cast<std::uint32_t>(sizes_.size());
    auto const cells = work.tables().cell_count;
    cuda_kernels::shard_slots const slots{ranks,
                                          static_cast<std::uint32_t>(capacity_),
                                          shards_.infos()[0].n,
                                          counts_.data(),
                                          counts_.data() + ranks + 1,
                                          counts_.data() + 2 * ranks + 1,
                                          indices_.data(),
                                          values_.data()};
    float const limit = detail::largest_coded(how_, round.info, round.limit);
    work.launch_early<cuda_kernels::find_shards<>>(1, 32, round.sent, slots);
    work.over_early<cuda_kernels::cut_entries<>>(most_, round.sent, slots, work.step().data(), limit, round.saturated);
    for (std::uint32_t r = 0; r < writers_.size(); ++r) {
      cuda_kernels::entry_list const part{slots.indices + r * capacity_, slots.values + r * capacity_, slots.counts + r,
                                          nullptr};
      auto const info = about(r, round.info);
      if constexpr (requires { writers_[r].quantise(work, info, part, limit, round.saturated, rows_); })
        writers_[r].quantise(work, info, part, limit, round.saturated, rows_);
      else if constexpr (quantises<Codec>)
        writers_[r].quantise(work, info, part, limit, round.saturated);
      writers_[r].send(work, info, part, nullptr,
                       {outgoing_.data() + slot_ * r + envelope, slot_ - envelope, states_.data() + r, rows_},
                       {round.decision, work.step().data(), round.error});
    }
    work.over_early<cuda_kernels::keep_cut<>>(ranks * capacity_, slots, round.sent);
    if (round.sent.cells != nullptr)
      work.over_early<cuda_kernels::list_cut<>>(most_ + cells + 1, slots, round.sent, cells);
  }

  detail::shard_infos shards_;
  Codec how_{};
  std::uint64_t most_ = 0;
  std::uint64_t capacity_ = 0;  // entries of a slot
  std::uint64_t slot_ = 0;      // its bytes
  std::uint32_t reader_ = 0;
  std::vector<std::size_t> sizes_;
  std::vector<device_codec<Codec>> writers_;
  cuda_kernels::message_rows rows_{};  // of a writer
  cuda_buffer<std::byte> outgoing_, incoming_;
  cuda_buffer<cuda_kernels::message_state> states_;
  cuda_buffer<std::uint32_t> counts_;  // begins, counts and bases of the shards
  cuda_buffer<index_type> indices_;
  cuda_buffer<float> values_;
  device_decoded_messages<Codec> decoded_;
};
/// @endcond

}  // namespace gradsieve
