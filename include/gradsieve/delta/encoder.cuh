// Encodes weight deltas on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/delta/encoder.hpp>
#include <gradsieve/delta/sections.cuh>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// Sections that changed, and the bytes of their entries.
struct delta_sum {
  std::uint64_t changed;
  std::uint64_t bytes;

  __device__ friend delta_sum operator+(delta_sum const& a, delta_sum const& b) {
    return {a.changed + b.changed, a.bytes + b.bytes};
  }
  __device__ friend delta_sum operator-(delta_sum const& a, delta_sum const& b) {
    return {a.changed - b.changed, a.bytes - b.bytes};
  }
};

/// Bytes of a chunk, which begins with section `first` at byte `at` of a message.
struct delta_chunk {
  std::uint64_t at;
  std::uint64_t bytes;
  std::uint32_t first;
  std::uint32_t sections;
  std::uint64_t sum;  // its checksum so far
};

struct delta_result {
  std::uint64_t bytes = 0;  // of the message
  std::uint64_t chunks = 0;
  std::uint64_t version = 0;  // that the last message leads to
  std::uint32_t tickets = 0;  // zero between launches
};

/// Arguments of the kernels.
struct delta_view {
  section_place const* places;
  std::uint64_t sections;
  weights_view before, after;
  std::byte* kept;  // gets what changed; may be null
  detail::delta_header about;
  bool counted;  // from the last version to the next number, instead of those of `about`
  std::uint64_t chunk_bytes;
  std::uint64_t* bits;      // of elements that changed
  std::uint32_t* counts;    // of each section: entries
  delta_sum* sums;          // of the sections before each
  std::uint32_t* chunk_of;  // of each section
  delta_chunk* chunks;
  delta_result* result;
  std::byte* message;
  std::uint64_t capacity;

  [[nodiscard]] __device__ bool fits() const { return result->bytes <= capacity; }
};

/// 16 bytes from any address on; those from `left` on are zero.
[[nodiscard]] __device__ inline ulonglong2 load_pair(std::byte const* at, std::uint64_t left) {
  if (reinterpret_cast<std::uintptr_t>(at) % 16 == 0 && left >= 16)
    return __ldcs(reinterpret_cast<ulonglong2 const*>(at));
  return {load_word(at, left), left > 8 ? load_word(at + 8, left - 8) : 0};
}

/// Compares each section, by one block, and counts its entries: all elements, if their indices would not pay.
template <unsigned Width>
__global__ void __launch_bounds__(delta_threads) find_changes(delta_view const of) {
  constexpr unsigned loads = 2;  // of each version, at once
  constexpr unsigned elements = 16 / Width;
  using marks_of_pair = unit_of<Width == 1 ? 2 : 1>;
  __shared__ std::uint32_t total;
  for (std::uint64_t s = blockIdx.x; s < of.sections; s += gridDim.x) {
    auto const place = of.places[s];
    std::uint64_t const bytes = std::uint64_t{place.size} * Width;
    auto const* const before = of.before.at<Width>(place, s);
    auto const* const after = of.after.at<Width>(place, s);
    auto* const marks = reinterpret_cast<marks_of_pair*>(of.bits + place.bits);
    std::uint32_t const pairs = (place.size + 63) / 64 * 4 * Width;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    std::uint32_t own = 0;
    for (std::uint32_t first = 0; first < pairs; first += loads * delta_threads) {
      ulonglong2 old[loads]{}, now[loads]{};
#pragma unroll
      for (unsigned v = 0; v < loads; ++v) {
        std::uint64_t const at = 16 * std::uint64_t{first + v * delta_threads + threadIdx.x};
        if (at >= bytes) continue;
        old[v] = load_pair(before + at, bytes - at);
        now[v] = load_pair(after + at, bytes - at);
      }
#pragma unroll
      for (unsigned v = 0; v < loads; ++v) {
        std::uint32_t const pair = first + v * delta_threads + threadIdx.x;
        std::uint64_t const change[] = {old[v].x ^ now[v].x, old[v].y ^ now[v].y};
        std::uint32_t here = 0;
#pragma unroll
        for (unsigned e = 0; e < elements; ++e)
          here |= (static_cast<unit_of<Width>>(change[e * Width / 8] >> (e * Width % 8 * 8)) != 0 ? 1u : 0u) << e;
        own += static_cast<std::uint32_t>(__popc(here));
        if constexpr (Width == 4) here |= __shfl_down_sync(~0u, here, 1) << elements;  // two pairs fill a byte
        if (pair < pairs && (Width < 4 || pair % 2 == 0))
          marks[Width < 4 ? pair : pair / 2] = static_cast<marks_of_pair>(here);
      }
    }
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) atomicAdd(&total, own);
    __syncthreads();
    if (threadIdx.x != 0) continue;
    detail::delta_section const section{place.first, place.size};
    of.counts[s] = total == 0 || section.is_sparse(total, Width) ? total : place.size;
  }
}

