// Launches of kernels, copies, and reductions of values of the host.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/error.cuh>
#include <gradsieve/cuda/kernels.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

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
