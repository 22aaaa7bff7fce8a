// The kernels that a program can launch, and their loading.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include <gradsieve/cuda/error.cuh>

namespace gradsieve {

/// @cond internal
/// All kernels of the library that this program can launch: every launch names its kernel as a template argument, which
/// is noted here before main().
class kernel_list {
  [[nodiscard]] static std::vector<void const*>& all() {
    static std::vector<void const*> kernels;
    return kernels;
  }

  template <auto Kernel>
  struct entry {
    static inline bool const noted = (all().push_back(reinterpret_cast<void const*>(Kernel)), true);
  };

 public:
  /// Loads them on the current device. CUDA loads a kernel when it is first used, which may wait for all running
  /// kernels: for ever, behind a collective that itself waits for a launch by another thread of the process.
  static void load() {
    for (void const* const kernel : all()) {
      cudaFuncAttributes unused{};
      throw_on_error(cudaFuncGetAttributes(&unused, kernel), "cudaFuncGetAttributes");
    }
  }

  /// Notes a kernel.
  template <auto Kernel>
  static void note() noexcept {
    [[maybe_unused]] static constexpr bool const* needed = &entry<Kernel>::noted;
  }
};
/// @endcond

}  // namespace gradsieve
