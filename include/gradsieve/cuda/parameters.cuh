// The common parameters of a parameter_exchange on a device, and its passes.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/arguments.cuh>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/error.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/parameters.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The memory of a parameter_exchange on a device, with the members of host_parameters. Passes are enqueued.
template <class T>
class device_parameters {
 public:
  struct [[maybe_unused]] arithmetic {};  ///< a device rounds in one way only

  device_parameters(device where, std::uint64_t n)
      : where_{where}, common_{where, n}, update_{where, std::same_as<T, float> ? 0 : n} {}
  device_parameters(device_parameters const&) = delete;
  device_parameters& operator=(device_parameters const&) = delete;
  ~device_parameters() { cudaStreamSynchronize(where_.stream); }  // what is enqueued works on what goes now

  template <class Own>
  [[nodiscard]] static auto span_of(Own& own) {
    return checked_device_span(own);
  }

  /// The common parameters become these. Returns how many of them are not finite. Waits.
  [[nodiscard]] std::uint64_t start(std::span<T const> own) const {
    cuda_buffer<std::uint32_t> const bad{where_, 1};
    throw_on_error(cudaMemsetAsync(bad.data(), 0, sizeof(std::uint32_t), where_.stream), "cudaMemsetAsync");
    launch_over<cuda_kernels::start_common<T>>(where_, own.size(), own.data(), own.size(), common_.data(), bad.data());
    return downloaded(where_, std::span<std::uint32_t const>{bad.span()})[0];
  }

  [[nodiscard]] std::span<float const> common() const noexcept { return common_.span(); }
  [[nodiscard]] std::vector<float> read() const { return downloaded(where_, common()); }
  void write(std::span<float const> values) const { upload(where_, values, common_.span()); }

  /// The memory of the update that was taken.
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

  /// A gradient for a rank that has failed, which is overwritten. The first call allocates.
  [[nodiscard]] std::span<float> no_update() {
    if (unused_.size() < common_.size()) unused_ = cuda_buffer<float>{where_, common_.size()};
    return unused_.span();
  }

  template <class Stored>
  void take(std::span<T> own, std::span<Stored const> unsent, float weight, float factor) const {
    launch_over<cuda_kernels::take_updates<T, Stored>>(where_, own.size(), own.data(), own.size(), common_.data(),
                                                       unsent.data(), weight, factor, update_of(own).data());
  }
  template <class Stored>
  void put(std::span<T> own, std::span<Stored const> unsent, float weight) const {
    launch_over<cuda_kernels::move_parameters<T, Stored>>(where_, own.size(), own.data(), own.size(), common_.data(),
                                                          unsent.data(), weight, update_of(own).data());
  }
  template <class Stored>
  void write_own(std::span<T> own, std::span<Stored const> unsent, float weight) const {
    launch_over<cuda_kernels::write_own<T, Stored>>(where_, own.size(), own.data(), own.size(), common_.data(),
                                                    unsent.data(), weight);
  }
  template <class Stored>
  void write_updated(std::span<T> own, std::span<Stored const> unsent, float weight, float factor) const {
    launch_over<cuda_kernels::write_updated<T, Stored>>(where_, own.size(), own.data(), own.size(), common_.data(),
                                                        unsent.data(), weight, factor, update_of(own).data());
  }

 private:
  device where_;
  cuda_buffer<float> common_;
  cuda_buffer<float> update_;  // for 16-bit own parameters
  cuda_buffer<float> unused_;
};

}  // namespace gradsieve::detail
