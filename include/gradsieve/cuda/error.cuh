// CUDA's error codes as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// @throws device_error, naming the call, the code and its text.
inline void throw_on_error(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would be blamed for it
  throw device_error(std::string{"gradsieve: "} + call + " failed with " + cudaGetErrorName(code) + " (" +
                     std::to_string(static_cast<int>(code)) + "): " + cudaGetErrorString(code));
}

}  // namespace gradsieve
