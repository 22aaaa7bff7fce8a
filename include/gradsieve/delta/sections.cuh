// Sections of a weight delta in device memory: unaligned bytes, and the entries of a section.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <cub/block/block_scan.cuh>

#include <gradsieve/cuda/codec/messages.cuh>
#include <gradsieve/cuda/codec/packed_fields.cuh>
#include <gradsieve/cuda/device.cuh>
#include <gradsieve/cuda/launch.cuh>
#include <gradsieve/cuda/passes/entries.cuh>
#include <gradsieve/cuda/passes/warp.cuh>
#include <gradsieve/cuda/pieces.cuh>
#include <gradsieve/cuda/tuning.cuh>
#include <gradsieve/delta/format.hpp>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// A delta_section, and its first word in a bitmap of all sections.
struct section_place {
  std::uint64_t first;
  std::uint32_t size;
  std::uint32_t bits;  // in units of 64 elements
};

/// Weights of all sections: contiguous, or where each section begins.
struct weights_view {
  std::byte* flat;
  std::byte* const* sections;

  template <unsigned Width>
  [[nodiscard]] __device__ std::byte* at(section_place const& place, std::uint64_t s) const {
    return sections != nullptr ? sections[s] : flat + place.first * Width;
  }
};

/// Copies bytes between any addresses. By all threads of a block.
__device__ inline void copy_bytes(std::byte const* from, std::uint64_t count, std::byte* to) {
  std::uint64_t const head = smaller(count, (8 - reinterpret_cast<std::uintptr_t>(to) % 8) % 8);
  std::uint64_t const words = (count - head) / 8;
  if (threadIdx.x < head) to[threadIdx.x] = from[threadIdx.x];
  for (std::uint64_t w = threadIdx.x; w < words; w += blockDim.x)
    store_value<8>(to + head + 8 * w, load_word(from + head + 8 * w, count - head - 8 * w));
  for (std::uint64_t i = head + 8 * words + threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

/// A chunk's header as words.
struct header_of_chunk {
  std::uint64_t words[8];
};

/// Elements of a bitmap that a thread of a block lists: all of a section's are divided among the threads, in order.
inline constexpr unsigned delta_threads = launch_threads;
inline constexpr unsigned delta_words = detail::delta_section::most / 64 / delta_threads;

/// Bits set in the words before this thread's, and those in all. Word i of thread t is number t * Words + i.
template <unsigned Words>
struct block_ranks {
  using scan = CUB_NS_QUALIFIER::BlockScan<std::uint32_t, delta_threads>;
  typename scan::TempStorage scratch;

  /// By all threads of a block, after which they may call it again.
  __device__ std::uint32_t before(std::uint64_t const (&words)[Words], std::uint32_t& total) {
    std::uint32_t own = 0;
    for (auto const word : words) own += static_cast<std::uint32_t>(__popcll(word));
    std::uint32_t before = 0;
    scan(scratch).ExclusiveSum(own, before, total);
    __syncthreads();
    return before;
  }
};

/// The checksum words of a chunk behind its header, this thread's share.
[[nodiscard]] __device__ inline std::uint64_t share_of_chunk(std::byte const* chunk, std::uint64_t bytes,
                                                             thread_team const& team) {
  constexpr std::uint64_t header = detail::delta_header::bytes;
  std::uint64_t own = 0;
  team.for_each((bytes - header + 7) / 8, [&](std::uint64_t w) {
    own += wire::mixed(load_word(chunk + header + 8 * w, bytes - header - 8 * w), w + 1);
  });
  return own;
}
/// A chunk's checksum, from the sum of these shares.
[[nodiscard]] __device__ inline std::uint64_t chunk_checksum(std::byte const* chunk, std::uint64_t bytes,
                                                             std::uint64_t sum) {
  constexpr std::uint64_t words = detail::delta_header::bytes / 8 - 1;
  std::uint64_t head = wire::mixed(8 * words, 0);
  for (std::uint64_t w = 0; w < words; ++w) head += wire::mixed(load_word(chunk + 8 * w, 8), w + 1);
  return sum + wire::mixed(bytes - detail::delta_header::bytes, head);
}

/// Adds the checksums of all sections; see weights_fingerprint().
template <unsigned Width>
__global__ void __launch_bounds__(delta_threads)
    fingerprint_sections(section_place const* places, std::uint64_t sections, weights_view const weights,
                         std::uint64_t* total) {
  __shared__ std::uint64_t sum;
  for (std::uint64_t s = blockIdx.x; s < sections; s += gridDim.x) {
    auto const place = places[s];
    std::uint64_t const bytes = std::uint64_t{place.size} * Width;
    auto const* const from = weights.at<Width>(place, s);
    if (threadIdx.x == 0) sum = wire::mixed(bytes, 0);
    __syncthreads();
    std::uint64_t own = 0;
    for (std::uint64_t w = threadIdx.x; 8 * w < bytes; w += blockDim.x)
      own += wire::mixed(load_word(from + 8 * w, bytes - 8 * w), w + 1);
    add_words(&sum, own);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(total), wire::mixed(sum, s + 1));
  }
}

}  // namespace gradsieve::cuda_kernels
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI::detail {

template <>
struct weight_memory<device> {
  template <class Weights>
  [[nodiscard]] static auto span_of(Weights& weights) {
    auto const values = device_span(weights);
    using element = typename decltype(values)::element_type;
    using value = library_value<std::remove_cv_t<element>>;
    using result = std::conditional_t<std::is_const_v<element>, value const, value>;
    return std::span<result>{reinterpret_cast<result*>(values.data()), values.size()};
  }
};

/// The sections of a layout in device memory, what kernels note of them, and a state that outlasts launches.
template <class State>
class device_sections {
 public:
  device_sections(device where, std::vector<delta_section> all, State const& state)
      : where_{where}, all_{std::move(all)}, state_{where, 1} {
    std::vector<cuda_kernels::section_place> places;
    for (auto const& [first, size] : all_) {
      places.push_back({first, size, static_cast<std::uint32_t>(words_)});
      words_ += (size + 63) / 64;
    }
    places_ = uploaded(std::span<cuda_kernels::section_place const>{places});
    set_state(state);
  }

  [[nodiscard]] device const& where() const noexcept { return where_; }
  [[nodiscard]] std::span<delta_section const> sections() const noexcept { return all_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return all_.size(); }
  [[nodiscard]] cuda_kernels::section_place const* places() const noexcept { return places_.data(); }
  [[nodiscard]] std::uint64_t words() const noexcept { return words_; }  // of 64 bits, in a bitmap of all sections
  [[nodiscard]] unsigned blocks() const noexcept {
    return static_cast<unsigned>(smaller<std::uint64_t>(larger<std::uint64_t>(count(), 1), 1u << 30));
  }

  [[nodiscard]] State* on_device() const noexcept { return state_.data(); }
  [[nodiscard]] State state() const { return downloaded(where_, std::span<State const>{state_.span()})[0]; }
  void set_state(State const& to) const { upload(where_, std::span<State const>{&to, 1}, state_.span()); }

  template <class T>
  [[nodiscard]] cuda_buffer<T> uploaded(std::span<T const> values) const {
    cuda_buffer<T> made{where_, values.size()};
    upload(where_, values, made.span());
    return made;
  }

 private:
  device where_;
  std::vector<delta_section> all_;
  std::uint64_t words_ = 0;
  cuda_buffer<cuda_kernels::section_place> places_;
  cuda_buffer<State> state_;
};

/// Where a caller's weights are, by section. Pieces that end inside of a section are copied to contiguous memory.
class device_weights {
 public:
  /// A view for kernels. Other pieces than before are noted in device memory, which waits; those of a capture stay
  /// there.
  template <class State, class T>
  [[nodiscard]] cuda_kernels::weights_view view(device_sections<State> const& sections,
                                                gradient_ref<T> const& weights) {
    auto const at = [](T* from) { return reinterpret_cast<std::byte*>(const_cast<std::remove_const_t<T>*>(from)); };
    copied_ = false;
    if (weights.in_one_piece()) return {at(weights.flat().data()), nullptr};
    std::vector<std::byte*> begins;
    for (auto const& each : sections.sections()) {
      auto const run = weights.run(each.first);
      if (copied_ = run.size() < each.size; copied_) {
        gradient_ref<std::remove_const_t<T> const> const all{weights};
        return {at(const_cast<T*>(copy_.read(sections.where(), all).data())), nullptr};
      }
      begins.push_back(at(run.data()));
    }
    auto found = std::ranges::find(tables_, begins, &table::begins);
    if (found == tables_.end()) {
      auto made = sections.uploaded(std::span<std::byte* const>{begins});
      found = std::ranges::find(tables_, false, &table::captured);
      if (found == tables_.end()) found = tables_.emplace(found);
      *found = {std::move(begins), std::move(made)};
    }
    found->captured = found->captured || sections.where().is_captured();
    return {nullptr, found->on_device.data()};
  }
  /// After kernels have written to the view.
  template <class T>
  void write_back(device const& where, gradient_ref<T> const& weights) const {
    if (copied_) copy_.write(where, weights);
  }

 private:
  struct table {
    std::vector<std::byte*> begins{};
    cuda_buffer<std::byte*> on_device{};
    bool captured = false;
  };
  flat_gradient copy_;
  bool copied_ = false;
  std::vector<table> tables_;
};

}  // namespace gradsieve::detail
