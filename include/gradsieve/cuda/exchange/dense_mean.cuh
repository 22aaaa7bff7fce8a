// The exchange of a group on a device without compression.
#pragma once

#include <cstdint>
#include <span>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/report.hpp>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/pieces.cuh>

namespace gradsieve::inline GRADSIEVE_ABI {

namespace cuda_kernels {

template <int = 0>
__global__ void divide_values(float* values, std::uint64_t count, float divisor) {
  for_each(count, [&](std::uint64_t i) { values[i] = divide(values[i], divisor); });
}

}  // namespace cuda_kernels

/// dense_mean in device memory and stream order. The host does not wait to check the means: if a rank fails, they are
/// NaN on all ranks.
struct device_dense_mean {
  device where;  ///< whose stream it uses

  /// Replaces the gradient by its mean over all ranks. Collective. @throws what the transport throws; device_error.
  template <communicator Comm, detail::device_range Gradient>
  step_report exchange(Comm const& comm, Gradient&& values) const {
    std::span<float> const gradient{detail::device_span(values)};
    static_assert(has_all_reduce<Comm, device, float>, "this communicator needs all_reduce for float");
    int const world = detail::world_of(comm);
    detail::kernel_list::load();  // before the collective
    comm.all_reduce(where, gradient, reduction::sum);
    detail::launch_over<cuda_kernels::divide_values<>>(where, gradient.size(), gradient.data(), gradient.size(),
                                                       static_cast<float>(world));
    step_report report;
    report.world = world;
    report.bytes_sent = report.bytes_received = report.baseline_bytes = gradient.size_bytes();
    return report;
  }

  /// Joins an exchange() of the other ranks as a rank that has failed: their means and this gradient, which has the
  /// same size, become NaN. Collective. @throws what the transport throws; device_error.
  template <communicator Comm, detail::device_range Gradient>
  void fail(Comm const& comm, Gradient&& values) const {
    std::span<float> const gradient{detail::device_span(values)};
    throw_on_error(cudaMemsetAsync(gradient.data(), 0xFF, gradient.size_bytes(), where.stream), "cudaMemsetAsync");
    comm.all_reduce(where, gradient, reduction::sum);
  }
};

}  // namespace gradsieve
