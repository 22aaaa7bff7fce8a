// Averages encoded messages on a GPU: the receiving side of a transport of your own.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/averager.hpp>
#include <gradsieve/core/arguments.hpp>
#include <gradsieve/cuda/codec/codec.cuh>
#include <gradsieve/cuda/codec/packed.cuh>
#include <gradsieve/cuda/faults.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/decoded_messages.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace detail {

struct averaged_numbers {
  std::uint64_t touched = 0;    ///< elements that have an entry
  std::uint64_t saturated = 0;  ///< means that the output format cannot represent
};

}  // namespace detail

/// The primary template on a GPU: messages and gradients are device memory. Not copyable.
template <class Codec>
class averager<device, Codec> {
 public:
  using workspace = cuda_workspace;  ///< its scratch
  using codec_type = Codec;          ///< reads the messages
  static_assert(gradsieve::codec<codec_type>, "an averager's codec needs max_bytes, encode and decode");
  static_assert(
      device::encodes_with<codec_type>,
      "this codec does not run on a device: messages have a fixed size there, so that binned saves nothing; use "
      "coo, or packed with elias_fano, fixed_width or raw32; for your own specialise device_codec, or device_indices "
      "or device_values for a part of packed");

  /// For messages of a codec, with passthrough layers. @throws invalid_argument as the codec's check(); device_error.
  averager(device where, layout layers, Codec codec = {}, passthrough_layers passthrough = {})
      : layers_{std::move(layers)}, codec_{codec}, work_{where, layers_.size()} {
    check(codec_);
    detail::layer_split const split{layers_, passthrough};
    info_ = {layers_.size(), layers_.hash(), split.passthrough_elements};
    std::vector<cuda_kernels::passthrough_range> ranges;
    for (auto const& each : split.passthrough) ranges.push_back(passed_.append(each));
    ranges_ = work_.template uploaded<cuda_kernels::passthrough_range>(ranges);
    passed_.ranges = ranges_.data();
    passthrough_mean_ = work_.template zeroed<float>(info_.passthrough);
    numbers_ = work_.template zeroed<detail::averaged_numbers>(1);
  }

  /// For messages of a recipe: its codec and passthrough layers. @throws invalid_argument, device_error
  template <class Recipe>
    requires std::same_as<decltype(Recipe::codec), Codec>
  averager(device where, layout layers, Recipe const& recipe)
      : averager{where, std::move(layers), recipe.codec, recipe.passthrough} {}

  /// Averages messages as the primary template does. They are in device memory, each as encode() returned it or longer.
  /// Synchronises the stream to read the headers, to check all messages before the gradient is written, and at the end.
  /// Allocates, and frees it again. @throws corrupt_message, invalid_argument; device_error.
  template <class Gradient>
  applied_update apply(std::span<std::span<std::byte const> const> messages, Gradient&& gradient) {
    alive();
    auto const result = detail::writable<Gradient>(detail::checked_device_gradient(gradient, layers_));
    result.check(layers_);
    detail::flat_gradient flat;
    auto const senders = static_cast<std::uint32_t>(messages.size());
    std::vector<std::array<std::byte, message_header::bytes>> headers(senders);
    std::vector<std::uint64_t> sizes;
    for (auto const& each : messages) sizes.push_back(each.size());
    work_.where().wait_for([&] {
      for (std::size_t m = 0; m < senders; ++m)
        work_.where().copy(messages[m].first(std::min(sizes[m], headers[m].size())), headers[m]);
    });
    std::uint64_t most = 0;
    std::uint64_t bytes = message_header::bytes;
    for (std::size_t m = 0; m < senders; ++m) {
      auto const here =
          std::span<std::byte const>{headers[m]}.first(std::min<std::size_t>(sizes[m], headers[m].size()));
      static_cast<void>(wire::open(info_, message_id(), here));
      most = std::max(most, detail::most_entries(codec_, info_, here, sizes[m]));
      bytes = std::max(bytes, (sizes[m] + 7) / 8 * 8);
    }
    cuda_buffer<std::byte> received;
    cuda_buffer<std::uint64_t> rooms, fault;
    device_decoded_messages<codec_type> reader;
    stream_end const at_end{work_.where().stream};
    auto const out = flat.target(work_.where(), result);
    received = work_.template zeroed<std::byte>(bytes * senders);
    for (std::size_t m = 0; m < senders; ++m)
      work_.where().copy(messages[m], received.span().subspan(bytes * m, sizes[m]));
    rooms = work_.template uploaded<std::uint64_t>(sizes);
    fault = work_.template zeroed<std::uint64_t>(1);
    reader.reserve(work_, codec_, layers_, most, senders);
    reader.read(work_, info(), received.data(), bytes, 0, rooms.data(), fault.data());
    detail::device_faults::raise(work_.download(fault.data()));
    auto const divisor = static_cast<float>(std::max<std::size_t>(senders, 1));
    auto* const numbers = numbers_.data();
    work_.zero(numbers_);
    if (auto const cells = work_.tables().cell_count; cells > 0)
      work_.launch<cuda_kernels::apply_updates<typename decltype(out)::value_type>>(
          cells, cuda_kernels::apply_threads, reader.updates_with_directories(work_), senders, divisor, 0u, out.data(),
          info_.n, &numbers->touched, &numbers->saturated);
    if (info_.passthrough > 0) {
      reader.mean_of_passthrough(work_, info_.passthrough, divisor, passthrough_mean_.data());
      work_.over<cuda_kernels::write_passthrough<typename decltype(out)::value_type>>(
          passed_.elements, passed_, passthrough_mean_.data(), 1.0f, static_cast<std::uint64_t const*>(nullptr),
          out.data(), &numbers->saturated);
    }
    flat.write(work_.where(), result);
    auto const found = work_.download(static_cast<detail::averaged_numbers const*>(numbers));
    return {found.touched, found.saturated};
  }

  [[nodiscard]] layout const& layers() const { return alive().layers_; }  ///< as at construction
  [[nodiscard]] Codec const& codec() const { return alive().codec_; }     ///< as at construction

 private:
  averager const& alive() const {
    if (!here_) throw invalid_argument("gradsieve: this averager was moved from");
    return *this;
  }

  /// Of the messages' codec, which may be chosen at run time.
  [[nodiscard]] std::uint16_t message_id() const noexcept {
    if constexpr (requires { codec_.chosen_id(); })
      return codec_.chosen_id();
    else
      return codec_type::id;
  }

  /// Synchronises the stream at the end of a scope, before memory is freed that enqueued work uses.
  struct stream_end {
    cudaStream_t stream;
    ~stream_end() { cudaStreamSynchronize(stream); }
  };

  /// Describes the messages. Made for each call, as a move of the averager moves its layout.
  [[nodiscard]] message_info info() const noexcept {
    auto about = info_;
    about.layers = &layers_;
    return about;
  }

  detail::presence here_;
  layout layers_;
  Codec codec_;
  message_info info_;
  cuda_workspace work_;
  cuda_buffer<cuda_kernels::passthrough_range> ranges_;  // of the layers that pass through
  cuda_kernels::passthrough_part passed_{};
  cuda_buffer<float> passthrough_mean_;
  cuda_buffer<detail::averaged_numbers> numbers_;
};

}  // namespace gradsieve
