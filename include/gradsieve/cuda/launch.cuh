// The kernels that a program can launch, and their loading; launches, copies, and reductions of host values.
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
/// registers it here before main(), until its library is unloaded. Each shared library has its own list, as it may have
/// its own CUDA runtime. A kernel that a static object launches before main() may be missing.
class [[gnu::visibility("hidden")]] kernel_list {
  struct kernel {
    void const* function;
    std::atomic<int>* version;
  };
  struct kernels {
    std::mutex lock;
    std::vector<kernel> all;
    std::vector<std::size_t> loaded;  // kernels of the list, by device
  };

  [[nodiscard]] static kernels& known() {
    static kernels of_library;
    return of_library;
  }

  /// Registers a kernel for its own lifetime.
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

  /// Loads a kernel, unless it was compiled for other devices only.
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
  /// Loads the kernels that the current device lacks. CUDA would load one at its first use, which may wait for all
  /// running kernels: a deadlock behind a collective that itself waits for a launch by another thread of the process.
  static void load() {
    int id = 0;
    throw_on_error(cudaGetDevice(&id), "cudaGetDevice");
    auto const place = static_cast<std::size_t>(id);
    std::lock_guard const hold{known().lock};
    auto& [lock, all, loaded] = known();
    if (loaded.size() <= place) loaded.resize(place + 1);
    for (; loaded[place] < all.size(); ++loaded[place]) load_one(all[loaded[place]]);
  }

  template <auto Kernel>
  static void note() noexcept {
    [[maybe_unused]] static constexpr listed const* needed = &entry<Kernel>::noted;
  }

  /// True if the kernel was loaded as compiled for sm_90 or newer.
  template <auto Kernel>
  [[nodiscard]] static bool is_for_sm_90() noexcept {
    return entry<Kernel>::version >= 90;
  }
};

/// Enqueues a kernel, and registers it in kernel_list.
template <auto Kernel, class... Arguments>
void launch_kernel(device const& where, dim3 blocks, unsigned threads, Arguments const&... arguments) {
  kernel_list::note<Kernel>();
  auto const enqueue = [&]<class... Parameters>(void (*kernel)(Parameters...),
                                                std::type_identity_t<Parameters>... values) {
    void* pointers[] = {&values...};
    throw_on_error(
        cudaLaunchKernel(reinterpret_cast<void const*>(kernel), blocks, dim3{threads}, pointers, 0, where.stream),
        "cudaLaunchKernel");
  };
  enqueue(Kernel, arguments...);
}

/// Enqueues a kernel that begins with wait_for_previous(). On sm_90 and newer its blocks may start while the previous
/// kernel ends, which saves the time between the two. Elsewhere as launch_kernel(). @pre the previous work is a kernel
/// of the library, a copy or a memset: a foreign kernel may not wait for what is before it, and end first
template <auto Kernel, class... Arguments>
void launch_early(device const& where, dim3 blocks, unsigned threads, Arguments const&... arguments) {
  kernel_list::note<Kernel>();
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t how{};
  how.gridDim = blocks;
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

/// Enqueues a kernel with `blocks` blocks of launch_threads threads, if any.
template <auto Kernel, class... Arguments>
void launch_blocks(device const& where, std::uint64_t blocks, Arguments const&... arguments) {
  if (blocks > 0)
    launch_kernel<Kernel>(where, static_cast<unsigned>(blocks), cuda_kernels::launch_threads, arguments...);
}

/// Enqueues a kernel whose threads loop over `count` elements.
template <auto Kernel, class... Arguments>
void launch_over(device const& where, std::uint64_t count, Arguments const&... arguments) {
  constexpr std::uint64_t threads = cuda_kernels::launch_threads;
  launch_blocks<Kernel>(where, std::min((count + threads - 1) / threads, cuda_kernels::most_launch_blocks),
                        arguments...);
}

/// Copies device memory to the host. Waits.
template <class T>
[[nodiscard]] std::vector<T> downloaded(device const& where, std::span<T const> from) {
  std::vector<T> values(from.size());
  where.wait_for([&] { where.copy(std::as_bytes(from), std::as_writable_bytes(std::span{values})); });
  return values;
}

/// Copies host memory, which may be freed at once, to a device. Waits.
template <class T>
void upload(device const& where, std::span<T const> from, std::span<T> to) {
  where.wait_for([&] { where.copy(std::as_bytes(from), std::as_writable_bytes(to)); });
}

/// Replaces host values by their maxima over the ranks, through device memory. Collective. Waits, allocates.
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
