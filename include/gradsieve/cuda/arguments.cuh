// Checks of the arguments of compressors and averagers on a device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <span>
#include <type_traits>

#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// The library's name for a format that a caller may have in CUDA's.
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

/// The elements of a device_range.
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

}  // namespace gradsieve::detail
