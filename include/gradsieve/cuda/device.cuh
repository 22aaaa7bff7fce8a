// The device space: a stream of one GPU, and where its memory comes from; CUDA's error codes as exceptions.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <gradsieve/core/error.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Throws if a CUDA call has failed. @throws device_error, naming the call, the code and its text.
inline void throw_on_error(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would be blamed for it
  throw device_error(std::string{"gradsieve: "} + call + " failed with " + cudaGetErrorName(code) + " (" +
                     std::to_string(static_cast<int>(code)) + "): " + cudaGetErrorString(code));
}

/// cudaMalloc and cudaFree as a memory resource: the default of a device. Stateless.
class cuda_memory_resource final : public std::pmr::memory_resource {
 public:
  /// The only object.
  [[nodiscard]] static std::pmr::memory_resource* instance() noexcept {
    static cuda_memory_resource one;
    return &one;
  }

 private:
  /// @cond internal
  void* do_allocate(std::size_t bytes, std::size_t) override {
    void* memory = nullptr;
    throw_on_error(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t) override { cudaFree(memory); }  // nothing to be done here
  [[nodiscard]] bool do_is_equal(std::pmr::memory_resource const& other) const noexcept override {
    return this == &other;
  }
  /// @endcond
};

namespace detail {

template <class Recipe>
class device_step;
class device_node_exchange;  // cuda/exchange/node_exchange.cuh
template <class T>
class device_parameters;  // cuda/parameters.cuh
class device_moments;     // cuda/moments.cuh

}  // namespace detail

class cuda_workspace;
template <class Codec>
class device_codec;  // cuda/codec/codec.cuh
template <class Exchange, class Codec>
class device_exchange;  // cuda/exchange/device_exchange.cuh
template <class Values>
class device_value_sum;  // cuda/exchange/value_sum.cuh
struct raw32;
namespace cuda_kernels {
template <bool FullGrid, class Read>
class kernel_workspace;
template <class Stored>
struct from_memory;
}  // namespace cuda_kernels

/// The space of one GPU, in the order of one stream. Compressors and averagers take device memory from `memory` at
/// construction, aligned to 256 bytes; a step allocates nothing. The caller owns stream and memory, and both must
/// outlive every owner. The device that is current at construction must be current at every call.
struct device {
  /// @cond internal
  using workspace = cuda_workspace;
  template <class Recipe>
  using step = detail::device_step<Recipe>;
  using node_exchange = detail::device_node_exchange;
  template <class T>
  using parameters = detail::device_parameters<T>;
  using moments = detail::device_moments;
  template <class Stored>
  using selector_view = cuda_kernels::kernel_workspace<true, cuda_kernels::from_memory<Stored>>;
  static constexpr bool stream_ordered = true;
  template <class>
  static constexpr bool keeps = true;
  template <class Codec>
  static constexpr bool encodes_with = std::default_initializable<device_codec<Codec>>;
  template <class Exchange, class Codec>
  static constexpr bool exchanges_with = std::default_initializable<device_exchange<Exchange, Codec>>;
  /// True for u32 indices and values that have a device_value_sum.
  template <class Codec>
  static constexpr bool sums_with = requires {
    requires std::same_as<std::remove_cvref_t<decltype(Codec::indices)>, raw32>;
    sizeof(device_value_sum<std::remove_cvref_t<decltype(Codec::values)>>);
  };

  /// @endcond

  cudaStream_t stream = nullptr;                                         ///< in which all work runs
  std::pmr::memory_resource* memory = cuda_memory_resource::instance();  ///< source of device memory
  /// Most blocks that search a segment together. 0: about one per 2048 to 16,384 elements, at most two per
  /// multiprocessor, and one launch for a whole step on a small gradient. Selections do not depend on it.
  std::uint32_t search_blocks = 0;

