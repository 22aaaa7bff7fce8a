// The codec `binned` on a device: the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradsieve/codec/binned.hpp>
#include <gradsieve/cuda/codec.cuh>
#include <gradsieve/cuda/codec/layer_scales.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/scan.cuh>

namespace gradsieve {

namespace cuda_kernels {

/// What `binned` needs to know of layers, besides where they begin.
struct bin_layers {
  layer_table layers;
  std::uint32_t const* lengths;  // of a layer's bins
  std::uint32_t const* ordinal;  // how many layers before it have elements

  [[nodiscard]] __device__ wire::bin_symbols symbols(std::uint32_t l) const {
    return {layers.offsets[l + 1] - layers.offsets[l], lengths[l]};
  }
};

/// Bytes one after the other.
struct device_sink {
  std::byte* to;
  __device__ void put(std::uint64_t value, unsigned bytes) {
    put_bytes(to, value, bytes);
    to += bytes;
  }
};

/// What an entry adds to a message: the layer's beginning if it is the layer's first, the empty bins before its own,
/// its symbol, and the layer's end if it is the last.
template <class Sink>
__device__ void put_entry(entry_list const& own, std::uint32_t count, std::uint64_t p, bin_layers const& all,
                          Sink& to) {
  index_type const i = own.indices[p];
  std::uint32_t const l = all.layers.of(i);
  std::uint32_t const begin = all.layers.offsets[l];
  std::uint32_t const end = all.layers.offsets[l + 1];
  auto const bins = all.symbols(l);
  std::uint64_t const bin = (i - begin) / bins.length;
  bool const first = p == 0 || own.indices[p - 1] < begin;
  bool const last = p + 1 == count || own.indices[p + 1] >= end;
  std::uint64_t told = 0;  // bins that have been spoken of
  if (first) {
    wire::put_varint(to,
                     all.ordinal[l] - (p == 0 ? 0 : all.ordinal[all.layers.of(own.indices[p - 1])] + std::uint64_t{1}));
    to.put(magnitude_key(own.values[p]), 4);  // quantised: all of the layer have it
  } else {
    told = (own.indices[p - 1] - begin) / bins.length + 1;
  }
  if (bin > told) wire::put_empty(bins, bin - told, to);
  bool const ends = last || (own.indices[p + 1] - begin) / bins.length != bin;
  std::uint32_t const negative = gradsieve::bit_cast<std::uint32_t>(own.values[p]) >> 31;
  to.put(bins.symbol(static_cast<std::uint32_t>(i - begin - bin * bins.length),
                     negative * wire::bin_symbols::negative + (ends ? wire::bin_symbols::last : 0)),
         bins.bytes());
  if (last && bin + 1 < bins.bins()) to.put(bins.symbol(bins.no_entry(), 0), bins.bytes());
}

template <int = 0>
__global__ void measure_bins(entry_list const own, std::uint64_t most, bin_layers const all, std::uint64_t* bytes) {
  for_each(most, [&](std::uint64_t p) {
    wire::byte_count size;
    if (p < *own.count) put_entry(own, *own.count, p, all, size);
    bytes[p] = size.at;
  });
}

/// Once the bytes are scanned.
template <int = 0>
__global__ void write_bins(entry_list const own, std::uint64_t most, bin_layers const all, std::uint64_t const* bytes,
                           float const* dense, std::uint64_t dense_elements, std::byte* message, message_state* state) {
  std::uint64_t const start = message_header::bytes + 4 * dense_elements;
  if (blockIdx.x == 0 && threadIdx.x == 0) state->bytes = start + bytes[most];
  auto* const to = reinterpret_cast<float*>(message + message_header::bytes);
  for_each(dense_elements, [&](std::uint64_t p) { to[p] = dense[p]; });
  for_each(*own.count, [&](std::uint64_t p) {
    device_sink sink{message + start + bytes[p]};
    put_entry(own, *own.count, p, all, sink);
  });
}

/// A message's bytes for a warp whose lanes all read the same: fetched together, as far as there is room.
class warp_source {
 public:
  static constexpr unsigned window = 256;

