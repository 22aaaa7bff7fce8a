// The exchange `coded_all_reduce` on a device: the shards' largest sums come back as messages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/limit.hpp>
#include <gradsieve/core/search.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/exchange/reduce_scatter.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/group.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/reduce_scatter.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

__device__ inline void mark_element(std::uint32_t* bits, index_type i) { atomicOr(&bits[i / 32], 1u << (i % 32)); }

/// Marks the elements that have an entry.
template <int = 0>
__global__ void mark_updates(update const* updates, std::uint32_t senders, std::uint32_t* bits) {
  for_each_sender(senders, [&](std::uint32_t u, thread_team const& team) {
    team.for_each(updates[u].count, [&](std::uint64_t p) { mark_element(bits, updates[u].indices[p]); });
  });
}

/// A shard's sums, and those that its rank returns.
struct shard_sums {
  static constexpr std::uint32_t stays = ~0u;

  entry_list all;
  entry_list returned;    // with indices in the shard
  range shard;            // its elements
  std::uint32_t* places;  // of each of `all`: its place in `returned`, or `stays`
  double share;           // of the ranks' entries, by `ranks`
  std::uint32_t ranks;    // 0: of the sums, as the ranks select k together
  std::uint32_t most;     // that are returned

  [[nodiscard]] __device__ std::uint32_t wanted(update const* updates, std::uint32_t senders) const {
    std::uint64_t entries = 0;
    for (std::uint32_t u = 0; u < senders; ++u) entries += updates[u].count;
    double const part = share * static_cast<double>(ranks == 0 ? *all.count : entries);
    return static_cast<std::uint32_t>(smaller(ceil(part / larger(ranks, 1u)), static_cast<double>(most)));
  }
  [[nodiscard]] __device__ key_type key(std::uint32_t p) const {
    return smaller(magnitude_key(all.values[p]), infinite_key - 1);
  }
};

/// Chooses the largest sums, of equal ones the first, and no zeros unless all are returned. A block has consecutive
/// ones.
template <int = 0>
__global__ void __launch_bounds__(group_threads, group_blocks)
    return_largest(update const* updates, std::uint32_t senders, shard_sums const sums, launch_state* state,
                   team_state* blocks) {
  wait_for_previous();
  __shared__ block_shared_state here;
  std::uint32_t const count = *sums.all.count;
  auto const place = join_group(*state, [&] { return smaller(gridDim.x, count / searched_by_block + 1); });
  if (!place.is_late()) {
    thread_group<true> group{*state, *blocks, place, here};
    std::uint32_t const wanted = sums.wanted(updates, senders);
    std::uint32_t const part = (count + place.blocks - 1) / place.blocks;
    std::uint32_t const begin = smaller(count, part * place.block), end = smaller(count, begin + part);
    detail::digit_search search{1, infinite_key - 1, wanted};
    while (count > wanted && !search.done())
      group.narrow(search, [&](auto const& add) {
        for (std::uint32_t at = begin; at < end; at += group_threads)
          add(at + threadIdx.x < end ? search.bin(sums.key(at + threadIdx.x)) : detail::digit_search::bins);
      });
    threshold const least = search.result();
    auto const kept = [&](std::uint32_t p) -> kept_count {
      if (p >= end) return {0, 0};
      if (count <= wanted) return {1, 0};
      key_type const key = sums.key(p);
      return {key > least.key ? 1u : 0u, key == least.key ? 1u : 0u};
    };
    kept_count own{0, 0};
    for (std::uint32_t p = begin + threadIdx.x; p < end; p += group_threads) own = own + kept(p);
    std::uint64_t before = 0;
    auto const total = kept_count::unpacked(group.sum_of_blocks(group.block_sum(own.packed()), before));
    for (std::uint32_t at = begin; at < end; at += group_threads) {
      std::uint32_t const p = at + threadIdx.x;
      auto const mine = kept(p);
      std::uint64_t earlier = 0;
      std::uint64_t const round = group.block_sum(mine.packed(), earlier);
      auto const prior = kept_count::unpacked(before + earlier);
      bool const returns = mine.above != 0 || (mine.equal != 0 && prior.equal < least.ties);
      std::uint32_t const to = prior.above + smaller(prior.equal, least.ties);
      if (p < end) sums.places[p] = returns ? to : shard_sums::stays;
      if (returns) {
        sums.returned.indices[to] = static_cast<index_type>(sums.all.indices[p] - sums.shard.offset);
        sums.returned.values[to] = sums.all.values[p];
      }
      before += round;
    }
    if (group.is_first()) *sums.returned.count = total.above + smaller(total.equal, least.ties);
    group.release();
  }
  if (leave_group(*state) && threadIdx.x == 0) blocks->arrived = 0;
}

