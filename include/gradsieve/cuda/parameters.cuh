// The common parameters of a parameter_exchange on a device, and its passes.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/own_parameter.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/pieces.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Sets the common parameters to `own`, and counts those that are not finite.
template <class T>
__global__ void start_common(T const* own, std::uint64_t n, float* common, std::uint32_t* bad) {
  for_each(n, [&](std::uint64_t i) {
    common[i] = to_float(own[i]);
    if (!is_finite(common[i])) atomicAdd(bad, 1u);
  });
}

/// With the momentum's share over its size, which a kernel of the stream may just have changed.
template <class Stored>
__device__ detail::own_parts<Stored> sized(detail::own_parts<Stored> from, float const* size) {
  from.shares.ahead = widened(from.shares.ahead) > 0 && widened(*size) > 0 ? divide(from.shares.ahead, *size) : 0.0f;
  return from;
}

/// Computes the optimizer's update, times a factor, from own parameters. `update` may be their memory.
template <class T, class Stored>
__global__ void take_updates(T const* own, std::uint64_t n, detail::own_parts<Stored> parts, float const* size,
                             float factor, float* update) {
  auto const from = sized(parts, size);
  for_each(n, [&](std::uint64_t i) { update[i] = detail::own_update<T>(own[i], from.template own<T>(i), factor); });
}

/// Writes own parameters, with updates that were taken out unless the factor is 0. `own` may be the updates' memory.
template <class T, class Stored>
__global__ void write_own(T* own, std::uint64_t n, detail::own_parts<Stored> parts, float const* size, float factor,
                          float const* update) {
  auto const from = sized(parts, size);
  for_each(n, [&](std::uint64_t i) { own[i] = detail::with_update<T>(update[i], from.template own<T>(i), factor); });
}

/// The size of a momentum after one more mean, unless the step has failed. One block.
template <int = 0>
__global__ void count_mean(float* size, float keep, std::uint64_t const* fault) {
  if (threadIdx.x == 0 && (fault == nullptr || *fault == 0)) *size = detail::next_momentum(*size, 1.0f, keep);
}

/// Moves the common parameters by the mean, or by the momentum that it goes into over that one's size, and writes own
/// ones. `own` may be the mean's memory. `held`: the momentum, or null; after a step that has failed it stays.
template <class T, class Stored>
__global__ void move_parameters(T* own, std::uint64_t n, detail::own_parts<Stored> parts, float* common, float* held,
                                float const* size, float keep, std::uint64_t const* fault, float const* mean) {
  auto const from = sized(parts, size);
  bool const stays = held != nullptr && fault != nullptr && *fault != 0;
  float const scale = held == nullptr ? 1.0f : divide(1.0f, *size);
  for_each(n, [&](std::uint64_t i) {
    float by = mean[i], next = 0.0f;
    if (held != nullptr) {
      next = stays ? held[i] : detail::next_momentum(held[i], by, keep);
      by = stays ? 0.0f : multiply(scale, next);
      held[i] = next;
    }
    float const moved = detail::moved_common(common[i], by);
    own[i] = from.template own<T>(i, moved, next);
    common[i] = moved;
  });
}

}  // namespace gradsieve::cuda_kernels

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Memory of a parameter_exchange on a device, with the members of host_parameters. Passes are enqueued.
template <class T>
class device_parameters {
 public:
  struct [[maybe_unused]] arithmetic {};  ///< a device rounds in one way only

  device_parameters(device where, std::uint64_t n)
      : where_{where}, common_{where, n}, update_{where, std::same_as<T, float> ? 0 : n} {}
  device_parameters(device_parameters const&) = delete;
  device_parameters& operator=(device_parameters const&) = delete;
  ~device_parameters() { cudaStreamSynchronize(where_.stream); }  // enqueued work uses this memory

  template <class Own>
  [[nodiscard]] static auto span_of(Own& own) {
    return checked_device_span(own);
  }