/// Divides the sections among chunks: as many as fit in each. One block.
template <unsigned Width>
__global__ void __launch_bounds__(part_threads) plan_chunks(delta_view const of) {
  using scan = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, part_threads>;
  __shared__ typename scan::TempStorage scratch;
  constexpr unsigned changed_bit = 48;  // above the bytes of as many sections
  delta_sum sum{0, 0};
  for (std::uint64_t first = 0; first <= of.sections; first += part_threads) {
    std::uint64_t const s = first + threadIdx.x;
    std::uint32_t const count = s < of.sections ? of.counts[s] : 0;
    std::uint64_t own = 0, all = 0;
    if (count > 0)
      own = detail::delta_section{0, of.places[s].size}.bytes(count, Width) | std::uint64_t{1} << changed_bit;
    scan(scratch).ExclusiveSum(own, own, all);
    auto const split = [](std::uint64_t x) {
      return delta_sum{x >> changed_bit, x & ((std::uint64_t{1} << changed_bit) - 1)};
    };
    if (s <= of.sections) of.sums[s] = sum + split(own);
    sum = sum + split(all);
    __syncthreads();
  }
  auto const bytes_of = [&](std::uint64_t first, std::uint64_t last) {
    auto const inside = of.sums[last] - of.sums[first];
    return detail::delta_header::chunk_bytes(last - first, inside.changed, inside.bytes);
  };
  std::uint64_t at = 0, first = 0, chunks = 0;
  do {
    std::uint64_t const last = first + count_before(of.sections - first, [&](std::uint64_t more) {
                                 return bytes_of(first, first + more + 1) <= of.chunk_bytes;
                               });
    for (std::uint64_t s = first + threadIdx.x; s < last; s += part_threads)
      of.chunk_of[s] = static_cast<std::uint32_t>(chunks);
    if (threadIdx.x == 0)
      of.chunks[chunks] = {at, bytes_of(first, last), static_cast<std::uint32_t>(first),
                           static_cast<std::uint32_t>(last - first), 0};
    at += bytes_of(first, last);
    first = last;
    ++chunks;
  } while (first < of.sections);
  if (threadIdx.x != 0) return;
  of.result->bytes = at;
  of.result->chunks = chunks;
}

