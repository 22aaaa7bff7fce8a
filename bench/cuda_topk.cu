// cub::DeviceTopK as a peer. Needs CUB 3.3 or newer; bench/gpu.sh puts newer headers before the toolkit's, if there
// are.
#include "cuda_peers.cuh"

#if __has_include(<cub/device/device_topk.cuh>)
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <cub/device/device_topk.cuh>
#include <cuda/iterator>
#include <cuda/stream>

namespace bench {
namespace {

struct to_key {
  __device__ gs::key_type operator()(float x) const { return __float_as_uint(x) << 1; }  // drops the sign
};

/// accumulator = residual + gradient, and its keys.
__global__ void accumulate_with_keys(std::uint64_t n, float* residual, float const* gradient, gs::key_type* keys) {
  auto const all = std::uint64_t{gridDim.x} * blockDim.x;
  for (auto i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += all) {
    residual[i] += gradient[i];
    keys[i] = to_key{}(residual[i]);
  }
}

/// The k largest, in no order. Keys are made from the accumulator as they are read; or, with `Stored`, written beside
/// it by the pass that accumulates, so that they can be read as vectors.
template <bool Stored>
class device_topk : public peer {
 public:
  static constexpr double least = 1, most = 1;
  explicit device_topk(setting const& at) : peer{at, at.k()}, keys_{where_, Stored ? at.n : 0} {}

  void step(std::span<float const> gradient) {
    if constexpr (Stored) {
      accumulate_with_keys<<<static_cast<unsigned>((n_ + 1023) / 1024), 256, 0, stream()>>>(
          n_, residual_.data(), gradient.data(), keys_.data());
      gs::throw_on_error(cudaGetLastError(), "a launch");
      select(static_cast<gs::key_type const*>(keys_.data()));
    } else {
      accumulate(residual_.data(), gradient);
      select(thrust::make_transform_iterator(static_cast<float const*>(residual_.data()), to_key{}));
    }
    zero_sent(sent(), k_, residual_.data());
  }

 private:
  template <class Keys>
  void select(Keys keys) {
    auto const from = thrust::make_zip_iterator(thrust::counting_iterator<gs::index_type>{0},
                                                static_cast<float const*>(residual_.data()));
    auto const to = thrust::make_zip_iterator(indices_.data(), values_.data());
    namespace execution = cuda::execution;
    auto const needs = execution::require(execution::determinism::not_guaranteed, execution::output_ordering::unsorted);
    auto const environment = cuda::std::execution::env{cuda::stream_ref{stream()}, needs};
    with_memory([&](void* memory, std::size_t& bytes) {
      return cub::DeviceTopK::MaxPairs(memory, bytes, keys, cuda::make_discard_iterator(), from, to,
                                       static_cast<std::uint32_t>(n_), static_cast<std::uint32_t>(k_), environment);
    });
  }

  gs::cuda_buffer<gs::key_type> keys_;
};

part const topk{[] {
  for_peer_settings([](setting const& at) {
    add_peer<device_topk<false>>("device_topk", at);
    add_peer<device_topk<true>>("device_topk_keys", at);
  });
}};

}  // namespace
}  // namespace bench
#endif
