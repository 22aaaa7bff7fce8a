// What bucket_exchange asks of a device beside compressors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>
#include <type_traits>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/pieces.cuh>

#include "space_memory.hpp"

namespace example {

template <>
struct memory_of<gs::device> {
  template <class T>
  using buffer = gs::cuda_buffer<T>;
  template <class T>
  [[nodiscard]] static gs::cuda_buffer<T> allocate(gs::device const& where, std::uint64_t size) {
    return {where, size};
  }
  template <class T>
  static void copy(gs::device const& where, std::type_identity_t<std::span<T const>> from, std::span<T> to) {
    where.copy(std::as_bytes(from), std::as_writable_bytes(to));
  }
  template <class T>
  static void fill_with_nan(gs::device const& where, std::span<T> values) {  // all bits set is one in each format
    gs::throw_on_error(cudaMemsetAsync(values.data(), 0xFF, values.size_bytes(), where.stream), "cudaMemsetAsync");
  }
  template <class T>
  static void fill_with_zeros(gs::device const& where, std::span<T> values) {
    gs::throw_on_error(cudaMemsetAsync(values.data(), 0, values.size_bytes(), where.stream), "cudaMemsetAsync");
  }
  static void finish(gs::device const& where) { where.synchronize(); }
};

}  // namespace example
