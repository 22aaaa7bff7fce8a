// A gradient in host memory as a span of its type.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>

#include <gradsieve/core/types.hpp>

namespace example {

namespace gs = gradsieve;

/// body(std::span) of the tensor's memory, of float, float16, bfloat16 or double.
/// @throws std::invalid_argument for other types, and for what is not contiguous in host memory.
template <class Body>
void with_values(at::Tensor const& gradient, Body const& body) {
  if (!gradient.device().is_cpu() || !gradient.is_contiguous())
    throw std::invalid_argument("gradsieve: a gradient lies on device " + gradient.device().str() +
                                ", where a contiguous one on the CPU is expected");
  auto const size = static_cast<std::size_t>(gradient.numel());
  switch (gradient.scalar_type()) {
    case at::kFloat:
      return body(std::span{static_cast<float*>(gradient.data_ptr()), size});
    case at::kHalf:
      return body(std::span{static_cast<gs::float16*>(gradient.data_ptr()), size});
    case at::kBFloat16:
      return body(std::span{static_cast<gs::bfloat16*>(gradient.data_ptr()), size});
    case at::kDouble:
      return body(std::span{static_cast<double*>(gradient.data_ptr()), size});
    default:
      throw std::invalid_argument("gradsieve: a gradient holds " + std::string{toString(gradient.scalar_type())} +
                                  ", expected float, half, bfloat16 or double");
  }
}

}  // namespace example