  /// Copies bytes to, from or within device memory, in stream order. @pre equal sizes
  void copy(std::span<std::byte const> from, std::span<std::byte> to) const {
    if (from.empty() || from.data() == to.data()) return;
    throw_on_error(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }

  /// Synchronises the stream. @throws invalid_argument as refuse_capture(); device_error.
  void synchronize() const {
    wait_for([] {});
  }

  /// Runs enqueue(), which enqueues copies to or from host memory, and waits until they are done.
  /// @throws invalid_argument as refuse_capture(), before it has enqueued anything; device_error.
  template <class Enqueue>
  void wait_for(Enqueue const& enqueue) const {
    refuse_capture("it waits for the stream");
    enqueue();
    throw_on_error(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  /// True while the stream is captured. @throws device_error
  [[nodiscard]] bool is_captured() const {
    auto status = cudaStreamCaptureStatusNone;
    throw_on_error(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }
  /// Refuses what a CUDA graph cannot hold. @throws invalid_argument while the stream is captured; the capture goes on.
  void refuse_capture(char const* why) const {
    if (is_captured())
      throw invalid_argument(std::string{"gradsieve: this call cannot be captured in a graph: "} + why +
                             "; make the step once before the capture");
  }

  friend bool operator==(device const&, device const&) = default;
};

/// Device memory for values of a trivial type, uninitialised. Move-only.
template <class T>
class cuda_buffer {
 public:
  cuda_buffer() noexcept = default;
  /// Memory for `size` values, from the device's resource. @throws what the resource throws; invalid_argument in a
  /// capture, as a graph would go on using memory that is freed.
  cuda_buffer(device const& where, std::uint64_t size)
      : data_{size == 0 ? nullptr : allocate(where, size)}, size_{size}, memory_{where.memory} {}
  /// Takes over the other's memory.
  cuda_buffer(cuda_buffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)}, memory_{other.memory_} {}
  /// Swaps memory with the other, which then frees it.
  cuda_buffer& operator=(cuda_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~cuda_buffer() {
    if (data_ != nullptr) memory_->deallocate(data_, size_ * sizeof(T), alignment);
  }

  [[nodiscard]] T* data() const noexcept { return data_; }                     ///< in device memory
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }          ///< number of values
  [[nodiscard]] std::span<T> span() const noexcept { return {data_, size_}; }  ///< all values
  /// The first values. @pre count <= size()
  [[nodiscard]] std::span<T> first(std::uint64_t count) const noexcept { return {data_, count}; }

 private:
  static constexpr std::size_t alignment = 256;

  [[nodiscard]] static T* allocate(device const& where, std::uint64_t size) {
    where.refuse_capture("it allocates");
    return static_cast<T*>(where.memory->allocate(size * sizeof(T), alignment));
  }

  T* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::pmr::memory_resource* memory_ = nullptr;
};

/// @cond internal
/// A CUDA event without timing. One that was never recorded counts as passed.
class cuda_event {
 public:
  cuda_event() {
    throw_on_error(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  cuda_event(cuda_event const&) = delete;
  cuda_event& operator=(cuda_event const&) = delete;
  ~cuda_event() { cudaEventDestroy(handle_); }

  void record(device const& where) const { throw_on_error(cudaEventRecord(handle_, where.stream), "cudaEventRecord"); }
  /// Waits until the stream has passed the event.
  void synchronize() const { throw_on_error(cudaEventSynchronize(handle_), "cudaEventSynchronize"); }

 private:
  cudaEvent_t handle_ = nullptr;
};

/// Values in pinned host memory, zero at first, for copies and host functions in a stream.
template <class T>
class pinned_array {
 public:
  pinned_array() noexcept = default;
  explicit pinned_array(std::uint64_t size) : size_{size} {
    if (size > 0) throw_on_error(cudaMallocHost(reinterpret_cast<void**>(&data_), size * sizeof(T)), "cudaMallocHost");
    if (size > 0) std::memset(static_cast<void*>(data_), 0, size * sizeof(T));
  }
  pinned_array(pinned_array&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}
  pinned_array& operator=(pinned_array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~pinned_array() {
    if (data_ != nullptr) cudaFreeHost(data_);
  }

  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::uint64_t i) const noexcept { return data_[i]; }
  [[nodiscard]] std::span<T> span() const noexcept { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// @endcond

}  // namespace gradsieve
