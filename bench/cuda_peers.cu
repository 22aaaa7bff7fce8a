// The same step with what CUDA's libraries offer, and with selectors as they are published: own plain code.
#include "cuda_peers.cuh"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/tuple.h>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>

namespace bench {
namespace {

__device__ std::uint64_t first_item() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::uint64_t all_threads() { return std::uint64_t{gridDim.x} * blockDim.x; }

constexpr int threads = 512;

/// Blocks for a kernel that strides over n items.
unsigned blocks(std::uint64_t n, std::uint64_t most = 1 << 12) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>((n + threads - 1) / threads, 1, most));
}

void launched() { gs::throw_on_error(cudaGetLastError(), "a launch"); }

__global__ void zero_kernel(entries sent, float* residual) {
  for (auto e = first_item(); e < *sent.count; e += all_threads()) residual[sent.indices[e]] = 0;
}

__global__ void store_kernel(gs::index_type value, gs::index_type* to) { *to = value; }
__global__ void start_kernel(radix_select::progress* at, radix_select::progress start) { *at = start; }

__global__ void digit_histogram(float const* values, std::uint64_t n, radix_select::progress const* at, int shift,
                                std::uint32_t* counts) {
  __shared__ std::uint32_t own[256];
  for (int d = static_cast<int>(threadIdx.x); d < 256; d += static_cast<int>(blockDim.x)) own[d] = 0;
  __syncthreads();
  auto const prefix = at->prefix;
  auto const mask = at->mask;
  for (auto i = first_item(); i < n; i += all_threads()) {
    auto const key = gs::magnitude_key(values[i]);
    if ((key & mask) == prefix) atomicAdd(&own[(key >> shift) & 255], 1);
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < 256; d += static_cast<int>(blockDim.x))
    if (own[d] != 0) atomicAdd(&counts[d], own[d]);
}

/// The digit of the k-th key becomes part of the prefix; the counts are 0 again. One block of 256 threads.
__global__ void pick_digit(radix_select::progress* at, int shift, std::uint32_t* counts) {
  using scan = cub::BlockScan<std::uint32_t, 256>;
  __shared__ typename scan::TempStorage memory;
  auto const digit = 255 - threadIdx.x;
  auto const here = counts[digit];
  auto const wanted = at->wanted;
  counts[digit] = 0;
  std::uint32_t above = 0;
  scan{memory}.ExclusiveSum(here, above);
  if (above < wanted && wanted <= above + here) {
    at->prefix |= digit << shift;
    at->mask |= 255u << shift;
    at->wanted = wanted - above;
  }
}

__global__ void sample_kernel(float const* values, std::uint64_t stride, std::uint64_t count, float* out) {
  for (auto i = first_item(); i < count; i += all_threads()) out[i] = fabsf(values[i * stride]);
}

__global__ void keys_kernel(float const* values, std::uint64_t n, gs::key_type* keys, gs::index_type* indices) {
  for (auto i = first_item(); i < n; i += all_threads()) {
    keys[i] = gs::magnitude_key(values[i]);
    if (indices != nullptr) indices[i] = static_cast<gs::index_type>(i);
  }
}

__global__ void gather_kernel(float const* values, gs::index_type const* from, std::uint64_t count,
                              gs::index_type* indices, float* out) {
  for (auto e = first_item(); e < count; e += all_threads()) {
    indices[e] = from[e];
    out[e] = values[from[e]];
  }
}

/// A threshold 0.8 times as large.
__global__ void lower_kernel(gs::key_type* threshold) {
  *threshold = gs::magnitude_key(0.8f * gs::magnitude_of(*threshold));
}

struct at_least {
  gs::key_type const* threshold;
  __device__ bool operator()(thrust::tuple<gs::index_type, float> const& entry) const {
    return gs::magnitude_key(thrust::get<1>(entry)) >= *threshold;
  }
};

/// A peer that collects what a threshold in device memory keeps, with cub::DeviceSelect: in order of the index.
class collector : public peer {
 protected:
  using peer::peer;

  void collect(gs::key_type const* threshold) {
    collect(thrust::make_zip_iterator(thrust::counting_iterator<gs::index_type>{0},
                                      static_cast<float const*>(residual_.data())),
            n_, threshold, indices_, values_);
  }

  template <class Entries>
  void collect(Entries from, std::uint64_t count, gs::key_type const* threshold,
               gs::cuda_buffer<gs::index_type>& indices, gs::cuda_buffer<float>& values) {
    auto const to = thrust::make_zip_iterator(indices.data(), values.data());
    with_memory([&](void* memory, std::size_t& bytes) {
      return cub::DeviceSelect::If(memory, bytes, from, to, count_.data(), static_cast<std::int64_t>(count),
                                   at_least{threshold}, stream());
    });
  }
};

