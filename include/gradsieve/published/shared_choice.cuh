// The exchange `shared_choice` on a device: a sum of values without indices.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/exchange/device_exchange.cuh>
#include <gradsieve/cuda/exchange/value_sum.cuh>
#include <gradsieve/cuda/passes/updates.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/published/shared_choice.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// This rank's values, clamped to +-limit, twice, and zeros behind them, or nothing but zeros where a rank has failed.
template <int = 0>
__global__ void copy_values(std::uint64_t size, std::uint64_t const* error, entry_list const own, float* sums,
                            float limit, std::uint64_t* beyond) {
  std::uint32_t const count = *error != 0 ? 0 : *own.count;
  for_each(size, [&](std::uint64_t p) {
    if (p < count)
      own.values[p] = sums[p] = saturated(own.values[p], limit, beyond);
    else
      sums[p] = 0.0f;
  });
}

/// The sums as the one update of a step, or an empty one where a rank has failed.
template <int = 0>
__global__ void describe_sums(float const* sums, std::uint64_t const* error, entry_list const own, update* to) {
  if (*error != 0) *own.count = 0;
  *to = {own.indices, sums, *own.count, own.cells};
}

}  // namespace cuda_kernels

/// Cost: instead of the host's all-gather of words, an all-reduce of them; the values' all-reduce has the largest size
/// that there may be.
template <class Codec>
class device_exchange<shared_choice, Codec> {
 public:
  void reserve(cuda_workspace const& work, Codec const& how, message_info const, int world, std::uint64_t most, bool) {
    most_ = most;
    words_ = work.zeroed<std::uint32_t>(cuda_kernels::vote_words);
    sums_ = work.zeroed<float>(most);
    update_ = work.zeroed<cuda_kernels::update>(1);
    values_ = summed_values<Codec>::of(how);
    sum_.reserve(work, values_, most, false, world);
  }

  [[nodiscard]] std::uint64_t most_sent() const noexcept { return 0; }
  [[nodiscard]] cuda_kernels::entry_list const* list() const noexcept { return nullptr; }

  template <class Comm, class Stored>
  device_updates run(device_round<Comm, Stored, Codec> const& round) {
    cuda_workspace& work = round.work;
    cuda_kernels::ballot const own{round.decision, work.step().data(), round.error,
                                   static_cast<std::uint32_t>(round.comm.rank()), words_.data()};
    work.launch_early<cuda_kernels::vote<>>(1, 1, own);
    round.comm.all_reduce(work.where(), words_.span(), reduction::max);
    work.launch<cuda_kernels::count_votes<>>(1, 1, own);
    work.over<cuda_kernels::copy_values<>>(most_, most_, round.error, round.sent, sums_.data(),
                                           detail::largest_summed(values_, round.info, round.comm.size(), round.limit),
                                           round.saturated);
    auto const moved = sum_.run(round.comm, work, round.sent, sums_.span());
    work.launch<cuda_kernels::describe_sums<>>(1, 1, sums_.data(), round.error, round.sent, update_.data());
    std::uint64_t const votes = 4 * words_.size();
    return {update_.data(), 1, votes + moved.sent, votes + moved.received, most_ + 1, nullptr, nullptr, true};
  }

 private:
  std::uint64_t most_ = 0;
  cuda_buffer<std::uint32_t> words_;
  cuda_buffer<float> sums_;
  cuda_buffer<cuda_kernels::update> update_;
  summed_values_t<Codec> values_{};
  device_value_sum<summed_values_t<Codec>> sum_;
};

}  // namespace gradsieve
