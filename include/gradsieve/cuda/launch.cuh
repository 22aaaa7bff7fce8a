// The kernels that a program can launch, and their loading; launches, copies, and reductions of values of the host.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/tuning.cuh>

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

/// Enqueues a kernel, which kernel_list then knows.
template <auto Kernel, class... Arguments>
void launch_kernel(device const& where, unsigned blocks, unsigned threads, Arguments const&... arguments) {
  kernel_list::note<Kernel>();
  auto const enqueue = [&]<class... Parameters>(void (*kernel)(Parameters...),
                                                std::type_identity_t<Parameters>... values) {
    void* pointers[] = {&values...};
    throw_on_error(
        cudaLaunchKernel(reinterpret_cast<void const*>(kernel), dim3{blocks}, dim3{threads}, pointers, 0, where.stream),
        "cudaLaunchKernel");
  };
  enqueue(Kernel, arguments...);
}

/// Enqueues a kernel that begins with wait_for_previous(). On sm_90 and newer its blocks may start while the kernel
/// before it ends: the time between the two is saved. Elsewhere as launch_kernel(). @pre what is enqueued before it is
/// a kernel of the library, a copy or a memset: a kernel of others may not wait for what is before it, and end first
template <auto Kernel, class... Arguments>
void launch_early(device const& where, unsigned blocks, unsigned threads, Arguments const&... arguments) {
  kernel_list::note<Kernel>();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = dim3{blocks};
  how.blockDim = dim3{threads};
  how.stream = where.stream;
  how.attrs = &early;
  how.numAttrs = kernel_list::is_for_sm_90<Kernel>() ? 1 : 0;
  auto const enqueue = [&]<class... Parameters>(void (*kernel)(Parameters...),
                                                std::type_identity_t<Parameters>... values) {
    throw_on_error(cudaLaunchKernelEx(&how, kernel, values...), "cudaLaunchKernelEx");
  };
  enqueue(Kernel, arguments...);
}

/// Enqueues a kernel with these blocks of launch_threads threads; none where there are no blocks.
template <auto Kernel, class... Arguments>
void launch_blocks(device const& where, std::uint64_t blocks, Arguments const&... arguments) {
  if (blocks > 0)
    launch_kernel<Kernel>(where, static_cast<unsigned>(blocks), cuda_kernels::launch_threads, arguments...);
}

/// The same for `count` elements: a grid that walks over them.
template <auto Kernel, class... Arguments>
void launch_over(device const& where, std::uint64_t count, Arguments const&... arguments) {
  constexpr std::uint64_t threads = cuda_kernels::launch_threads;
  launch_blocks<Kernel>(where, std::min((count + threads - 1) / threads, cuda_kernels::most_launch_blocks),
                        arguments...);
}

/// Device memory on the host. Waits.
template <class T>
[[nodiscard]] std::vector<T> downloaded(device const& where, std::span<T const> from) {
  std::vector<T> values(from.size());
  where.wait_for([&] { where.copy(std::as_bytes(from), std::as_writable_bytes(std::span{values})); });
  return values;
}

/// Host memory, which may be freed at once, to a device. Waits.
template <class T>
void upload(device const& where, std::span<T const> from, std::span<T> to) {
  where.wait_for([&] { where.copy(std::as_bytes(from), std::as_writable_bytes(to)); });
}

/// Replaces values of the host by the ranks' largest, through device memory. Collective. Waits, allocates.
template <class Comm>
void reduce_largest(Comm const& comm, device const& where, std::span<double> values) {
  cuda_buffer<double> const there{where, values.size()};
  where.wait_for([&] {
    where.copy(std::as_bytes(values), std::as_writable_bytes(there.span()));
    comm.all_reduce(where, there.span(), reduction::max);
    where.copy(std::as_bytes(there.span()), std::as_writable_bytes(values));
  });
}

}  // namespace gradsieve::detail
