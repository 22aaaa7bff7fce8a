// The value codec `ternary` on a device: the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/cuda/codec/layer_scales.cuh>
#include <gradsieve/cuda/codec/value_codec.cuh>
#include <gradsieve/cuda/saturate.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// The scales of the layers that have entries, and a sign bit for each entry.
struct ternary_part {
  static constexpr bool needs_indices = true;

  layer_table layers;
  layer_ranks ranks;

  [[nodiscard]] __device__ std::uint32_t const* before(std::uint32_t sender) const {
    return ranks.before + std::uint64_t{sender} * layers.count;
  }
  [[nodiscard]] __device__ std::uint32_t scales(std::uint32_t sender) const {
    return before(sender)[layers.count] - before(sender)[0];
  }
  [[nodiscard]] __device__ std::uint64_t bytes(std::uint64_t count, std::uint32_t sender) const {
    return 4 * std::uint64_t{scales(sender)} + wire::packed_bytes(count, 1);
  }

  __device__ void write(entry_list const& own, std::uint64_t count, std::byte* to) const {
    for_each(layers.count, [&](std::uint64_t l) {
      if (ranks.before[l + 1] == ranks.before[l]) return;
      auto const scale = magnitude_key(own.values[ranks.first[l]]);  // quantised: all of the layer have it
      put_bytes(to + 4 * std::uint64_t{ranks.before[l]}, scale, 4);
    });
    std::byte* const signs = to + 4 * std::uint64_t{scales(0)};
    for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      pack_group(fields_of_group(g, count), 1, signs + g, [&](unsigned f) {
        return gradsieve::bit_cast<std::uint32_t>(own.values[g * group_fields + f]) >> 31;
      });
    });
  }

  /// No bits stand behind the last.
  [[nodiscard]] __device__ bool well_formed(std::byte const* part, std::uint64_t count, std::uint32_t sender,
                                            thread_team const& team) const {
    if (team.thread != 0 || count % 8 == 0) return true;
    return static_cast<unsigned>(part[4 * std::uint64_t{scales(sender)} + count / 8]) >> (count % 8) == 0;
  }

  [[nodiscard]] __device__ float value(std::byte const* part, std::uint64_t, std::uint32_t sender, std::uint64_t p,
                                       index_type i, bool& good) const {
    // Where indices do not rise a layer may have no scale.
    auto const which = before(sender)[layers.of(i)] - before(sender)[0];
    std::uint32_t const known = scales(sender);
    auto const scale =
        which < known ? static_cast<std::uint32_t>(get_bytes(part + 4 * std::uint64_t{which}, 4)) : infinite_key;
    auto const byte = static_cast<unsigned>(part[4 * std::uint64_t{known} + p / 8]);
    good = scale < infinite_key;
    return gradsieve::bit_cast<float>(scale | (byte >> (p % 8) & 1u) << 31);
  }
};

}  // namespace cuda_kernels

/// Memory: for each layer 28 bytes to write, and 4 bytes and 8 a sender to read.
template <>
class device_values<ternary> {
 public:
  void reserve_writing(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t most) {
    most_ = most;
    layers_.reserve(work, layers);
    scales_.reserve(work, layers_.table(), most);
    ranks_.reserve(work, layers_.table(), 1);
  }
  void reserve_reading(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t,
                       std::uint32_t senders) {
    layers_.reserve(work, layers);
    ranks_.reserve(work, layers_.table(), senders);
  }

  template <int = 0>
  void quantise(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond) const {
    detail::saturate_entries(work, own, most_, limit, beyond);
    scales_.apply(work, layers_.table(), own);
  }
  template <int = 0>
  void prepare(cuda_workspace const& work, cuda_kernels::entry_list const& own) const {
    ranks_.find(work, layers_.table(), own);
  }
  template <int = 0>
  void prepare(cuda_workspace const& work, device_messages const& in, device_places const& places) const {
    ranks_.find(work, layers_.table(), in, places);
  }
  [[nodiscard]] cuda_kernels::ternary_part part() const noexcept { return {layers_.table(), ranks_.ranks()}; }

 private:
  std::uint64_t most_ = 0;
  device_layers layers_;
  layer_scales scales_;
  layer_finder ranks_;
};

}  // namespace gradsieve
