// Removed: for one version, its use says what to write instead.
#pragma once

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Removed: name one of `int2`, `int4`, `int8`, `fp16`, `bf16` and `fp32`.
template <class T = void>
struct automatic_values {
  static_assert(!sizeof(T*), "gradsieve: automatic_values was removed: name one of int2, int4, int8, fp16, bf16 and "
                             "fp32");
};

}  // namespace gradsieve
