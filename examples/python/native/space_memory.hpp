// What buckets need of a space's memory beside compressors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <gradsieve/core/types.hpp>
#include <gradsieve/host/workspace.hpp>

namespace example {

namespace gs = gradsieve;

/// A device's is in device_memory.hpp.
template <class Space>
struct memory_of;

template <>
struct memory_of<gs::host> {
  template <class T>
  using buffer = gs::host_buffer<T>;
  template <class T>
  [[nodiscard]] static buffer<T> allocate(gs::host const&, std::uint64_t size) {
    return buffer<T>(size);
  }
  template <class T>
  static void copy(gs::host const&, std::type_identity_t<std::span<T const>> from, std::span<T> to) {
    std::ranges::copy(from, to.begin());
  }
  template <class T>
  static void fill_with_nan(gs::host const&, std::span<T> values) {
    std::ranges::fill(values, gs::from_float<T>(std::numeric_limits<float>::quiet_NaN()));
  }
  template <class T>
  static void fill_with_zeros(gs::host const&, std::span<T> values) {
    std::ranges::fill(values, T{});
  }
  static void finish(gs::host const&) {}
};

}  // namespace example
