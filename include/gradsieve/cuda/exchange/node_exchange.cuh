// The dense sums within a node on a device, around one rank's exchange of its part.
#pragma once

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <ostream>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/node_share.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/report.cuh>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Converts a gradient to binary32, padded with zeros.
template <class T>
__global__ void widen_gradient(T const* values, std::uint64_t size, std::uint64_t capacity, float* to) {
  for_each(capacity, [&](std::uint64_t i) { to[i] = i < size ? to_float(values[i]) : 0.0f; });
}

/// Divides sums by `ranks`, padded with zeros. `sums` and `means` may be the same memory.
template <class T>
__global__ void divide_sums(float const* sums, std::uint64_t size, std::uint64_t capacity, float ranks, T* means) {
  for_each(capacity, [&](std::uint64_t i) { means[i] = i < size ? from_float<T>(divide(sums[i], ranks)) : T{}; });
}

/// Writes 1 if this rank's exchange has failed, as the stream or the host knows; else 0.
template <int = 0>
__global__ void set_node_fault(std::uint64_t const* fault, bool on_host, std::uint32_t* failed) {
  *failed = on_host || (fault != nullptr && *fault != 0) ? 1 : 0;
}

}  // namespace gradsieve::cuda_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Failures of the exchanges of a node's ranks.
class device_node_faults {
 public:
  explicit device_node_faults(device const& where) : where_{where}, failed_{where, 1}, reported_(1) {
    throw_on_error(cudaMemsetAsync(failed_.data(), 0, sizeof(std::uint32_t), where.stream), "cudaMemsetAsync");
  }
  device_node_faults(device_node_faults const&) = delete;
  device_node_faults& operator=(device_node_faults const&) = delete;
  ~device_node_faults() { cudaStreamSynchronize(where_.stream); }  // enqueued work uses this memory

  [[nodiscard]] std::uint32_t* failed() const noexcept { return failed_.data(); }  // 1 if any rank failed

  void report_to_host() const { where_.copy(std::as_bytes(failed_.span()), std::as_writable_bytes(reported_.span())); }

  /// True if the host's copy says that a rank has failed. Clears it then, which waits.
  [[nodiscard]] bool take_reported() const {
    if (*static_cast<std::uint32_t volatile*>(reported_.data()) == 0) return false;
    where_.synchronize();
    reported_[0] = 0;
    return true;
  }

  /// Throws if a rank has failed in the last step, once. Waits.
  void raise() const {
    where_.synchronize();
    if (take_reported()) throw_failed();
  }

  [[noreturn]] static void throw_failed() {
    throw communication_error(
        "gradsieve: another rank of this node failed in its exchange; its part of the gradient is not valid");
  }

 private:
  device where_;
  cuda_buffer<std::uint32_t> failed_;
  pinned_array<std::uint32_t> reported_;
};

/// The report of a two_level_compressor's step on a device: a device_report that also knows of failures of the other
/// ranks of the node. Reading it synchronises the stream.
class device_node_report {
 public:
  device_node_report(device_report const& part, device_node_faults const& node) noexcept : part_{part}, node_{&node} {}

  /// Reads the report. Synchronises the stream. @throws what failed in the step on this rank; communication_error if
  /// another rank of the node has failed; device_error.
  [[nodiscard]] step_report get() const {
    step_report found;
    try {
      found = part_.get();
    } catch (...) {
      static_cast<void>(node_->take_reported());  // the same failure
      throw;
    }
    node_->raise();
    return found;
  }
  operator step_report() const { return get(); }  // NOLINT: it is one

  friend std::ostream& operator<<(std::ostream& out, device_node_report const& it) { return out << it.get(); }

 private:
  device_report part_;
  device_node_faults const* node_;
};

/// Memory of a two_level_compressor on a device. The node's ranks meet on the host in their first step; later a failure
/// is a word that is all-reduced after the exchange.
class device_node_exchange {
 public:
  struct [[maybe_unused]] arithmetic {};         ///< a device rounds in one way only
  static constexpr bool holds_failures = false;  ///< an exception leaves at once

  device_node_exchange(device where, node_share const& part)
      : where_{where}, part_{part}, faults_{std::make_unique<device_node_faults>(where)} {}

  template <class Gradient>
  [[nodiscard]] static auto gradient_of(Gradient& gradient, layout const& layers) {
    return checked_device_gradient(gradient, layers);
  }

  /// Checks the gradient, and allocates for its format in the first call, which waits. @throws invalid_argument
  template <bool Scatters, class T>
  void reserve(gradient_ref<T> const gradient, layout const& layers) {
    gradient.check(layers);
    static_cast<void>(flat_.target(where_, gradient));
    constexpr bool halves = !std::same_as<T, float>;
    bool const all = !(is_even() && Scatters && !halves) && all_.size() < part_.total_capacity();
    bool const shorter = halves && halves_.size() < part_.capacity() * sizeof(T);
    if (sums_.size() == part_.capacity() && !all && !shorter) return;
    where_.refuse_capture("it allocates");
    if (sums_.size() < part_.capacity()) sums_ = cuda_buffer<float>{where_, part_.capacity()};
    if (all) all_ = cuda_buffer<float>{where_, part_.total_capacity()};
    if (shorter) halves_ = cuda_buffer<std::byte>{where_, part_.capacity() * sizeof(T)};
  }

