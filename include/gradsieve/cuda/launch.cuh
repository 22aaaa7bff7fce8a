// Launches of kernels that need no workspace.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/error.cuh>

namespace gradsieve {

/// @cond internal
/// Enqueues a kernel with these blocks of 256 threads; none where there are no blocks.
template <class... Parameters>
void launch_blocks(device const& where, std::uint64_t blocks, void (*kernel)(Parameters...),
                   std::type_identity_t<Parameters>... arguments) {
  if (blocks == 0) return;
  kernel<<<static_cast<unsigned>(blocks), 256, 0, where.stream>>>(arguments...);
  throw_on_error(cudaGetLastError(), "a launch of a kernel");
}

/// The same for `count` elements: a grid that walks over them.
template <class... Parameters>
void launch_over(device const& where, std::uint64_t count, void (*kernel)(Parameters...),
                 std::type_identity_t<Parameters>... arguments) {
  launch_blocks(where, std::min<std::uint64_t>((count + 255) / 256, 4096), kernel, arguments...);
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
/// @endcond

}  // namespace gradsieve
