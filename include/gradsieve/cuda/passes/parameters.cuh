// Kernels of a parameter_exchange: own and common parameters.
#pragma once

#include <cstdint>

#include <gradsieve/core/own_parameter.hpp>
#include <gradsieve/cuda/passes/entries.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// The common parameters become `own`; counts those that are not finite.
template <class T>
__global__ void start_common(T const* own, std::uint64_t n, float* common, std::uint32_t* bad) {
  for_each(n, [&](std::uint64_t i) {
    common[i] = to_float(own[i]);
    if (!is_finite(common[i])) atomicAdd(bad, 1u);
  });
}

/// Takes the optimizer's update, times a factor, out of own parameters. `update` may be their memory.
template <class T, class Stored>
__global__ void take_updates(T const* own, std::uint64_t n, float const* common, Stored const* unsent, float weight,
                             float factor, float* update) {
  for_each(n, [&](std::uint64_t i) {
    update[i] = detail::own_update<T>(own[i], common[i], to_float(unsent[i]), weight, factor);
  });
}

/// Moves the common parameters by the mean and writes own ones. `own` may be the mean's memory.
template <class T, class Stored>
__global__ void move_parameters(T* own, std::uint64_t n, float* common, Stored const* unsent, float weight,
                                float const* mean) {
  for_each(n, [&](std::uint64_t i) {
    float const moved = detail::moved_common(common[i], mean[i]);
    own[i] = detail::own_parameter<T>(moved, to_float(unsent[i]), weight);
    common[i] = moved;
  });
}

/// Writes own parameters of common ones.
template <class T, class Stored>
__global__ void write_own(T* own, std::uint64_t n, float const* common, Stored const* unsent, float weight) {
  for_each(n, [&](std::uint64_t i) { own[i] = detail::own_parameter<T>(common[i], to_float(unsent[i]), weight); });
}

/// The same with updates that were taken out. `own` may be the updates' memory.
template <class T, class Stored>
__global__ void write_updated(T* own, std::uint64_t n, float const* common, Stored const* unsent, float weight,
                              float factor, float const* update) {
  for_each(n, [&](std::uint64_t i) {
    own[i] = detail::with_update<T>(update[i], common[i], to_float(unsent[i]), weight, factor);
  });
}

}  // namespace gradsieve::cuda_kernels