/// The best that CUB's pieces can do: somebody says the true threshold, and one pass collects.
class select_oracle : public collector {
 public:
  static constexpr double least = 1, most = 1.02;  // equal keys
  explicit select_oracle(setting const& at) : collector{at, at.n}, accumulator_{where_, at.n} {}

  void prepare(std::span<float const> gradient) {
    where_.copy(std::as_bytes(residual_.span()), std::as_writable_bytes(accumulator_.span()));
    accumulate(accumulator_.data(), gradient);
    threshold_ = select_(accumulator_.span(), k_);
  }

  void step(std::span<float const> gradient) {
    accumulate(residual_.data(), gradient);
    collect(threshold_);
    zero_sent(sent(), n_, residual_.data());
  }

 private:
  radix_select select_;
  gs::cuda_buffer<float> accumulator_;
  gs::key_type const* threshold_ = nullptr;
};

/// radix_select, and a pass that collects.
class published_radix : public collector {
 public:
  static constexpr double least = 1, most = 1.02;
  explicit published_radix(setting const& at) : collector{at, at.n} {}

  void step(std::span<float const> gradient) {
    accumulate(residual_.data(), gradient);
    collect(select_(residual_.span(), k_));
    zero_sent(sent(), n_, residual_.data());
  }

 private:
  radix_select select_;
};

/// (key, index) pairs of all elements sorted.
class sort_pairs : public peer {
 public:
  static constexpr double least = 1, most = 1;
  explicit sort_pairs(setting const& at) : peer{at, at.k()}, keys_{where_, 2 * at.n}, places_{where_, 2 * at.n} {}

  void step(std::span<float const> gradient) {
    accumulate(residual_.data(), gradient);
    keys_kernel<<<blocks(n_), threads, 0, stream()>>>(residual_.data(), n_, keys_.data(), places_.data());
    launched();
    cub::DoubleBuffer<gs::key_type> keys{keys_.data(), keys_.data() + n_};
    cub::DoubleBuffer<gs::index_type> places{places_.data(), places_.data() + n_};
    with_memory([&](void* memory, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortPairsDescending(memory, bytes, keys, places, static_cast<std::int64_t>(n_), 0,
                                                       31, stream());
    });
    gather_kernel<<<blocks(k_), threads, 0, stream()>>>(residual_.data(), places.Current(), k_, indices_.data(),
                                                        values_.data());
    launched();
    zero_sent(sent(), k_, residual_.data());
  }

 private:
  gs::cuda_buffer<gs::key_type> keys_;
  gs::cuda_buffer<gs::index_type> places_;
};

/// All keys sorted: the k-th is the threshold.
class sort_keys : public collector {
 public:
  static constexpr double least = 1, most = 1.02;
  explicit sort_keys(setting const& at) : collector{at, at.n}, keys_{where_, 2 * at.n} {}

  void step(std::span<float const> gradient) {
    accumulate(residual_.data(), gradient);
    keys_kernel<<<blocks(n_), threads, 0, stream()>>>(residual_.data(), n_, keys_.data(), nullptr);
    launched();
    cub::DoubleBuffer<gs::key_type> keys{keys_.data(), keys_.data() + n_};
    with_memory([&](void* memory, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortKeysDescending(memory, bytes, keys, static_cast<std::int64_t>(n_), 0, 31,
                                                      stream());
    });
    collect(keys.Current() + (k_ - 1));
    zero_sent(sent(), n_, residual_.data());
  }

 private:
  gs::cuda_buffer<gs::key_type> keys_;
};

/// Two levels, as Deep Gradient Compression's code has them: a sample of 1 % gives the threshold; what reaches it is
/// collected and counted by the host, again with a lower one where that is less than 0.8 k. With `Sorts`, the sample is
/// sorted, and what was collected too if it is more than 1.3 k; else radix_select does both, and whenever it is more
/// than k, which is the hierarchical selection that LDTE-BS compares with.
template <bool Sorts>
class two_level : public collector {
 public:
  static constexpr double least = 0.79, most = Sorts ? 1.3 : 1.02;
  explicit two_level(setting const& at)
      : collector{at, at.n},
        sample_{where_, at.n / stride + 1},
        keys_{where_, 2 * at.n},
        again_{where_, at.n},
        sorted_{where_, at.n} {}

