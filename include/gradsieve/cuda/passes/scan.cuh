// Prefix sums in device memory, with scratch that is there beforehand.
#pragma once

#include <cub/device/device_scan.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/error.cuh>

namespace gradsieve {

/// Exclusive sums of arrays of one length. Unsigned sums are modulo their range: over several lists, one behind the
/// other, the difference to a list's first sum is right as long as the list's own sum fits.
template <class T>
class device_scan {
 public:
  static_assert(std::is_unsigned_v<T>);

  /// For arrays of `count` numbers. Allocates.
  void reserve(device const& where, std::uint64_t count) {
    count_ = count;
    std::size_t bytes = 0;
    throw_on_error(cub::DeviceScan::ExclusiveSum(nullptr, bytes, static_cast<T*>(nullptr), static_cast<T*>(nullptr),
                                                 count_, where.stream),
                   "cub::DeviceScan::ExclusiveSum");
    scratch_ = cuda_buffer<std::byte>(where, bytes + 1);
  }

  /// In stream order. `to` may be `from`.
  void run(device const& where, T const* from, T* to) const {
    std::size_t bytes = scratch_.size();
    throw_on_error(cub::DeviceScan::ExclusiveSum(scratch_.data(), bytes, from, to, count_, where.stream),
                   "cub::DeviceScan::ExclusiveSum");
  }

 private:
  std::uint64_t count_ = 0;
  cuda_buffer<std::byte> scratch_;
};

}  // namespace gradsieve
