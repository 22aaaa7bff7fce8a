// The kernels that a program can launch, and their loading.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <vector>

#include <gradsieve/cuda/error.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// All kernels of the library that this program can launch: every launch names its kernel as a template argument, which
/// is noted here before main(), and forgotten when its library is unloaded. Each shared library has a list of its own,
/// as it may have a CUDA runtime of its own. A kernel of a static object that is made before main() may be missing.
class [[gnu::visibility("hidden")]] kernel_list {
  struct kernel {
    void const* function;
    std::atomic<int>* version;
  };
  struct kernels {
    std::mutex lock;
    std::vector<kernel> all;
    std::vector<std::size_t> loaded;  // of the list, on each device
  };

  [[nodiscard]] static kernels& known() {
    static kernels of_library;
    return of_library;
  }

  /// In the list as long as it lives.
  class listed {
   public:
    listed(void const* function, std::atomic<int>& version) : version_{&version} {
      std::lock_guard const hold{known().lock};
      known().all.push_back({function, version_});
    }
    ~listed() {
      std::lock_guard const hold{known().lock};
      std::erase_if(known().all, [&](kernel const& each) { return each.version == version_; });
      known().loaded.clear();
    }
    listed(listed const&) = delete;
    listed& operator=(listed const&) = delete;

   private:
    std::atomic<int>* version_;
  };

  template <auto Kernel>
  struct entry {
    static inline std::atomic<int> version = 0;  // the lowest of all devices; 0: not loaded yet
    static inline listed const noted{reinterpret_cast<void const*>(Kernel), version};
  };

  /// Of a kernel that was compiled for other devices only there is nothing to load.
  static void load_one(kernel const& each) {
    cudaFuncAttributes about{};
    auto const code = cudaFuncGetAttributes(&about, each.function);
    if (code == cudaErrorInvalidDeviceFunction || code == cudaErrorNoKernelImageForDevice) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    throw_on_error(code, "cudaFuncGetAttributes");
    int version = *each.version;
    while ((version == 0 || about.ptxVersion < version) &&
           !each.version->compare_exchange_weak(version, about.ptxVersion)) {
    }
  }

 public:
  /// Loads them on the current device, unless they are there. CUDA loads a kernel when it is first used, which may wait
  /// for all running kernels: a deadlock behind a collective that itself waits for a launch by another thread of the
  /// process.
  static void load() {
    int id = 0;
    throw_on_error(cudaGetDevice(&id), "cudaGetDevice");
    auto const place = static_cast<std::size_t>(id);
    std::lock_guard const hold{known().lock};
    auto& [lock, all, loaded] = known();
    if (loaded.size() <= place) loaded.resize(place + 1);
    for (; loaded[place] < all.size(); ++loaded[place]) load_one(all[loaded[place]]);
  }

  /// Notes a kernel.
  template <auto Kernel>
  static void note() noexcept {
    [[maybe_unused]] static constexpr listed const* needed = &entry<Kernel>::noted;
  }

  /// Whether a kernel was loaded as it was compiled for sm_90 or newer.
  template <auto Kernel>
  [[nodiscard]] static bool is_for_sm_90() noexcept {
    return entry<Kernel>::version >= 90;
  }
};

}  // namespace gradsieve::detail
