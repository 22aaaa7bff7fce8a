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

__device__ inline void find_layer(index_type const* indices, std::uint32_t count, layer_table const& layers,
                                  std::uint64_t l, std::uint32_t* first, std::uint32_t* flag) {
  auto const begin = first_not_below(indices, count, layers.offsets[l]);
  *first = static_cast<std::uint32_t>(begin);
  *flag = begin < count && indices[begin] < layers.offsets[l + 1] ? 1 : 0;
}

template <int = 0>
__global__ void find_own_layers(entry_list const own, layer_table const layers, layer_ranks const to) {
  wait_for_previous();
  for_each(layers.count,
           [&](std::uint64_t l) { find_layer(own.indices, *own.count, layers, l, &to.first[l], &to.before[l]); });
}

template <int = 0>
__global__ void find_layers(message_state const* states, std::uint32_t senders, device_places const places,
                            layer_table const layers, layer_ranks const to) {
  wait_for_previous();
  for_each(std::uint64_t{senders} * layers.count, [&](std::uint64_t i) {
    std::uint64_t const r = i / layers.count;
    find_layer(places.indices + r * places.most, states[r].count, layers, i % layers.count, &to.first[i],
               &to.before[i]);
  });
}

/// Per layer: the numbers that determine its mean magnitude.
struct layer_sums {
  key_type* largest;
  std::uint64_t* units;
  std::uint32_t* entries;
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

template <int = 0>
__global__ void count_entries(entry_list const own, layer_table const layers, layer_sums const sums) {
  wait_for_previous();
  for_each(layers.count, [&](std::uint64_t l) {
    sums.entries[l] = static_cast<std::uint32_t>(first_not_below(own.indices, *own.count, layers.offsets[l + 1]) -
                                                 first_not_below(own.indices, *own.count, layers.offsets[l]));
  });
}

/// Replaces every value by its layer's mean magnitude, with the value's sign.
template <int = 0>
__global__ void apply_scales(entry_list const own, layer_table const layers, layer_sums const sums) {
  wait_for_previous();
  for_each(*own.count, [&](std::uint64_t p) {
    auto const l = layers.of(own.indices[p]);
    key_type const largest = sums.largest[l];
    float const scale = largest == 0 ? 0.0f : wire::mean_of_units(sums.units[l], sums.entries[l], top_of(largest));
    own.values[p] = with_sign_of(own.values[p], scale);
  });
}

}  // namespace cuda_kernels

/// Layer offsets in device memory. reserve() allocates 4 bytes per layer.
class device_layers {
 public:
  void reserve(cuda_workspace const& work, layout const& layers) {
    std::vector<std::uint32_t> offsets;
    for (std::size_t l = 0; l < layers.count(); ++l) offsets.push_back(static_cast<std::uint32_t>(layers.offset(l)));
    if (offsets.empty()) offsets.push_back(0);
    table_.count = static_cast<std::uint32_t>(offsets.size());
    offsets.push_back(static_cast<std::uint32_t>(layers.size()));
    offsets_ = work.uploaded<std::uint32_t>(offsets);
    table_.offsets = offsets_.data();
  }

  [[nodiscard]] cuda_kernels::layer_table const& table() const noexcept { return table_; }

 private:
  cuda_kernels::layer_table table_{};
  cuda_buffer<std::uint32_t> offsets_;
};

/// to_layer_scale() in place and stream order. Cost: three passes over the entries. Memory: 16 bytes a layer.
class layer_scales {
 public:
  void reserve(cuda_workspace const& work, cuda_kernels::layer_table const& layers, std::uint64_t most) {
    most_ = most;
    largest_ = work.zeroed<key_type>(layers.count);
    units_ = work.zeroed<std::uint64_t>(layers.count);
    entries_ = work.zeroed<std::uint32_t>(layers.count);
  }

  template <int = 0>
  void apply(cuda_workspace const& work, cuda_kernels::layer_table const& layers,
             cuda_kernels::entry_list const& own) const {
    cuda_kernels::layer_sums const sums{largest_.data(), units_.data(), entries_.data()};
    work.zero(largest_);
    work.zero(units_);
    work.over<cuda_kernels::find_largest<>>(most_, own, layers, sums);
    work.over_early<cuda_kernels::sum_units<>>(most_, own, layers, sums);
    work.over_early<cuda_kernels::count_entries<>>(layers.count, own, layers, sums);
    work.over_early<cuda_kernels::apply_scales<>>(most_, own, layers, sums);
  }

 private:
  std::uint64_t most_ = 0;
  cuda_buffer<key_type> largest_;
  cuda_buffer<std::uint64_t> units_;
  cuda_buffer<std::uint32_t> entries_;
};

/// Finds the layers with entries, of one list or of each sender's. reserve() allocates 8 bytes per layer and list.
class layer_finder {
 public:
  void reserve(cuda_workspace const& work, cuda_kernels::layer_table const& layers, std::uint32_t lists) {
    std::uint64_t const all = std::uint64_t{layers.count} * lists + 1;
    first_ = work.zeroed<std::uint32_t>(all);
    before_ = work.zeroed<std::uint32_t>(all);
  }

  template <int = 0>
  void find(cuda_workspace const& work, cuda_kernels::layer_table const& layers,
            cuda_kernels::entry_list const& own) const {
    work.over<cuda_kernels::find_own_layers<>>(layers.count, own, layers, ranks());
    sum_up(work);
  }
  template <int = 0>
  void find(cuda_workspace const& work, cuda_kernels::layer_table const& layers, device_messages const& in,
            device_places const& places) const {
    auto const senders = in.from.senders;
    work.over_early<cuda_kernels::find_layers<>>(std::uint64_t{layers.count} * senders, in.states, senders, places,
                                                 layers, ranks());
    sum_up(work);
  }

  [[nodiscard]] cuda_kernels::layer_ranks ranks() const noexcept { return {first_.data(), before_.data()}; }

 private:
  template <int = 0>
  void sum_up(cuda_workspace const& work) const {
    work.launch_early<cuda_kernels::exclusive_sums<std::uint32_t>>(1, cuda_kernels::scan_threads, before_.data(),
                                                                   before_.data(), before_.size());
  }

  cuda_buffer<std::uint32_t> first_, before_;
};

namespace cuda_kernels {

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
      put_bytes(to + 4 * std::uint64_t{ranks.before[l]}, scale, 4);
    });
    std::byte* const signs = to + 4 * std::uint64_t{scales(0)};
    for_each((count + group_fields - 1) / group_fields, [&](std::uint64_t g) {
      pack_group(fields_of_group(g, count), 1, signs + g, [&](unsigned f) {
        return gradsieve::bit_cast<std::uint32_t>(own.values[g * group_fields + f]) >> 31;
      });
    });
  }

  [[nodiscard]] __device__ bool well_formed(std::byte const* part, std::uint64_t count, std::uint32_t sender,
                                            thread_team const& team) const {
    if (team.thread != 0 || count % 8 == 0) return true;
    return static_cast<unsigned>(part[4 * std::uint64_t{scales(sender)} + count / 8]) >> (count % 8) == 0;
  }

  [[nodiscard]] __device__ float value(std::byte const* part, std::uint64_t, std::uint32_t sender, std::uint64_t p,
                                       index_type i, bool& good) const {
    // If indices do not rise, a layer may lack a scale.
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

/// Memory per layer: 28 bytes to write; 4 bytes, and 8 per sender, to read.
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