/// Writes the entries of each section, by one block, and its share of what stands before them; unless all would not
/// fit.
template <unsigned Width>
__global__ void __launch_bounds__(delta_threads) write_sections(delta_view const of) {
  __shared__ block_ranks<delta_words> ranks;
  __shared__ std::uint32_t staged[detail::delta_section::most / 32 + 1];  // bytes of indices
  if (!of.fits()) return;
  for (std::uint64_t s = blockIdx.x; s < of.sections; s += gridDim.x) {
    auto const chunk = of.chunks[of.chunk_of[s]];
    auto* const bits = of.message + chunk.at + detail::delta_header::bytes;
    if ((s - chunk.first) % 8 == 0 && threadIdx.x == 0) {
      unsigned changed = 0;
      for (unsigned b = 0; b < 8 && s + b < chunk.first + chunk.sections; ++b)
        changed |= (of.counts[s + b] > 0 ? 1u : 0u) << b;
      bits[(s - chunk.first) / 8] = static_cast<std::byte>(changed);
    }
    std::uint32_t const count = of.counts[s];
    if (count == 0) continue;
    auto const place = of.places[s];
    auto const before = of.sums[s] - of.sums[chunk.first];
    auto* const numbers = bits + (chunk.sections + 7) / 8;
    auto* const to =
        numbers + 2 * (of.sums[chunk.first + chunk.sections] - of.sums[chunk.first]).changed + before.bytes;
    if (threadIdx.x == 0) store_value<2>(numbers + 2 * before.changed, count - 1);
    auto const* const after = of.after.at<Width>(place, s);
    auto* const kept = of.kept == nullptr ? nullptr : of.kept + place.first * Width;
    if (count == place.size) {
      copy_bytes(after, std::uint64_t{count} * Width, to);
      if (kept != nullptr) copy_bytes(after, std::uint64_t{count} * Width, kept);
      continue;
    }
    detail::delta_section const section{place.first, place.size};
    auto const parts = elias_fano::split(place.size, count);
    auto const index_bytes = section.index_bytes(count);
    bool const unary = parts.bytes() == index_bytes;
    std::uint64_t words[delta_words];
#pragma unroll
    for (unsigned v = 0; v < delta_words; ++v) {
      std::uint32_t const w = threadIdx.x * delta_words + v;
      words[v] = 64 * w < place.size ? of.bits[place.bits + w] : 0;
    }
    for (std::uint32_t i = threadIdx.x; i < sizeof(staged) / 4; i += delta_threads) staged[i] = 0;
    std::uint32_t all = 0;
    auto rank = ranks.before(words, all);
    auto const put = [&](std::uint64_t bit, std::uint32_t field, unsigned width) {
      unsigned const inside = bit % 32;
      atomicOr(&staged[bit / 32], field << inside);
      if (inside + width > 32) atomicOr(&staged[bit / 32 + 1], field >> (32 - inside));
    };
#pragma unroll
    for (unsigned v = 0; v < delta_words; ++v)
      for (auto word = words[v]; word != 0; word &= word - 1, ++rank) {
        std::uint32_t const i = (threadIdx.x * delta_words + v) * 64 + static_cast<std::uint32_t>(__ffsll(word)) - 1;
        if (unary) {
          if (parts.width > 0) put(std::uint64_t{rank} * parts.width, i & wire::low_bits(parts.width), parts.width);
          put(8 * parts.low + rank + (i >> parts.width), 1, 1);
        }
        auto const value = load_value<Width>(after + std::uint64_t{i} * Width);
        store_value<Width>(to + index_bytes + std::uint64_t{rank} * Width, value);
        if (kept != nullptr) store_value<Width>(kept + std::uint64_t{i} * Width, value);
      }
    __syncthreads();
    copy_bytes(
        unary ? reinterpret_cast<std::byte const*>(staged) : reinterpret_cast<std::byte const*>(of.bits + place.bits),
        index_bytes, to);
    __syncthreads();  // the memory is used again
  }
}