  void step(std::span<float const> gradient) {
    accumulate(residual_.data(), gradient);
    auto* const threshold = sample_threshold();
    collect(threshold);
    auto count = read_count();
    for (int tries = 0; tries < 10 && count < k_ - k_ / 5; ++tries) {
      lower_kernel<<<1, 1, 0, stream()>>>(threshold);
      launched();
      collect(threshold);
      count = read_count();
    }
    if (count > (Sorts ? k_ + k_ / 10 * 3 : k_)) shorten(count);
    zero_sent(sent(), n_, residual_.data());
  }

 private:
  static constexpr std::uint64_t stride = 100;

  gs::key_type* sample_threshold() {
    auto const size = (n_ + stride - 1) / stride;
    sample_kernel<<<blocks(size), threads, 0, stream()>>>(residual_.data(), stride, size, sample_.data());
    launched();
    auto const ratio = static_cast<double>(k_) / static_cast<double>(n_);
    auto const rank = static_cast<std::uint64_t>(std::ceil(ratio * static_cast<double>(size)));
    if constexpr (!Sorts) return select_(sample_.first(size), rank);
    keys_kernel<<<blocks(size), threads, 0, stream()>>>(sample_.data(), size, keys_.data(), nullptr);
    launched();
    cub::DoubleBuffer<gs::key_type> keys{keys_.data(), keys_.data() + size};
    with_memory([&](void* memory, std::size_t& bytes) {
      return cub::DeviceRadixSort::SortKeysDescending(memory, bytes, keys, static_cast<int>(size), 0, 31, stream());
    });
    return keys.Current() + (rank - 1);
  }

  /// Of more entries than wanted, the k largest.
  void shorten(gs::index_type count) {
    if constexpr (!Sorts) {
      auto const* const threshold = select_(values_.first(count), k_);
      auto const found = thrust::make_zip_iterator(static_cast<gs::index_type const*>(indices_.data()),
                                                   static_cast<float const*>(values_.data()));
      collect(found, count, threshold, again_, sorted_);
      std::swap(indices_, again_);
      std::swap(values_, sorted_);
    } else {
      keys_kernel<<<blocks(count), threads, 0, stream()>>>(values_.data(), count, keys_.data(), nullptr);
      launched();
      cub::DoubleBuffer<gs::key_type> keys{keys_.data(), keys_.data() + count};
      cub::DoubleBuffer<gs::index_type> places{indices_.data(), again_.data()};
      with_memory([&](void* memory, std::size_t& bytes) {
        return cub::DeviceRadixSort::SortPairsDescending(memory, bytes, keys, places, static_cast<int>(count), 0, 31,
                                                         stream());
      });
      if (places.Current() == again_.data()) std::swap(indices_, again_);
      gather_kernel<<<blocks(k_), threads, 0, stream()>>>(residual_.data(), indices_.data(), k_, indices_.data(),
                                                          values_.data());
      launched();
      set_count(k_);
    }
  }

  radix_select select_;
  gs::cuda_buffer<float> sample_;
  gs::cuda_buffer<gs::key_type> keys_;
  gs::cuda_buffer<gs::index_type> again_;
  gs::cuda_buffer<float> sorted_;
};

}  // namespace

void zero_sent(entries sent, std::uint64_t most, float* residual) {
  zero_kernel<<<blocks(most), threads, 0, stream()>>>(sent, residual);
  launched();
}

void store(gs::index_type value, gs::index_type* to) {
  store_kernel<<<1, 1, 0, stream()>>>(value, to);
  launched();
}

gs::key_type* radix_select::operator()(std::span<float const> values, std::uint64_t k) {
  start_kernel<<<1, 1, 0, stream()>>>(state_.data(), {0, 0, static_cast<std::uint32_t>(k)});
  launched();
  for (int shift = 24; shift >= 0; shift -= 8) {
    digit_histogram<<<blocks(values.size(), 512), threads, 0, stream()>>>(values.data(), values.size(), state_.data(),
                                                                          shift, counts_.data());
    launched();
    pick_digit<<<1, 256, 0, stream()>>>(state_.data(), shift, counts_.data());
    launched();
  }
  return &state_.data()->prefix;
}

part const peers{[] {
  for_peer_settings([](setting const& at) {
    add_peer<select_oracle>("select_oracle", at);
    add_peer<published_radix>("published_radix", at);
    add_peer<two_level<false>>("published_hierarchical", at);
    add_peer<two_level<true>>("dgc", at);
    add_peer<sort_pairs>("sort_pairs", at);
    add_peer<sort_keys>("sort_keys", at);
  });
}};

}  // namespace bench