  __device__ warp_source(std::byte const* message, std::uint64_t at, std::uint64_t room, std::byte* shared)
      : message_{message}, at_{at}, room_{room}, shared_{shared} {}

  [[nodiscard]] __device__ std::uint64_t at() const { return at_; }
  [[nodiscard]] __device__ bool good() const { return good_; }
  __device__ void refuse() { good_ = false; }

  /// 0 once anything was refused, or behind the end.
  [[nodiscard]] __device__ std::uint64_t take(unsigned bytes) {
    if (at_ + bytes > room_) good_ = false;
    if (!good_) return 0;
    if (at_ + bytes > fetched_) fetch();
    std::uint64_t value = 0;
    for (unsigned b = 0; b < bytes; ++b) value |= static_cast<std::uint64_t>(shared_[(at_ + b) % window]) << (8 * b);
    at_ += bytes;
    return value;
  }

 private:
  /// The window that begins at at_: a byte has its place by its position.
  __device__ void fetch() {
    __syncwarp();
    std::uint64_t const end = smaller(at_ + window, room_);
    for (std::uint64_t b = at_ + threadIdx.x; b < end; b += 32) shared_[b % window] = message_[b];
    __syncwarp();
    fetched_ = end;
  }

  std::byte const* message_;
  std::uint64_t at_, room_;
  std::uint64_t fetched_ = 0;
  std::byte* shared_;
  bool good_ = true;
};

/// A block of one warp a sender: what wire::take_varint() and wire::take_bins() do, without exceptions.
template <int = 0>
__global__ void __launch_bounds__(32)
    read_bins(slots const from, bin_layers const all, std::uint64_t dense_elements, message_state* states,
              device_places const out, float* values, std::uint64_t* error) {
  __shared__ std::byte window[warp_source::window];
  std::uint32_t const r = blockIdx.x;
  auto& state = states[r];
  std::uint64_t const start = message_header::bytes + 4 * dense_elements;
  std::uint32_t const count = state.count;
  bool const failed = state.failed != 0;
  __syncwarp();  // all lanes have read it
  if (failed) return;
  warp_source in{from.message(r), start, state.room, window};
  if (start > state.room) in.refuse();
  std::uint32_t done = 0;
  for (std::uint32_t l = 0; done < count && in.good(); ++l) {
    std::uint64_t skipped = 0;
    for (unsigned shift = 0; in.good(); shift += 7) {
      auto const next = in.take(1);
      skipped |= (next & 127) << shift;
      if (shift >= 35 || (next == 0 && shift > 0)) in.refuse();
      if (next < 128) break;
    }
    // the first layer with elements behind those that are skipped
    std::uint64_t const wanted = (l < all.layers.count ? all.ordinal[l] : all.ordinal[all.layers.count]) + skipped;
    if (wanted >= all.ordinal[all.layers.count]) in.refuse();
    auto const scale = static_cast<std::uint32_t>(in.take(4));
    if (scale >= infinite_key) in.refuse();
    if (!in.good()) break;
    l = static_cast<std::uint32_t>(first_not_below(all.ordinal, all.layers.count + 1, wanted + 1)) - 1;
    auto const bins = all.symbols(l);
    std::uint32_t const before = done;
    std::uint64_t bin = 0;
    std::uint64_t next = 0;  // the least offset that the next entry may have; 0: a bin begins
    bool after_run = false;
    while (bin < bins.bins() && in.good()) {
      auto const symbol = static_cast<std::uint32_t>(in.take(bins.bytes()));
      auto const offset = symbol & bins.no_entry();
      auto const code = symbol >> bins.offset_bits();
      if (offset == bins.no_entry()) {
        if (next != 0 || after_run || (code == 0 && done == before)) in.refuse();
        if (code == 0) break;
        std::uint64_t const run = code == 1   ? 1
                                  : code == 2 ? wire::bin_symbols::short_run + in.take(1)
                                              : wire::bin_symbols::long_run + in.take(4);
        if (run >= bins.bins() - bin) in.refuse();
        bin += run;
        after_run = true;
        continue;
      }
      after_run = false;
      std::uint64_t const first = bin * bins.length;
      if (offset < next || offset >= smaller<std::uint64_t>(bins.length, bins.size - first) || done >= count)
        in.refuse();
      if (!in.good()) break;
      if (threadIdx.x == 0) {
        std::uint64_t const p = r * out.most + done;
        out.indices[p] = static_cast<index_type>(all.layers.offsets[l] + first + offset);
        values[p] = gradsieve::bit_cast<float>(scale | (code & wire::bin_symbols::negative) << 31);
      }
      ++done;
      bool const ends = (code & wire::bin_symbols::last) != 0;
      next = ends ? 0 : offset + 1;
      bin += ends ? 1 : 0;
    }
  }
  if (threadIdx.x != 0) return;
  state.bytes = in.at();
  state.dense = reinterpret_cast<float const*>(from.message(r) + message_header::bytes);
  if (in.good()) return;
  set_fault(error, exchange_fault::contents, r);
  state.fail();
}

}  // namespace cuda_kernels

/// Written entry by entry, in parallel; read symbol by symbol, by one warp a sender, as none says where the next layer
/// begins. When not: for many entries, where packed{delta, ternary} is smaller and read in parallel.
/// Memory: 12 bytes a layer; to write 8 bytes an entry and 16 a layer, to read device_entries.
template <>
class device_codec<binned> {
 public:
  void reserve_writing(cuda_workspace const& work, binned const& how, layout const& layers, std::uint64_t most) {
    most_ = most;
    reserve_layers(work, how, layers);
    scales_.reserve(work, offsets_.table(), most);
    bytes_ = work.zeroed<std::uint64_t>(most + 1);
    scan_.reserve(work.where(), most + 1);
  }
  void reserve_reading(cuda_workspace const& work, binned const& how, layout const& layers, std::uint64_t most,
                       std::uint32_t senders) {
    reserve_layers(work, how, layers);
    found_.reserve(work, most, senders);
  }

