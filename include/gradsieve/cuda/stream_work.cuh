// Memory and launches in the order of a stream.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/tuning.cuh>

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// Makes, fills and copies device memory, and launches kernels, all in the order of a device's stream.
class stream_work {
 public:
  template <class T>
  using buffer = cuda_buffer<T>;

  explicit stream_work(device const& where) : where_{where} {
    int id = 0;
    throw_on_error(cudaGetDevice(&id), "cudaGetDevice");
    throw_on_error(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, id), "cudaDeviceGetAttribute");
    kernel_list::load();
  }

  [[nodiscard]] device const& where() const noexcept { return where_; }
  [[nodiscard]] int processors() const noexcept { return processors_; }  // multiprocessors

  /// Allocates zeroed device memory.
  template <class T>
  [[nodiscard]] buffer<T> zeroed(std::uint64_t size) const {
    buffer<T> made(where_, size);
    zero(made);
    return made;
  }

  template <class T>
  void zero(buffer<T> const& memory) const {
    if (memory.size() > 0)
      throw_on_error(cudaMemsetAsync(memory.data(), 0, memory.size() * sizeof(T), where_.stream), "cudaMemsetAsync");
  }

  void zero_one(std::uint64_t* word) const {
    throw_on_error(cudaMemsetAsync(word, 0, sizeof *word, where_.stream), "cudaMemsetAsync");
  }

  /// Allocates a copy of host memory, which may be freed at once. Waits.
  template <class T>
  [[nodiscard]] buffer<T> uploaded(std::span<T const> values) const {
    buffer<T> made(where_, values.size());
    upload_now(values, made.span());
    return made;
  }

  template <class T>
  void upload(std::span<T const> from, std::span<T> to) const {
    where_.copy(std::as_bytes(from), std::as_writable_bytes(to));
  }

  /// Copies from host memory, which may be freed at once. Waits.
  template <class T>
  void upload_now(std::span<T const> from, std::span<T> to) const {
    detail::upload(where_, from, to);
  }

  template <class T>
  [[nodiscard]] std::vector<T> downloaded(std::span<T const> from) const {  // waits
    return detail::downloaded(where_, from);
  }

  template <class T>
  [[nodiscard]] T download(T const* from) const {  // waits
    T value{};
    where_.wait_for(
        [&] { where_.copy(std::as_bytes(std::span{from, 1}), std::as_writable_bytes(std::span{&value, 1})); });
    return value;
  }

  /// Elements of a launch, in rows of blocks: blockIdx.y.
  struct extent {
    std::uint64_t count;  // of a row
    std::uint32_t rows;

    extent(std::uint64_t elements, std::uint32_t in_rows = 1) noexcept : count{elements}, rows{in_rows} {}
  };

  /// Launches a kernel over `count` elements, one thread each up to a full device.
  template <auto Kernel, unsigned Threads = cuda_kernels::loop_threads, unsigned Blocks = cuda_kernels::loop_blocks,
            class... Arguments>
  void over(extent count, Arguments const&... arguments) const {
    if (count.count > 0) launch<Kernel>(blocks_for<Threads, Blocks>(count), Threads, arguments...);
  }

  /// over() for a kernel that begins with wait_for_previous(). `after_kernel`: the previous work is a kernel of the
  /// library, so this one is launched early.
  template <auto Kernel, unsigned Threads = cuda_kernels::loop_threads, unsigned Blocks = cuda_kernels::loop_blocks,
            class... Arguments>
  void over_early_if(bool after_kernel, extent count, Arguments const&... arguments) const {
    if (!after_kernel) return over<Kernel, Threads, Blocks>(count, arguments...);
    if (count.count > 0) launch_early<Kernel>(blocks_for<Threads, Blocks>(count), Threads, arguments...);
  }

  /// over_early_if() after a kernel of the library.
  template <auto Kernel, unsigned Threads = cuda_kernels::loop_threads, unsigned Blocks = cuda_kernels::loop_blocks,
            class... Arguments>
  void over_early(extent count, Arguments const&... arguments) const {
    over_early_if<Kernel, Threads, Blocks>(true, count, arguments...);
  }

  template <auto Kernel, class... Arguments>
  void launch(dim3 blocks, unsigned threads, Arguments const&... arguments) const {
    launch_kernel<Kernel>(where_, blocks, threads, arguments...);
  }

  template <auto Kernel, class... Arguments>
  void launch_early(dim3 blocks, unsigned threads, Arguments const&... arguments) const {
    detail::launch_early<Kernel>(where_, blocks, threads, arguments...);
  }

  /// Launches at most as many blocks as can run at the same time; early only `after_kernel`, as over_early_if().
  template <auto Kernel, class... Arguments>
  void launch_group(bool after_kernel, unsigned most_blocks, unsigned threads, Arguments const&... arguments) const {
    int fit = 0;
    throw_on_error(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, Kernel, static_cast<int>(threads), 0),
                   "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    auto const blocks = std::min(most_blocks, static_cast<unsigned>(std::max(fit, 1) * processors_));
    after_kernel ? launch_early<Kernel>(blocks, threads, arguments...) : launch<Kernel>(blocks, threads, arguments...);
  }

 private:
  template <unsigned Threads, unsigned Blocks>
  [[nodiscard]] dim3 blocks_for(extent count) const noexcept {
    auto const most = std::max<std::uint64_t>(static_cast<std::uint64_t>(processors_) * Blocks / count.rows, 1);
    return {static_cast<unsigned>(std::min((count.count + Threads - 1) / Threads, most)), count.rows};
  }

  device where_;
  int processors_ = 1;
};

}  // namespace gradsieve::detail
