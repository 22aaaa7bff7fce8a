// Sums over all ranks on a device, in the format of the recipe's value codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/arithmetic.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/tables.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// A list of values in slots of equal capacity, one per rank: the list's shares in order, each of ceil(length / ranks)
/// values. A slot's last place is not 0 if the sender has failed.
template <class Format>
struct value_slots {
  Format* values;
  std::uint64_t capacity;  // of a slot
  std::uint32_t ranks;
  std::uint32_t extra;  // places after the values in a host's list

  [[nodiscard]] __device__ std::uint64_t share(std::uint64_t count) const {
    return (count + extra + ranks - 1) / ranks;
  }
  [[nodiscard]] __device__ Format& at(std::uint64_t slot, std::uint64_t place) const {
    return values[slot * capacity + place];
  }
  [[nodiscard]] __device__ bool is_last(std::uint64_t place) const { return place + 1 == capacity; }
};

/// Rounds this rank's values, in place and into the slots.
template <class Format>
__global__ void pack_shares(entry_list const own, float const* failed, value_slots<Format> const to) {
  wait_for_previous();
  std::uint64_t const count = *own.count;
  std::uint64_t const share = to.share(count);
  for_each(to.capacity * to.ranks, [&](std::uint64_t i) {
    std::uint64_t const place = i % to.capacity;
    std::uint64_t const p = i / to.capacity * share + place;
    Format made{};
    if (to.is_last(place)) {
      made = from_float_saturated<Format>(failed == nullptr ? 0.0f : *failed);
    } else if (place < share && p < count) {
      made = from_float_saturated<Format>(own.values[p]);
      own.values[p] = to_float(made);
    }
    to.values[i] = made;
  });
}

/// Sums this rank's share in rank order, rounded, into its slot of `to`. This rank keeps the rounding errors.
template <class Format>
__global__ void sum_share(value_slots<Format> const from, std::uint32_t me, entry_list const own, float* failed,
                          Format* to) {
  wait_for_previous();
  std::uint64_t const count = *own.count;
  std::uint64_t const share = from.share(count);
  for_each(from.capacity, [&](std::uint64_t place) {
    float total = to_float(from.at(0, place));
    for (std::uint32_t r = 1; r < from.ranks; ++r) total = add(total, to_float(from.at(r, place)));
    auto const rounded = from_float_saturated<Format>(total);
    to[place] = rounded;
    std::uint64_t const p = me * share + place;
    if (from.is_last(place)) {
      if (failed != nullptr) *failed = total;
    } else if (place < share && p < count) {
      own.values[p] = subtract(own.values[p], subtract(total, to_float(rounded)));
    }
  });
}

template <class Format>
__global__ void unpack_shares(value_slots<Format> const from, std::uint32_t const* length, float* sums) {
  wait_for_previous();
  std::uint64_t const count = *length;
  std::uint64_t const share = from.share(count);
  for_each(count, [&](std::uint64_t p) { sums[p] = to_float(from.at(p / share, p % share)); });
}

}  // namespace cuda_kernels

/// @cond internal
struct sum_traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

/// Sums of binary32 values: an all-reduce of the largest length.
template <>
class device_value_sum<fp32> {
 public:
  static void reserve(cuda_workspace const&, fp32 const&, std::uint64_t, bool, int) noexcept {}

  /// `sums`: `own`'s values, then zeros, and last, if reserve() got that flag, whether this rank has failed; becomes
  /// the sums over the ranks. `own` is what this rank gives up for them. Collective.
  template <class Comm>
  static sum_traffic run(Comm const& comm, cuda_workspace const& work, cuda_kernels::entry_list const&,
                         std::span<float> sums) {
    comm.all_reduce(work.where(), sums, reduction::sum);
    return {sums.size_bytes(), sums.size_bytes()};
  }
};

/// Sums of 16-bit values, as the host's value_sum: each rank sums a share of the list in binary32 and rank order,
/// rounds, and keeps the rounding errors. Cost: an all-to-all and an all-gather of the largest length, of 2 bytes a
/// value; three kernels. Memory: 6 bytes a value.
template <class Format>
class device_value_sum<half_values<Format>> {
 public:
  /// Allocates for lists of up to `most` values and, if `flagged`, a failure flag after them.
  void reserve(cuda_workspace const& work, half_values<Format> const&, std::uint64_t most, bool flagged, int world) {
    auto const ranks = static_cast<std::uint64_t>(world);
    extra_ = flagged ? 1 : 0;
    most_ = most;
    capacity_ = (most + extra_ + ranks - 1) / ranks + 1;
    outgoing_ = work.zeroed<Format>(capacity_ * ranks);
    incoming_ = work.zeroed<Format>(capacity_ * ranks);
    share_ = work.zeroed<Format>(capacity_);
    sizes_.assign(static_cast<std::size_t>(world), capacity_ * sizeof(Format));
  }

  template <class Comm>
  sum_traffic run(Comm const& comm, cuda_workspace const& work, cuda_kernels::entry_list const& own,
                  std::span<float> sums) const {
    auto const ranks = static_cast<std::uint32_t>(sizes_.size());
    auto* const failed = extra_ != 0 ? sums.data() + most_ : nullptr;
    cuda_kernels::value_slots<Format> const out{outgoing_.data(), capacity_, ranks, extra_};
    cuda_kernels::value_slots<Format> const in{incoming_.data(), capacity_, ranks, extra_};
    work.over_early<cuda_kernels::pack_shares<Format>>(outgoing_.size(), own, failed, out);
    comm.all_to_all(work.where(), std::as_bytes(outgoing_.span()), std::span{sizes_},
                    std::as_writable_bytes(incoming_.span()), std::span{sizes_});
    work.over<cuda_kernels::sum_share<Format>>(capacity_, in, static_cast<std::uint32_t>(comm.rank()), own, failed,
                                               share_.data());
    comm.all_gather(work.where(), std::as_bytes(share_.span()), std::as_writable_bytes(incoming_.span()));
    work.over<cuda_kernels::unpack_shares<Format>>(most_, in, own.count, sums.data());
    std::uint64_t const slot = capacity_ * sizeof(Format);
    return {slot * ranks, 2 * slot * (ranks - 1)};
  }

 private:
  std::uint64_t most_ = 0;
  std::uint64_t capacity_ = 0;
  std::uint32_t extra_ = 0;
  cuda_buffer<Format> outgoing_, incoming_, share_;
  std::vector<std::size_t> sizes_;
};

/// Value format in which a codec's values are summed; fp32 for a codec that exchange_rules refuse.
template <class Codec>
struct summed_values {
  using type = fp32;
  [[nodiscard]] static type of(Codec const&) noexcept { return {}; }
};
template <class Codec>
  requires(device::sums_with<Codec>)
struct summed_values<Codec> {
  using type = std::remove_cvref_t<decltype(Codec::values)>;
  [[nodiscard]] static type of(Codec const& how) noexcept { return how.values; }
};
template <class Codec>
using summed_values_t = typename summed_values<Codec>::type;
/// @endcond

}  // namespace gradsieve