/// What this rank gives up, dense, and marks it: its own entries as it has sent them, less what of its shard's sums is
/// not returned. What leaves an accumulator that is not finite is clamped and counted. *fault becomes *error.
template <class Stored>
__global__ void give_up(entry_list const own, shard_sums const sums, Stored const* accumulator, float* given,
                        std::uint32_t* bits, std::uint64_t* beyond, std::uint64_t const* error, std::uint64_t* fault) {
  wait_for_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) *fault = *error;
  std::uint32_t const owned = *own.count;
  for_each(owned, [&](std::uint64_t p) {
    index_type const i = own.indices[p];
    if (i - sums.shard.offset < sums.shard.size) return;  // is among the sums
    given[i] = own.values[p];
    mark_element(bits, i);
  });
  for_each(*sums.all.count, [&](std::uint64_t p) {
    index_type const i = sums.all.indices[p];
    std::uint32_t const place = sums.places[p];
    float kept = sums.all.values[p];
    if (place != shard_sums::stays) kept = subtract(kept, sums.returned.values[place]);
    auto const at = first_not_below(own.indices, owned, i);
    bool const is_own = at < owned && own.indices[at] == i;
    if (!is_own && magnitude_key(kept) == 0) return;
    float value = subtract(is_own ? own.values[at] : 0.0f, kept);
    float const now = to_float(accumulator[i]);
    if (float const rest = subtract(now, value); magnitude_key(kept) != 0 && !is_finite(rest)) {
      value = subtract(now, with_sign_of(rest, largest_value<float> / 2));
      atomicAdd(reinterpret_cast<unsigned long long*>(beyond), 1ull);
    }
    given[i] = value;
    mark_element(bits, i);
  });
}

/// Ends the second half: its fault counts if the first had none.
template <int = 0>
__global__ void keep_first_fault(std::uint64_t* error, std::uint64_t const* fault) {
  wait_for_previous();
  if (*error == 0) *error = *fault;
}

}  // namespace gradsieve::cuda_kernels

namespace gradsieve::inline GRADSIEVE_ABI {

/// @cond internal
/// Slots of both halves have a fixed size, see `reduce_scatter`; that of a shard's sums has room for its part of
/// `returned` k, for disjoint choices for `returned` k, and `spare` entries more. Sums that do not fit stay in the
/// residual of the shard's rank. If all fits, the update is the host's to the bit, but where all elements of a segment
/// are sent: here those that the selector selects, and no zeros.
/// Cost: both exchanges', and about ten kernels more, which write a shard's elements and twice a bit for all. Memory:
/// both exchanges', 4 bytes an element, 20 for each of a shard's entries.
template <class Codec>
class device_exchange<coded_all_reduce, Codec> {
 public:
  device_exchange() = default;
  explicit device_exchange(coded_all_reduce const& how) : returned_{how.returned} {}

