// The value codec `ternary` on a device, with one magnitude per layer; bytes as on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/codec/value/ternary.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/codec/value_codec.cuh>
#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/cuda/passes/scan.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/workspace.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

/// Offsets of a gradient's layers, at least one, in device memory; then n.
struct layer_table {
  std::uint32_t count;
  std::uint32_t const* offsets;

  /// Layer of an element; an index past the end counts as in the last layer.
  [[nodiscard]] __device__ std::uint32_t of(index_type i) const {
    auto const behind = first_not_below(offsets, count, std::uint64_t{i} + 1);
    return behind == 0 ? 0 : static_cast<std::uint32_t>(behind - 1);
  }
};

struct layer_ranks {      // of each list and layer
  std::uint32_t* first;   // first entry in the layer or after it
  std::uint32_t* before;  // after the scan: layers before it that have entries; at the end the total
};

/// Of each sender's entries; without states of one list of `count`.
template <int = 0>
__global__ void find_layers(message_state const* states, std::uint32_t senders, device_places const places,
                            std::uint32_t const* count, layer_table const layers, layer_ranks const to) {
  wait_for_previous();
  for_each(std::uint64_t{senders} * layers.count, [&](std::uint64_t i) {
    std::uint64_t const r = i / layers.count;
    std::uint64_t const l = i % layers.count;
    auto const* const indices = places.indices + r * places.most;
    std::uint32_t const entries = states != nullptr ? states[r].count : *count;
    auto const begin = first_not_below(indices, entries, layers.offsets[l]);
    to.first[i] = static_cast<std::uint32_t>(begin);
    to.before[i] = begin < entries && indices[begin] < layers.offsets[l + 1] ? 1 : 0;
  });
}

/// Per layer: the numbers that determine its mean magnitude.
struct layer_sums {
  key_type* largest;
  std::uint64_t* units;
};

/// Calls add(layer, value) once per warp, with combined values, if its entries share a layer; else once per entry.
template <class Value, class Combine, class Add>
__device__ void by_layer(entry_list const& own, layer_table const& layers, Value const& value, Combine const& combine,
                         Add const& add) {
  std::uint64_t const count = *own.count;
  for_each((count + 31) / 32 * 32, [&](std::uint64_t p) {
    bool const here = p < count;
    auto const l = layers.of(own.indices[here ? p : count - 1]);
    auto mine = here ? value(own.values[p], l) : value(0.0f, l);
    if (__all_sync(~0u, l == __shfl_sync(~0u, l, 0))) {
      mine = warp_reduce(mine, combine);
      if (p % 32 == 0) add(l, mine);
    } else if (here) {
      add(l, mine);
    }
  });
}

template <int = 0>
__global__ void find_largest(entry_list const own, layer_table const layers, layer_sums const sums) {
  wait_for_previous();
  by_layer(
      own, layers, [](float x, std::uint32_t) { return magnitude_key(x); },
      [](key_type a, key_type b) { return larger(a, b); },
      [&](std::uint32_t l, key_type key) { atomicMax(&sums.largest[l], key); });
}

[[nodiscard]] __device__ inline unsigned top_of(key_type largest) { return larger(largest >> 23, 1u); }

/// Sums integers, so that the order of the additions does not matter.
template <int = 0>
__global__ void sum_units(entry_list const own, layer_table const layers, layer_sums const sums) {
  wait_for_previous();
  by_layer(
      own, layers, [&](float x, std::uint32_t l) { return wire::in_units(magnitude_key(x), top_of(sums.largest[l])); },
      [](std::uint64_t a, std::uint64_t b) { return a + b; },
      [&](std::uint32_t l, std::uint64_t units) {
        atomicAdd(reinterpret_cast<unsigned long long*>(&sums.units[l]), units);
      });
}

/// Replaces every value by its layer's mean magnitude, with the value's sign.
template <int = 0>
__global__ void apply_scales(entry_list const own, layer_table const layers, layer_sums const sums,
                             std::uint32_t const* first) {
  wait_for_previous();
  for_each(*own.count, [&](std::uint64_t p) {
    auto const l = layers.of(own.indices[p]);
    key_type const largest = sums.largest[l];
    std::uint32_t const entries = (l + 1 < layers.count ? first[l + 1] : *own.count) - first[l];
    float const scale = largest == 0 ? 0.0f : wire::mean_of_units(sums.units[l], entries, top_of(largest));
    own.values[p] = with_sign_of(own.values[p], scale);
  });
}