  void quantise(cuda_workspace const& work, cuda_kernels::entry_list const& own) const {
    scales_.apply(work, offsets_.table(), own);
  }

  void encode(cuda_workspace const& work, message_info const& info, cuda_kernels::entry_list const& own,
              float const* dense, device_message const& message) const {
    work.over(most_, cuda_kernels::measure_bins<>, own, most_, layers_, bytes_.data());
    scan_.run(work.where(), bytes_.data(), bytes_.data());
    work.over(most_ + info.dense + 1, cuda_kernels::write_bins<>, own, most_, layers_, bytes_.data(), dense, info.dense,
              message.to, message.state);
  }

  void decode(cuda_workspace const& work, message_info const& info, device_messages const& in,
              cuda_kernels::update* updates) const {
    auto const senders = in.from.senders;
    if (senders > 0)
      work.launch(cuda_kernels::read_bins<>, senders, 32, in.from, layers_, info.dense, in.states, found_.places(),
                  found_.values(), in.error);
    found_.tell(work, in, updates);
  }

 private:
  void reserve_layers(cuda_workspace const& work, binned const& how, layout const& layers) {
    std::vector<std::uint32_t> lengths, ordinal{0};
    for (auto const& each : layers) {
      lengths.push_back(how.bins(each));
      ordinal.push_back(ordinal.back() + (each.size > 0 ? 1 : 0));
    }
    if (lengths.empty()) {
      lengths.push_back(1);
      ordinal.push_back(0);
    }
    offsets_.reserve(work, layers);
    lengths_ = work.uploaded<std::uint32_t>(lengths);
    ordinal_ = work.uploaded<std::uint32_t>(ordinal);
    layers_ = {offsets_.table(), lengths_.data(), ordinal_.data()};
  }

  std::uint64_t most_ = 0;
  device_layers offsets_;
  layer_scales scales_;
  cuda_kernels::bin_layers layers_{};
  cuda_buffer<std::uint32_t> lengths_, ordinal_;
  cuda_buffer<std::uint64_t> bytes_;
  device_scan<std::uint64_t> scan_;
  device_entries found_;
};

}  // namespace gradsieve