/// Writes the headers, and goes to the next version.
template <int = 0>
__global__ void __launch_bounds__(launch_threads) seal_delta(delta_view const of) {
  bool const fits = of.fits();
  auto const chunks = static_cast<std::uint32_t>(of.result->chunks);
  if (fits)
    for_each_sender(chunks, [&](std::uint32_t c, thread_team const& team) {
      add_words(&of.chunks[c].sum, share_of_chunk(of.message + of.chunks[c].at, of.chunks[c].bytes, team));
    });
  if (!is_last_block(&of.result->tickets) || !fits) return;
  auto about = of.about;
  if (of.counted) about.versions = {of.result->version, of.result->version + 1};
  __syncthreads();  // all have read it
  for (std::uint32_t c = threadIdx.x; c < chunks; c += blockDim.x) {
    auto const chunk = of.chunks[c];
    auto* const to = of.message + chunk.at;
    about.size = chunk.bytes;
    about.sections = chunk.first | std::uint64_t{chunk.sections} << 32;
    auto const header = __builtin_bit_cast(header_of_chunk, about);
    for (unsigned w = 0; w < 7; ++w) store_value<8>(to + 8 * w, header.words[w]);
    store_value<8>(to + 56, chunk_checksum(to, chunk.bytes, __ldcg(&of.chunks[c].sum)));
  }
  if (threadIdx.x == 0) of.result->version = about.versions.to;
}

}  // namespace gradsieve::cuda_kernels
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI::detail {

/// On a device. In a capture a message must fit the memory that there is; else a replay changes nothing.
template <>
class delta_writer<device> : public device_sections<cuda_kernels::delta_result> {
 public:
  delta_writer(device where, std::vector<delta_section> sections)
      : device_sections{where, std::move(sections), {}},
        bits_{where, words()},
        counts_{where, count()},
        sums_{where, count() + 1},
        chunk_of_{where, count()},
        table_{where, count() + 1} {
    kernel_list::load();
  }

  [[nodiscard]] std::span<std::span<std::byte const> const> chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }

  template <class T>
  void keep(gradient_ref<T const> from, std::uint64_t version) {
    grow(kept_, from.size_bytes());
    std::uint64_t at = 0;
    from.for_each_run(0, from.size(), [&](std::span<T const> run) {
      where().copy(std::as_bytes(run), kept_.span().subspan(at, run.size_bytes()));
      at += run.size_bytes();
    });
    set_state({.version = version});
    version_ = version;
  }

  void reserve(std::uint64_t bytes) { grow(message_, bytes); }

  template <class T>
  std::span<std::byte const> encode(std::optional<gradient_ref<T const>> before, gradient_ref<T const> after,
                                    delta_header about, std::uint64_t chunk_bytes, delta_versions const* versions) {
    constexpr unsigned width = sizeof(T);
    if (versions != nullptr) {
      where().refuse_capture("all replays would lead from and to the same versions");
      about.versions = *versions;
    }
    bool const captured = where().is_captured();
    captured_ = captured_ || captured;
    chunks_.clear();
    cuda_kernels::weights_view old{kept_.data(), nullptr};
    if (before) old = before_.view(*this, *before);
    cuda_kernels::delta_view view{places(),
                                  count(),
                                  old,
                                  after_.view(*this, after),
                                  before ? nullptr : kept_.data(),
                                  about,
                                  versions == nullptr,
                                  chunk_bytes,
                                  bits_.data(),
                                  counts_.data(),
                                  sums_.data(),
                                  chunk_of_.data(),
                                  table_.data(),
                                  on_device(),
                                  nullptr,
                                  0};
    launch_kernel<cuda_kernels::find_changes<width>>(where(), blocks(), cuda_kernels::delta_threads, view);
    launch_kernel<cuda_kernels::plan_chunks<width>>(where(), 1, cuda_kernels::part_threads, view);
    if (!captured)
      if (auto const bytes = state().bytes; bytes > message_.size()) reserve(captured_ ? bytes : bytes + bytes / 8);
    view.message = message_.data();
    view.capacity = message_.size();
    launch_kernel<cuda_kernels::write_sections<width>>(where(), blocks(), cuda_kernels::delta_threads, view);
    launch_blocks<cuda_kernels::seal_delta<>>(where(), seal_blocks, view);
    return captured ? message_.span() : message();
  }

  [[nodiscard]] std::span<std::byte const> message() {
    auto const now = state();
    if (now.bytes > message_.size())
      throw invalid_argument("gradsieve: a delta in a graph has " + std::to_string(now.bytes) +
                             " bytes, there is room for " + std::to_string(message_.size()) +
                             ": it was not written, and its changes are in the next one");
    chunks_.clear();
    for (auto const& each : downloaded(where(), std::span<cuda_kernels::delta_chunk const>{table_.first(now.chunks)}))
      chunks_.push_back(message_.first(now.bytes).subspan(each.at, each.bytes));
    version_ = now.version;
    return message_.first(now.bytes);
  }
  [[nodiscard]] std::vector<std::byte> copy_of(std::span<std::byte const> message) const {
    return downloaded(where(), message);
  }

 private:
  static constexpr std::uint64_t seal_blocks = 256;

  void grow(cuda_buffer<std::byte>& memory, std::uint64_t bytes) const {
    if (memory.size() >= bytes) return;
    if (captured_)
      throw invalid_argument("gradsieve: a graph uses this delta_encoder's memory, which has room for " +
                             std::to_string(memory.size()) + " bytes, not " + std::to_string(bytes) +
                             ": reserve() more before the capture");
    where().synchronize();  // it may still be read
    memory = cuda_buffer<std::byte>{where(), bytes};
  }

  device_weights before_, after_;
  cuda_buffer<std::uint64_t> bits_;
  cuda_buffer<std::uint32_t> counts_;
  cuda_buffer<cuda_kernels::delta_sum> sums_;
  cuda_buffer<std::uint32_t> chunk_of_;
  cuda_buffer<cuda_kernels::delta_chunk> table_;
  cuda_buffer<std::byte> message_, kept_;
  std::vector<std::span<std::byte const>> chunks_;
  std::uint64_t version_ = 0;
  bool captured_ = false;
};

}  // namespace gradsieve::detail