/// Layout in a message: the scales of layers with entries, then a sign bit per entry.
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
      auto const scale = magnitude_key(own.values[ranks.first[l]]);  // quantised: equal in all of the layer
      store_value<4>(to + 4 * std::uint64_t{ranks.before[l]}, scale);
    });
    std::byte* const signs = to + 4 * std::uint64_t{scales(0)};
    write_fields(count, 1, signs,
                 [&](std::uint64_t p) { return gradsieve::bit_cast<std::uint32_t>(own.values[p]) >> 31; });
  }

  [[nodiscard]] __device__ bool well_formed(std::byte const* part, std::uint64_t count, std::uint32_t sender,
                                            thread_team const& team) const {
    return team.thread != 0 || padding_is_zero(part + 4 * std::uint64_t{scales(sender)}, count, 1);
  }

  [[nodiscard]] __device__ float value(std::byte const* part, std::uint64_t, std::uint32_t sender, std::uint64_t p,
                                       index_type i, bool& good) const {
    // If indices do not rise, a layer may lack a scale.
    auto const which = before(sender)[layers.of(i)] - before(sender)[0];
    std::uint32_t const known = scales(sender);
    auto const scale =
        which < known ? static_cast<std::uint32_t>(load_value<4>(part + 4 * std::uint64_t{which})) : infinite_key;
    auto const byte = static_cast<unsigned>(part[4 * std::uint64_t{known} + p / 8]);
    good = scale < infinite_key;
    return gradsieve::bit_cast<float>(scale | (byte >> (p % 8) & 1u) << 31);
  }
};

}  // namespace cuda_kernels

/// Cost to write: four passes over the entries. Memory per layer: 24 bytes to write; 4 bytes, and 8 per sender, to
/// read.
template <>
class device_values<ternary> {
 public:
  void reserve_writing(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t most) {
    most_ = most;
    reserve(work, layers, 1);
    largest_ = work.zeroed<key_type>(layers_.count);
    units_ = work.zeroed<std::uint64_t>(layers_.count);
  }
  void reserve_reading(cuda_workspace const& work, ternary const&, layout const& layers, std::uint64_t,
                       std::uint32_t senders) {
    reserve(work, layers, senders);
  }

  /// to_layer_scale(), and what write() needs.
  template <int = 0>
  void quantise(cuda_workspace const& work, message_info const&, cuda_kernels::entry_list const& own, float limit,
                std::uint64_t* beyond) const {
    cuda_kernels::layer_sums const sums{largest_.data(), units_.data()};
    detail::saturate_entries(work, own, most_, limit, beyond);
    find(work, nullptr, 1, {own.indices, 0}, own.count);
    work.zero(largest_);
    work.zero(units_);
    work.over<cuda_kernels::find_largest<>>(most_, own, layers_, sums);
    work.over_early<cuda_kernels::sum_units<>>(most_, own, layers_, sums);
    work.over_early<cuda_kernels::apply_scales<>>(most_, own, layers_, sums, first_.data());
  }
  static void prepare(cuda_workspace const&, cuda_kernels::entry_list const&) noexcept {}
  template <int = 0>
  void prepare(cuda_workspace const& work, device_messages const& in, device_places const& places) const {
    find(work, in.states, in.from.senders, places, nullptr);
  }
  [[nodiscard]] cuda_kernels::ternary_part part() const noexcept { return {layers_, {first_.data(), before_.data()}}; }

 private:
  void reserve(cuda_workspace const& work, layout const& layers, std::uint32_t lists) {
    std::vector<std::uint32_t> offsets;
    for (std::size_t l = 0; l < layers.count(); ++l) offsets.push_back(static_cast<std::uint32_t>(layers.offset(l)));
    if (offsets.empty()) offsets.push_back(0);
    layers_.count = static_cast<std::uint32_t>(offsets.size());
    offsets.push_back(static_cast<std::uint32_t>(layers.size()));
    offsets_ = work.uploaded<std::uint32_t>(offsets);
    layers_.offsets = offsets_.data();
    std::uint64_t const all = std::uint64_t{layers_.count} * lists + 1;
    first_ = work.zeroed<std::uint32_t>(all);
    before_ = work.zeroed<std::uint32_t>(all);
  }

  /// Finds the layers with entries.
  template <int = 0>
  void find(cuda_workspace const& work, cuda_kernels::message_state const* states, std::uint32_t senders,
            device_places const& places, std::uint32_t const* count) const {
    work.over_early<cuda_kernels::find_layers<>>(std::uint64_t{layers_.count} * senders, states, senders, places, count,
                                                 layers_, cuda_kernels::layer_ranks{first_.data(), before_.data()});
    work.launch_early<cuda_kernels::exclusive_sums<std::uint32_t>>(1, cuda_kernels::scan_threads, before_.data(),
                                                                   before_.data(), before_.size());
  }

  std::uint64_t most_ = 0;
  cuda_kernels::layer_table layers_{};
  cuda_buffer<std::uint32_t> offsets_, first_, before_;
  cuda_buffer<key_type> largest_;
  cuda_buffer<std::uint64_t> units_;
};

}  // namespace gradsieve