  void reserve(cuda_workspace const& work, Codec const& how, message_info const info, int world, std::uint64_t most,
               bool disjoint) {
    scatter_.reserve(work, how, info, world, most, disjoint);
    auto const shard = shard_of(info.n, world, 0).size;
    sums_ = std::min(shard, scatter_.slot_entries() * static_cast<std::uint64_t>(world));
    auto const share = std::ceil(returned_ * static_cast<double>(most) / (disjoint ? 1 : world)) + scatter::spare;
    returns_ = static_cast<std::uint64_t>(std::min(share, static_cast<double>(sums_)));
    about_.reserve(info, world);
    auto const about = about_.of(info);
    gather_.reserve(work, how, about, world, returns_, disjoint);
    writer_.reserve_writing(work, how, *about.layers, returns_);
    how_ = how;
    together_ = disjoint;
    most_sent_ = most + sums_;
    own_ = work.make_list(most);
    own_list_ = own_.list();
    all_ = work.make_list(sums_);
    returned_list_ = detail::list_memory::make(work, returns_, 0);
    places_ = work.zeroed<std::uint32_t>(sums_);
    dense_ = work.zeroed<float>(info.n);
    copies_ = work.zeroed<float>(most_sent_);
    unread_ = work.zeroed<std::uint64_t>(1);
    fault_ = work.zeroed<std::uint64_t>(1);
    state_ = work.zeroed<cuda_kernels::launch_state>(1);
    blocks_ = work.zeroed<cuda_kernels::team_state>(1);
    marked_.reserve(work);
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return most_sent_; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return &own_list_; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    using namespace cuda_kernels;
    cuda_workspace& work = round.work;
    auto const ranks = static_cast<std::uint32_t>(round.comm.size());
    auto first = round;
    first.sent = own_list_;
    first.sent.cells = nullptr;  // give_up() searches the list
    auto const scattered = scatter_.run(first);
    auto const entries = scattered.senders * scattered.unlisted;

    auto* bits = marked_.none(work);
    work.over<mark_updates<>>(entries, scattered.updates, scattered.senders, bits);
    exchange_end const at{{}, work.tables().cell_count, true};
    work.over_early<end_exchange<>>(entries + at.cells + 1, nullptr, scattered.updates, scattered.senders, nullptr, at);
    auto const shard = shard_of(work.size(), round.comm.size(), round.comm.rank());
    write_update(work, scattered, 1.0f, dense_.span(), shard, unread_.data(), unread_.data());
    shard_sums const sums{all_.list(),
                          returned_list_.list(),
                          shard,
                          places_.data(),
                          returned_,
                          together_ ? 0u : ranks,
                          static_cast<std::uint32_t>(returns_)};
    static_cast<void>(
        marked_.list(work, dense_.data(), sums_, sums.all, copies_.data(), largest_value<float>, unread_.data()));
    auto const of_use = static_cast<unsigned>(std::min<std::uint64_t>(sums_ / searched_by_block + 1, most_blocks));
    work.launch_group<return_largest<>>(true, of_use, group_threads, scattered.updates, scattered.senders, sums,
                                        state_.data(), blocks_.data());
    auto const about = about_.of(round.info);
    float const limit = detail::largest_coded(how_, about, largest_value<float>);
    if constexpr (quantises<Codec>)
      writer_.quantise(work, about, sums.returned, limit, round.saturated);
    else
      detail::saturate_entries(work, sums.returned, returns_, limit, round.saturated);

    bits = marked_.none(work);
    work.over<give_up<Stored>>(most_sent_ + 1, own_list_, sums, round.accumulator, dense_.data(), bits, round.saturated,
                               round.error, fault_.data());
    static_cast<void>(marked_.list(work, dense_.data(), most_sent_, round.sent, copies_.data(), largest_value<float>,
                                   unread_.data()));
    auto second = round;
    second.info = about;
    second.sent = sums.returned;
    second.error = fault_.data();
    second.end = {};
    auto result = gather_.run(second, writer_);
    work.over_early<shift_indices<>>(result.senders * result.unlisted, result.updates, result.senders,
                                     range{0, work.size()}, about.n, fault_.data());
    work.launch_early<keep_first_fault<>>(1, 1, round.error, fault_.data());
    result.bytes_sent += scattered.bytes_sent;
    result.bytes_received += scattered.bytes_received;
    result.message = nullptr;
    result.sent = nullptr;
    return result;
  }

 private:
  using scatter = device_exchange<reduce_scatter, Codec>;

  double returned_ = coded_all_reduce{}.returned;
  Codec how_{};
  bool together_ = false;        // whether the ranks select k together
  std::uint64_t sums_ = 0;       // of a shard at most
  std::uint64_t returns_ = 0;    // of these at most
  std::uint64_t most_sent_ = 0;  // entries that this rank gives up
  scatter scatter_;
  device_exchange<gather, Codec> gather_;
  device_codec<Codec> writer_;  // of the sums
  detail::sums_info about_;
  detail::list_memory own_, all_, returned_list_;
  cuda_kernels::entry_list own_list_;
  cuda_buffer<std::uint32_t> places_;
  cuda_buffer<float> dense_, copies_;
  cuda_buffer<std::uint64_t> unread_, fault_;  // counts that nobody needs; of the second half
  cuda_buffer<cuda_kernels::launch_state> state_;
  cuda_buffer<cuda_kernels::team_state> blocks_;
  marked_elements marked_;
};
/// @endcond

}  // namespace gradsieve
