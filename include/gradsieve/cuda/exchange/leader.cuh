// The exchange `leader` on a device: all ranks receive the list of the step's leader.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/exchange/value_sum.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/leader.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// A rank that sends names itself in two words, whose maxima over the ranks agree only if there is one sender.
inline constexpr std::uint64_t sender_words = 2;

/// Writes the vote, and after it the sender's words.
template <int = 0>
__global__ void vote_with_sender(ballot const own, entry_list const list, std::uint32_t world) {
  wait_for_previous();
  write_vote(own);
  bool const sends = *list.count > 0;
  own.words[vote_words] = sends ? 1 + own.rank : 0;
  own.words[vote_words + 1] = sends ? world - own.rank : 0;
}

/// Reads the vote, and checks that there is at most one sender. `to` has no entries until check_list().
template <int = 0>
__global__ void count_senders(ballot const own, std::uint32_t world, entry_list const to) {
  wait_for_previous();
  read_vote(own);
  *to.count = 0;
  auto const* const sender = own.words + vote_words;
  if (sender[0] != 0 && sender[0] + sender[1] != 1 + world) set_first_fault(own.error, exchange_fault::several, 0);
}

/// Counts the list's entries: numbers that rise up to n, then zeros. Anything else is an error.
template <int = 0>
__global__ void check_list(std::uint32_t const* list, std::uint64_t size, std::uint64_t n, std::uint32_t const* sender,
                           entry_list const to, std::uint64_t* error) {
  wait_for_previous();
  for_each(size, [&](std::uint64_t p) {
    std::uint32_t const named = list[p];
    if (named == 0) return;
    bool const rises = p == 0 || (list[p - 1] != 0 && list[p - 1] < named);
    if (!rises || named > n) {
      set_first_fault(error, exchange_fault::order, sender[0] - 1);
    } else if (p + 1 == size || list[p + 1] == 0) {
      *to.count = static_cast<std::uint32_t>(p + 1);
    }
  });
}

/// Writes the listed elements and this rank's accumulators there, clamped to +-limit, to `to` and `sums`; then zeros,
/// and last a failure flag. A failed rank writes zeros, which are never used.
template <class Stored>
__global__ void gather_list(std::uint32_t const* list, std::uint64_t size, Stored const* accumulator,
                            std::uint64_t const* error, entry_list const to, float* sums, float limit,
                            std::uint64_t* beyond) {
  wait_for_previous();
  bool const failed = *error != 0;
  std::uint32_t const count = failed ? 0 : *to.count;
  for_each(size + 1, [&](std::uint64_t p) {
    if (p >= count) {
      sums[p] = p == size && failed ? 1.0f : 0.0f;
      return;
    }
    std::uint32_t const i = list[p] - 1;
    to.indices[p] = i;
    to.values[p] = sums[p] = saturated(to_float(accumulator[i]), limit, beyond);
  });
}

/// Makes the list the only update of a step, empty if any rank has failed.
template <int = 0>
__global__ void describe_list(std::uint64_t size, float const* sums, entry_list const from, update* to,
                              std::uint64_t* error) {
  wait_for_previous();
  if (magnitude_key(sums[size]) != 0 && *error == 0) *error = static_cast<std::uint64_t>(exchange_fault::elsewhere);
  if (*error != 0) *from.count = 0;
  *to = {from.indices, sums, *from.count, from.cells};
}

}  // namespace cuda_kernels

/// The leader's rank is computed on the device, so the host cannot name the root of a broadcast. Instead an all-reduce
/// (maximum) of lists that are zero on all other ranks yields the leader's, who may change in a CUDA graph. Cost: an
/// all-reduce of the largest possible number of indices, and one of as many values, instead of a broadcast of k
/// indices. Indices that are out of order or out of range on one rank fail the step on all.
template <class Codec>
class device_exchange<leader, Codec> {
 public:
  void reserve(cuda_workspace const& work, Codec const& how, message_info const, int world, std::uint64_t most, bool) {
    most_ = most;
    own_ = work.make_list(most);
    own_list_ = own_.list();
    all_ = work.zeroed<std::uint32_t>(most + cuda_kernels::vote_words + cuda_kernels::sender_words);
    sums_ = work.zeroed<float>(most + 1);
    update_ = work.zeroed<cuda_kernels::update>(1);
    values_ = summed_values<Codec>::of(how);
    sum_.reserve(work, values_, most, true, world);
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return most_; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return &own_list_; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    cuda_workspace& work = round.work;
    auto const world = static_cast<std::uint32_t>(round.comm.size());
    cuda_kernels::ballot const own{round.decision, work.step().data(), round.error,
                                   static_cast<std::uint32_t>(round.comm.rank()), all_.data() + most_};
    auto* const sender = own.words + cuda_kernels::vote_words;
    work.over_early<cuda_kernels::list_entries<>>(most_, own_list_, most_, nullptr, cuda_kernels::signature{},
                                                  all_.data());
    work.launch_early<cuda_kernels::vote_with_sender<>>(1, 1, own, own_list_, world);
    round.comm.all_reduce(work.where(), all_.span(), reduction::max);
    work.launch<cuda_kernels::count_senders<>>(1, 1, own, world, round.sent);
    work.over_early<cuda_kernels::check_list<>>(most_, all_.data(), most_, work.size(), sender, round.sent,
                                                round.error);
    work.over_early<cuda_kernels::gather_list<Stored>>(
        most_ + 1, all_.data(), most_, round.accumulator, round.error, round.sent, sums_.data(),
        detail::largest_summed(values_, round.info, round.comm.size(), round.limit), round.saturated);
    auto const moved = sum_.run(round.comm, work, round.sent, sums_.span());
    work.launch<cuda_kernels::describe_list<>>(1, 1, most_, sums_.data(), round.sent, update_.data(), round.error);
    std::uint64_t const listed = 4 * all_.size();
    return {update_.data(), 1, listed + moved.sent, listed + moved.received, most_ + 1, nullptr, nullptr, true};
  }

 private:
  std::uint64_t most_ = 0;
  detail::list_memory own_;
  cuda_kernels::entry_list own_list_;
  cuda_buffer<std::uint32_t> all_;
  cuda_buffer<float> sums_;
  cuda_buffer<cuda_kernels::update> update_;
  summed_values_t<Codec> values_{};
  device_value_sum<summed_values_t<Codec>> sum_;
};

}  // namespace gradsieve