  /// Sets the common parameters; returns the number of those that are not finite. Waits.
  [[nodiscard]] std::uint64_t start(std::span<T const> own) const {
    cuda_buffer<std::uint32_t> const bad{where_, 1};
    throw_on_error(cudaMemsetAsync(bad.data(), 0, sizeof(std::uint32_t), where_.stream), "cudaMemsetAsync");
    launch_over<cuda_kernels::start_common<T>>(where_, own.size(), own.data(), own.size(), common_.data(), bad.data());
    return downloaded(where_, std::span<std::uint32_t const>{bad.span()})[0];
  }

  [[nodiscard]] std::span<float const> common() const noexcept { return common_.span(); }
  [[nodiscard]] std::vector<float> read() const { return downloaded(where_, common()); }
  void write(std::span<float const> values) const { upload(where_, values, common_.span()); }

  void set_momentum(std::span<float const> values, float size) {
    if (held_size_.size() == 0) {
      held_ = cuda_buffer<float>{where_, common_.size()};
      held_size_ = cuda_buffer<float>{where_, 1};
    }
    upload(where_, values.empty() ? std::span<float const>{std::vector<float>(common_.size())} : values, held_.span());
    upload(where_, std::span<float const>{&size, 1}, held_size_.span());
  }
  [[nodiscard]] std::vector<float> momentum() const { return downloaded(where_, std::span<float const>{held_.span()}); }
  [[nodiscard]] float momentum_size() const {
    return held_size_.size() == 0 ? 0.0f : downloaded(where_, std::span<float const>{held_size_.span()})[0];
  }

  [[nodiscard]] std::span<float> update_of(std::span<T> own) const noexcept {
    if constexpr (std::same_as<T, float>)
      return own;
    else
      return update_.span();
  }

  template <class Comm>
  static void reduce_largest(Comm const& comm, device const& where, std::span<double> values) {
    detail::reduce_largest(comm, where, values);
  }

  /// A gradient for a rank that has failed, to be overwritten. The first call allocates.
  [[nodiscard]] std::span<float> no_update() {
    if (unused_.size() < common_.size()) unused_ = cuda_buffer<float>{where_, common_.size()};
    return unused_.span();
  }

  template <class Stored>
  void take(std::span<T> own, std::span<Stored const> unsent, own_shares shares, float factor) const {
    launch_over<cuda_kernels::take_updates<T, Stored>>(where_, own.size(), own.data(), own.size(),
                                                       parts_of(unsent, shares), held_size_.data(), factor,
                                                       update_of(own).data());
  }
  template <class Stored>
  void write(std::span<T> own, std::span<Stored const> unsent, own_shares shares, float factor) const {
    launch_over<cuda_kernels::write_own<T, Stored>>(where_, own.size(), own.data(), own.size(),
                                                    parts_of(unsent, shares), held_size_.data(), factor,
                                                    update_of(own).data());
  }
  template <class Stored>
  void put(std::span<T> own, std::span<Stored const> unsent, own_shares shares, float keep,
           std::uint64_t const* fault) const {
    if (keep > 0) launch_blocks<cuda_kernels::count_mean<>>(where_, 1, held_size_.data(), keep, fault);
    launch_over<cuda_kernels::move_parameters<T, Stored>>(where_, own.size(), own.data(), own.size(),
                                                          parts_of(unsent, shares), common_.data(), held_.data(),
                                                          held_size_.data(), keep, fault, update_of(own).data());
  }

 private:
  template <class Stored>
  [[nodiscard]] own_parts<Stored> parts_of(std::span<Stored const> unsent, own_shares shares) const noexcept {
    return {common_.data(), shares.ahead > 0 ? held_.data() : common_.data(), unsent.data(), shares};
  }

  device where_;
  cuda_buffer<float> common_;
  cuda_buffer<float> update_;  // for 16-bit own parameters
  cuda_buffer<float> unused_;
  cuda_buffer<float> held_;  // the momentum, if there is one
  cuda_buffer<float> held_size_;
};

}  // namespace gradsieve::detail