  /// Compares layout and recipe with the node's other ranks in the first step. Waits, allocates. Collective.
  template <class Inside>
  void meet(Inside const& inside, std::uint64_t layers, std::uint64_t recipe, std::uint64_t /*skips*/,
            held_failure& failure) {
    reported_before_ = faults_->take_reported();
    if (met_) return;
    where_.refuse_capture("the node's ranks meet");
    failure.attempt([&] {
      auto const fold = [](std::uint64_t hash) {
        return static_cast<std::uint32_t>((hash ^ hash >> 32) & 0x7FFF'FFFFu);
      };
      std::uint32_t const own[] = {fold(layers), ~fold(layers) & 0x7FFF'FFFFu, fold(recipe),
                                   ~fold(recipe) & 0x7FFF'FFFFu};
      std::uint32_t found[4];
      cuda_buffer<std::uint32_t> const words{where_, 4};
      where_.wait_for([&] {
        where_.copy(std::as_bytes(std::span{own}), std::as_writable_bytes(words.span()));
        inside.all_reduce(where_, words.span(), reduction::max);
        where_.copy(std::as_bytes(words.span()), std::as_writable_bytes(std::span{found}));
      });
      if (found[0] != (~found[1] & 0x7FFF'FFFFu))
        throw mismatch("gradsieve: ranks of one node differ in layout or format");
      if (found[2] != (~found[3] & 0x7FFF'FFFFu))
        throw mismatch("gradsieve: ranks of one node differ in recipe or density");
      met_ = true;
    });
  }

  /// Sets values() to this rank's part of the mean of the node's gradients. Collective.
  template <class Inside, class T>
  void average(Inside const& inside, gradient_ref<T> const pieces) {
    auto const gradient = flat_.read<T>(where_, pieces);
    constexpr bool scatters = has_reduce_scatter<Inside, device, float>;
    float const* sums = sums_.data();
    if constexpr (scatters && std::same_as<T, float>) {
      if (is_even()) {
        inside.reduce_scatter(where_, gradient, sums_.span(), reduction::sum);
        return divide<T>(sums);
      }
    }
    launch_over<cuda_kernels::widen_gradient<T>>(where_, all_.size(), gradient.data(), part_.n, part_.total_capacity(),
                                                 all_.data());
    if constexpr (scatters) {
      inside.reduce_scatter(where_, std::span<float const>{all_.span()}, sums_.span(), reduction::sum);
    } else {
      inside.all_reduce(where_, all_.span(), reduction::sum);
      sums = all_.data() + part_.capacity() * static_cast<std::uint64_t>(part_.rank);
    }
    divide<T>(sums);
  }

  template <class T>
  [[nodiscard]] std::span<T> values() const noexcept {  // this rank's part, without padding
    return own_part<T>().first(part_.size());
  }

  /// Exchanges failures in stream order, and collects all ranks' parts. Collective. @throws the failure;
  /// communication_error if another rank of the node failed in an earlier step
  template <class Inside, class Compressor, class T>
  void collect(Inside const& inside, gradient_ref<T> const pieces, held_failure const& failure,
               Compressor& compressor) {
    auto const gradient = flat_.target(where_, pieces);
    launch_kernel<cuda_kernels::set_node_fault<>>(where_, 1, 1, compressor.report().fault(), bool{failure},
                                                  faults_->failed());
    inside.all_reduce(where_, std::span<std::uint32_t>{faults_->failed(), 1}, reduction::max);
    faults_->report_to_host();
    auto const mine = std::as_bytes(own_part<T>());
    if (is_even()) {
      inside.all_gather(where_, mine, std::as_writable_bytes(gradient));
    } else {
      auto const all = std::as_writable_bytes(all_.span()).first(part_.total_capacity() * sizeof(T));
      inside.all_gather(where_, mine, all);
      where_.copy(all.first(gradient.size_bytes()), std::as_writable_bytes(gradient));
    }
    flat_.write(where_, pieces);
    if (failure) std::rethrow_exception(failure.why());
    if (reported_before_) device_node_faults::throw_failed();
  }

  [[nodiscard]] device_node_report report(device_report const& of_part) const noexcept { return {of_part, *faults_}; }

 private:
  [[nodiscard]] bool is_even() const noexcept { return part_.n == part_.total_capacity(); }  // needs no padding

  template <class T>
  [[nodiscard]] std::span<T> own_part() const noexcept {
    if constexpr (std::same_as<T, float>)
      return sums_.span();
    else
      return {reinterpret_cast<T*>(halves_.data()), part_.capacity()};
  }

  template <class T>
  void divide(float const* sums) const {
    launch_over<cuda_kernels::divide_sums<T>>(where_, part_.capacity(), sums, part_.size(), part_.capacity(),
                                              static_cast<float>(part_.ranks), own_part<T>().data());
  }

  device where_;
  flat_gradient flat_;
  node_share part_;
  cuda_buffer<float> sums_;        // of this rank's part; also its values, if binary32
  cuda_buffer<std::byte> halves_;  // the values of shorter formats
  cuda_buffer<float> all_;         // all ranks' parts, unless the gradient itself has that form
  bool met_ = false;
  bool reported_before_ = false;
  std::unique_ptr<device_node_faults> faults_;  // reports refer to it; destroyed first, which waits
};

}  // namespace gradsieve::detail
