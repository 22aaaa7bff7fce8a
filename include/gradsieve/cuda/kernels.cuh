// The kernels that a program can launch, and their loading.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <vector>

#include <gradsieve/cuda/error.cuh>

namespace gradsieve {

/// @cond internal
/// All kernels of the library that this program can launch: every launch names its kernel as a template argument, which
/// is noted here before main().
class kernel_list {
  struct kernel {
    void const* function;
    std::atomic<int>* version;
  };

  [[nodiscard]] static std::vector<kernel>& all() {
    static std::vector<kernel> kernels;
    return kernels;
  }

  template <auto Kernel>
  struct entry {
    static inline std::atomic<int> version = 0;  // the lowest of all devices; 0: not loaded yet
    static inline bool const noted = (all().push_back({reinterpret_cast<void const*>(Kernel), &version}), true);
  };

 public:
  /// Loads them on the current device. CUDA loads a kernel when it is first used, which may wait for all running
  /// kernels: for ever, behind a collective that itself waits for a launch by another thread of the process.
  static void load() {
    for (auto const& each : all()) {
      cudaFuncAttributes about{};
      throw_on_error(cudaFuncGetAttributes(&about, each.function), "cudaFuncGetAttributes");
      for (int known = *each.version;
           (known == 0 || about.ptxVersion < known) && !each.version->compare_exchange_weak(known, about.ptxVersion);) {
      }
    }
  }

  /// Notes a kernel.
  template <auto Kernel>
  static void note() noexcept {
    [[maybe_unused]] static constexpr bool const* needed = &entry<Kernel>::noted;
  }

  /// Whether a kernel was loaded as it was compiled for sm_90 or newer.
  template <auto Kernel>
  [[nodiscard]] static bool is_for_sm_90() noexcept {
    return entry<Kernel>::version >= 90;
  }
};
/// @endcond

}  // namespace gradsieve
