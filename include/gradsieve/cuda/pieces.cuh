// Gradients in several pieces of device memory, and checks of the arguments of compressors and averagers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/cuda/device.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The library's type for a 16-bit type of CUDA's.
template <class T>
using library_value = std::conditional_t<std::is_same_v<T, __half>, float16,
                                         std::conditional_t<std::is_same_v<T, __nv_bfloat16>, bfloat16, T>>;

/// Device memory whose data() is a pointer with a type of its own, such as a thrust::device_vector.
template <class Gradient>
concept holds_device_pointer = requires(Gradient& gradient) {
  { *gradient.data().get() };
  gradient.size();
};

/// A vector, array, span or thrust::device_vector: not `pieces`.
template <class Gradient>
concept device_range =
    holds_device_pointer<std::remove_reference_t<Gradient>> || requires(Gradient& gradient) { std::span{gradient}; };

template <class Gradient>
[[nodiscard]] auto device_span(Gradient& gradient) {
  if constexpr (holds_device_pointer<Gradient>)
    return std::span{gradient.data().get(), gradient.size()};
  else
    return std::span{gradient};
}

/// A caller's span of device memory, in the library's formats.
template <class Gradient>
[[nodiscard]] auto checked_device_span(Gradient& gradient) {
  auto const values = device_span(gradient);
  using element = typename decltype(values)::element_type;
  using value = library_value<std::remove_cv_t<element>>;
  static_assert(gradient_value<value>,
                "a gradient is device memory of float, gradsieve::float16 or __half, gradsieve::bfloat16 or "
                "__nv_bfloat16: a span, or a thrust::device_vector");
  using result = std::conditional_t<std::is_const_v<element>, value const, value>;
  return std::span<result>{reinterpret_cast<result*>(values.data()), values.size()};
}

/// A caller's gradient in device memory: pieces, or what checked_device_span() takes. check() was not called.
template <class Gradient>
[[nodiscard]] auto checked_device_gradient(Gradient& gradient, layout const& layers) {
  if constexpr (is_pieces<std::remove_cv_t<Gradient>> || is_gradient_ref<std::remove_cv_t<Gradient>>) {
    return checked_gradient(gradient, layers);
  } else {
    auto const values = checked_device_span(gradient);
    return gradient_ref<typename decltype(values)::element_type>{values};
  }
}

/// A gradient in contiguous memory, which kernels need: the caller's own, or a copy of its pieces.
class flat_gradient {
 public:
  /// Contiguous memory with a gradient's elements. Cost: a copy of each piece if there are several; the first call of a
  /// format then allocates and waits. @throws invalid_argument if that is in a capture; device_error
  template <class T>
  [[nodiscard]] std::span<T const> read(device const& where, gradient_ref<T const> const gradient) {
    if (gradient.in_one_piece()) return gradient.flat();
    auto const all = contiguous<T>(where, gradient.size());
    std::uint64_t at = 0;
    gradient.for_each_run(0, gradient.size(), [&](std::span<T const> const run) {
      where.copy(std::as_bytes(run), std::as_writable_bytes(all.subspan(at, run.size())));
      at += run.size();
    });
    return all;
  }

  /// Contiguous memory for the gradient's new values, which write() then copies to its pieces. Allocates as read().
  template <class T>
  [[nodiscard]] std::span<T> target(device const& where, gradient_ref<T> const gradient) {
    return gradient.in_one_piece() ? gradient.flat() : contiguous<T>(where, gradient.size());
  }

  template <class T>
  void write(device const& where, gradient_ref<T> const gradient) const {
    if (gradient.in_one_piece()) return;
    std::uint64_t at = 0;
    gradient.for_each_run(0, gradient.size(), [&](std::span<T> const run) {
      auto const from = memory_.span().subspan(at * sizeof(T), run.size_bytes());
      where.copy(std::as_bytes(from), std::as_writable_bytes(run));
      at += run.size();
    });
  }

 private:
  template <class T>
  [[nodiscard]] std::span<T> contiguous(device const& where, std::uint64_t count) {
    if (memory_.size() < count * sizeof(T)) {
      where.synchronize();  // an earlier copy may still be read
      memory_ = cuda_buffer<std::byte>{where, count * sizeof(T)};
    }
    return {reinterpret_cast<T*>(memory_.data()), count};
  }

  cuda_buffer<std::byte> memory_;
};

}  // namespace gradsieve::detail
