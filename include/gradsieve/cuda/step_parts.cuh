// What a step on a device has besides its stages: the workspace, a caller's gradient, and ranks that meet on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradsieve/core/pieces.hpp>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/through_device.cuh>
#include <gradsieve/cuda/workspace.cuh>
#include <gradsieve/exchange/preflight.hpp>
#include <gradsieve/step/parts.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// As step_parts, on a device.
template <class Recipe>
class device_step_parts : public step_parts<Recipe> {
 public:
  device_step_parts(device where, layout about, Recipe policies)
      : step_parts<Recipe>{std::move(about), std::move(policies)}, work{where, this->layers.size()} {}

  /// A caller's gradient, which check() has not seen.
  template <class Gradient>
  [[nodiscard]] auto gradient_of(Gradient& gradient) const {
    return checked_device_gradient(gradient, this->layers);
  }

  /// @throws invalid_argument unless the gradient is as large as the layout
  template <class T>
  void check(gradient_ref<T> const gradient) const {
    gradient.check(this->layers);
  }

  /// The gradient of a rank that has failed: zeros, as the step goes on in the stream.
  template <class T>
  [[nodiscard]] gradient_ref<T> without_values(gradient_ref<T> const gradient) const {
    check(gradient);
    gradient.for_each_run(0, gradient.size(), [&](std::span<T> const run) {
      throw_on_error(cudaMemsetAsync(run.data(), 0, run.size_bytes(), work.where().stream), "cudaMemsetAsync");
    });
    return gradient;
  }

  /// The communicator and the space of host memory, for the handshake before a step.
  template <class Comm>
  [[nodiscard]] through_device<Comm> for_host(Comm const& comm) const {
    return {work.where(), comm, meeting_.span()};
  }
  [[nodiscard]] static host on_host() noexcept { return {}; }

  /// Memory for the words of `ranks` ranks. Allocates.
  void reserve_meeting(int ranks) {
    meeting_ = cuda_buffer<std::byte>{
        work.where(), 256 + sizeof(preflight::packed_word) * static_cast<std::uint64_t>(ranks)};
  }

  cuda_workspace work;

 private:
  cuda_buffer<std::byte> meeting_;  // for the ranks' words
};

}  // namespace gradsieve::detail
