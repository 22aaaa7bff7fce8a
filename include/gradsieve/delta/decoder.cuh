// Applies weight deltas on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <gradsieve/cuda/passes/order.cuh>
#include <gradsieve/delta/decoder.hpp>
#include <gradsieve/delta/sections.cuh>

/// @cond internal
namespace gradsieve::inline GRADSIEVE_ABI::cuda_kernels {

/// A chunk that was received.
struct received_chunk {
  std::byte const* from;
  std::uint64_t bytes;
  std::uint32_t first;
  std::uint32_t sections;
  std::uint64_t sum;  // its checksum so far
};

struct delta_state {
  detail::delta_progress at;    // of the weights
  detail::delta_progress next;  // after the chunks so far, if all are right
  std::uint32_t chunks = 0;
  std::uint32_t failed = 0;    // not 0: a chunk of this call is wrong
  std::uint32_t failures = 0;  // calls so far that were refused
  std::uint32_t tickets = 0;   // zero between launches
};

/// Arguments of the kernels.
struct received_view {
  section_place const* places;
  std::uint64_t sections;
  weights_view weights;
  detail::delta_header about;  // what all chunks have
  received_chunk* chunks;
  std::uint32_t* counts;     // of each section: entries
  std::byte const** begins;  // of each section with entries: its bytes
  delta_state* state;

  __device__ void fail() const { atomicOr(&state->failed, 1u); }
  /// False if anything was wrong so far; the same for all threads of a block.
  [[nodiscard]] __device__ bool good() const {
    __shared__ bool all;
    __syncthreads();
    if (threadIdx.x == 0) all = atomicOr(&state->failed, 0u) == 0;
    __syncthreads();
    return all;
  }
};

/// Walks the chunks of a message. One warp. `whole`: up to the end of a delta, whatever follows.
template <int = 0>
__global__ void open_message(received_view const of, std::byte const* message, std::uint64_t left, bool begins,
                             bool whole) {
  auto state = *of.state;
  __syncwarp();
  if (begins) state = {state.at, state.at, 0, 0, state.failures, 0};
  bool good = true;
  do {
    constexpr std::uint64_t header = detail::delta_header::bytes;
    good = left >= header;
    if (!good) break;
    header_of_chunk read;
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) read.words[i] = load_word(message + 8 * i, left - 8 * i);
    auto const found = __builtin_bit_cast(detail::delta_header, read);
    auto& next = state.next;
    std::uint64_t const first = found.sections & 0xFFFF'FFFFu, count = found.sections >> 32;
    good = found.kind == of.about.kind && found.size >= header && found.size <= left && found.n == of.about.n &&
           found.layout_hash == of.about.layout_hash && found.versions.from == next.version && first == next.section &&
           count <= of.sections - first && (count > 0 || of.sections == 0) &&
           (!next.started || (found.versions.to == next.to && next.section < of.sections));
    if (!good) break;
    if (threadIdx.x == 0)
      of.chunks[state.chunks] = {message, found.size, static_cast<std::uint32_t>(first),
                                 static_cast<std::uint32_t>(count), 0};
    ++state.chunks;
    next = {next.version, true, found.versions.to, first + count};
    message += found.size;
    left -= found.size;
  } while (left > 0 && !(whole && state.next.section == of.sections));
  if (!good || (whole && state.next.section < of.sections)) state.failed = 1;
  if (threadIdx.x == 0) *of.state = state;
}

/// Finds the entries of the sections of each chunk, by one block.
template <unsigned Width>
__global__ void __launch_bounds__(part_threads) read_sections(received_view const of) {
  using count_scan = CUB_NS_QUALIFIER::BlockScan<std::uint32_t, part_threads>;
  using byte_scan = CUB_NS_QUALIFIER::BlockScan<std::uint64_t, part_threads>;
  __shared__ union {
    typename count_scan::TempStorage counts;
    typename byte_scan::TempStorage bytes;
  } scratch;
  for (std::uint32_t c = blockIdx.x; of.good() && c < of.state->chunks; c += gridDim.x) {
    auto const chunk = of.chunks[c];
    auto const* const bits = chunk.from + detail::delta_header::bytes;
    std::uint64_t const bit_bytes = (std::uint64_t{chunk.sections} + 7) / 8,
                        before_counts = detail::delta_header::bytes + bit_bytes;
    if (chunk.bytes < before_counts) {
      of.fail();
      continue;
    }
    auto const is_set = [&](std::uint32_t i) {
      return i < chunk.sections && (static_cast<unsigned>(bits[i / 8]) >> (i % 8) & 1u) != 0;
    };
    std::uint64_t changed = 0;
    for (std::uint32_t first = 0; first < chunk.sections; first += part_threads)
      changed += static_cast<unsigned>(__syncthreads_count(is_set(first + threadIdx.x)));
    std::uint64_t end = before_counts + 2 * changed;
    bool const good = chunk.bytes >= end && (chunk.sections % 8 == 0 ||
                                             static_cast<unsigned>(bits[bit_bytes - 1]) >> (chunk.sections % 8) == 0);
    std::uint32_t rank = 0;
    for (std::uint32_t first = 0; good && first < chunk.sections; first += part_threads) {
      std::uint32_t const i = first + threadIdx.x;
      bool const set = is_set(i);
      std::uint32_t place = 0, places = 0, count = 0;
      __syncthreads();  // the memory is used again
      count_scan(scratch.counts).ExclusiveSum(set ? 1u : 0u, place, places);
      __syncthreads();
      std::uint64_t bytes = 0, at = 0, all = 0;
      if (set) {
        count = static_cast<std::uint32_t>(load_value<2>(bits + bit_bytes + 2 * (rank + place))) + 1;
        detail::delta_section const section{0, of.places[chunk.first + i].size};
        if (count == section.size || section.is_sparse(count, Width))
          bytes = section.bytes(count, Width);
        else
          of.fail();
      }
      byte_scan(scratch.bytes).ExclusiveSum(bytes, at, all);
      if (set) {
        of.counts[chunk.first + i] = count;
        of.begins[chunk.first + i] = chunk.from + end + at;
      }
      rank += places;
      end += all;
    }
    if (!good || end != chunk.bytes) of.fail();
  }
}

/// Calls body(rank, index) for this thread's entries of a section, in order. False, for some thread, if they are not
/// what an encoder writes. By all threads of a block.
template <unsigned Width, class Body>
[[nodiscard]] __device__ bool for_each_entry(section_place const& place, std::uint32_t count, std::byte const* from,
                                             block_ranks<delta_words>& ranks, Body const& body) {
  detail::delta_section const section{place.first, place.size};
  auto const parts = elias_fano::split(place.size, count);
  auto const index_bytes = section.index_bytes(count);
  bool const unary = parts.bytes() == index_bytes;
  auto const* const row = from + (unary ? parts.low : 0);
  std::uint64_t const row_bytes = unary ? parts.high : index_bytes, left = section.bytes(count, Width);
  auto const low = [&](std::uint32_t rank) {
    std::uint64_t const bit = std::uint64_t{rank} * parts.width;
    return static_cast<std::uint32_t>(load_word(from + bit / 8, left - bit / 8) >> (bit % 8)) &
           wire::low_bits(parts.width);
  };
  std::uint64_t words[delta_words];
#pragma unroll
  for (unsigned v = 0; v < delta_words; ++v) {
    std::uint64_t const at = 8 * (std::uint64_t{threadIdx.x} * delta_words + v);
    words[v] = at < row_bytes ? load_word(row + at, row_bytes - at) : 0;
  }
  std::uint32_t all = 0;
  auto rank = ranks.before(words, all);
  if (all != count) return false;
  bool good = true;
  if (unary && threadIdx.x == 0) good = padding_is_zero(from, count, parts.width);
#pragma unroll
  for (unsigned v = 0; v < delta_words; ++v)
    for (auto word = words[v]; word != 0; word &= word - 1, ++rank) {
      unsigned const inside = static_cast<unsigned>(__ffsll(word)) - 1;
      std::uint64_t const bit = (std::uint64_t{threadIdx.x} * delta_words + v) * 64 + inside;
      std::uint64_t index = bit;
      if (unary) {
        auto const own = low(rank);
        index = (bit - rank) << parts.width | own;
        bool const neighbour = inside > 0 ? (words[v] >> (inside - 1) & 1u) != 0
                               : bit > 0  ? static_cast<unsigned>(row[bit / 8 - 1]) >> 7 != 0
                                          : false;
        good = good && !(neighbour && low(rank - 1) >= own);  // the same high part
      }
      if (index < place.size)
        body(rank, static_cast<std::uint32_t>(index));
      else
        good = false;
    }
  return good;
}

/// Checks entries and checksums; the last block ends the check.
template <unsigned Width>
__global__ void __launch_bounds__(delta_threads, 4) check_delta(received_view const of) {
  __shared__ block_ranks<delta_words> ranks;
  if (of.good()) {
    for (std::uint64_t s = blockIdx.x; s < of.sections; s += gridDim.x) {
      auto const place = of.places[s];
      std::uint32_t const count = of.counts[s];
      if (count == 0 || count == place.size) continue;
      if (!for_each_entry<Width>(place, count, of.begins[s], ranks, [](std::uint32_t, std::uint32_t) {})) of.fail();
    }
    for_each_sender(of.state->chunks, [&](std::uint32_t c, thread_team const& team) {
      add_words(&of.chunks[c].sum, share_of_chunk(of.chunks[c].from, of.chunks[c].bytes, team));
    });
  }
  if (!is_last_block(&of.state->tickets)) return;
  for (std::uint32_t c = threadIdx.x; c < of.state->chunks; c += blockDim.x) {
    auto const* const from = of.chunks[c].from;
    if (chunk_checksum(from, of.chunks[c].bytes, __ldcg(&of.chunks[c].sum)) != load_word(from + 56, 8)) of.fail();
  }
  bool const good = of.good();
  if (threadIdx.x != 0) return;
  auto const& next = of.state->next;
  if (!good)
    ++of.state->failures;
  else if (next.started && next.section == of.sections)
    of.state->at = {next.to};
  else
    of.state->at = next;
}

/// Writes the entries of each section, by one block, if all chunks are right.
template <unsigned Width>
__global__ void __launch_bounds__(delta_threads) overwrite_weights(received_view const of) {
  __shared__ block_ranks<delta_words> ranks;
  if (of.state->failed != 0) return;
  for (std::uint64_t s = blockIdx.x; s < of.sections; s += gridDim.x) {
    auto const place = of.places[s];
    std::uint32_t const count = of.counts[s];
    if (count == 0) continue;
    auto* const to = of.weights.at<Width>(place, s);
    auto const* from = of.begins[s];
    if (count == place.size) {
      copy_bytes(from, std::uint64_t{count} * Width, to);
      continue;
    }
    auto const* const values = from + detail::delta_section{place.first, place.size}.index_bytes(count);
    static_cast<void>(for_each_entry<Width>(place, count, from, ranks, [&](std::uint32_t rank, std::uint32_t i) {
      store_value<Width>(to + std::uint64_t{i} * Width, load_value<Width>(values + std::uint64_t{rank} * Width));
    }));
  }
}

}  // namespace gradsieve::cuda_kernels
/// @endcond

namespace gradsieve::inline GRADSIEVE_ABI {

/// As weights_fingerprint(host), of weights on a device, with the same result. Waits, allocates.
template <class Weights>
[[nodiscard]] std::uint64_t weights_fingerprint(device where, layout const& layers, Weights const& weights) {
  auto const from = detail::checked_weights<device>(weights, layers);
  using value = typename decltype(from)::value_type;
  detail::device_sections<std::uint64_t> const sections{where, detail::sections_of(layers),
                                                        wire::mixed(layers.hash(), detail::weight_format<value>)};
  detail::device_weights at;
  detail::launch_kernel<cuda_kernels::fingerprint_sections<sizeof(value)>>(
      where, sections.blocks(), cuda_kernels::delta_threads, sections.places(), sections.count(),
      at.view(sections, from), sections.on_device());
  return sections.state();
}

namespace detail {

/// On a device. What is wrong with a message is found out on the host.
template <>
class delta_reader<device> : device_sections<cuda_kernels::delta_state> {
 public:
  delta_reader(device where, std::vector<delta_section> sections, delta_progress const& at)
      : device_sections{where, std::move(sections), {at, at}},
        chunks_{where, count() + 1},
        counts_{where, count()},
        begins_{where, count()},
        known_{at} {
    kernel_list::load();
  }

  /// Reads what graphs have done. @throws corrupt_message if a message was refused
  void refresh(delta_progress& at) {
    if (at != known_) return;
    auto const now = state();
    at = known_ = now.at;
    if (now.failures == 0) return;
    set(at);
    throw corrupt_message(
        "gradsieve: a delta in a graph was damaged, or not the next one of these weights; nothing was written");
  }

  template <class T>
  void verify(std::span<std::span<std::byte const> const> messages, layout const& layers, delta_progress& at) {
    where().refuse_capture("verify() says at once what is wrong with a message");
    auto const before = at;
    check<T>(messages, {}, layers, at, [](auto const&) {});
    if (at != before) set(before, state().failures);
  }
  template <class T>
  void apply(std::span<std::span<std::byte const> const> messages, gradient_ref<T> const& to, layout const& layers,
             delta_progress& at) {
    check<T>(messages, weights_.view(*this, to), layers, at, [&](cuda_kernels::received_view const& view) {
      launch_kernel<cuda_kernels::overwrite_weights<sizeof(T)>>(where(), blocks(), cuda_kernels::delta_threads, view);
      weights_.write_back(where(), to);
    });
  }

 private:
  static constexpr unsigned read_blocks = 32, check_blocks = 256;

  /// Calls write(view) behind the check, in the stream's order, and goes on to what the messages lead to, or throws.
  template <class T, class Write>
  void check(std::span<std::span<std::byte const> const> messages, cuda_kernels::weights_view const& weights,
             layout const& layers, delta_progress& at, Write const& write) {
    constexpr unsigned width = sizeof(T);
    bool const captured = where().is_captured();
    if (captured && messages.size() != 1)
      throw invalid_argument("gradsieve: in a graph a delta is one message, in memory of its own");
    if (messages.empty()) return;
    if (at != known_) set(at);
    cuda_kernels::received_view const view{places(),       count(),        weights,        delta_header::of<T>(layers),
                                           chunks_.data(), counts_.data(), begins_.data(), on_device()};
    if (count() > 0)
      throw_on_error(cudaMemsetAsync(counts_.data(), 0, count() * sizeof(std::uint32_t), where().stream),
                     "cudaMemsetAsync");
    for (bool first = true; auto const& each : messages)
      launch_kernel<cuda_kernels::open_message<>>(where(), 1, 32, view, each.data(), each.size(),
                                                  std::exchange(first, false), captured);
    launch_kernel<cuda_kernels::read_sections<width>>(where(), read_blocks, cuda_kernels::part_threads, view);
    launch_kernel<cuda_kernels::check_delta<width>>(where(), larger(blocks(), check_blocks),
                                                    cuda_kernels::delta_threads, view);
    write(view);
    if (captured) return;
    auto const now = state();
    known_ = now.at;
    at = now.at;
    if (now.failed == 0) return;
    set(at, now.failures - 1);
    refuse<T>(messages, layers, at);
  }

  void set(delta_progress const& at, std::uint32_t failures = 0) {
    set_state({.at = at, .next = at, .failures = failures});
    known_ = at;
  }

  /// Throws what a host throws.
  template <class T>
  void refuse(std::span<std::span<std::byte const> const> messages, layout const& layers, delta_progress const& at) {
    std::vector<std::vector<std::byte>> copies;
    for (auto const& each : messages) copies.push_back(downloaded(where(), each));
    std::vector<std::span<std::byte const>> const spans(copies.begin(), copies.end());
    delta_reader<host> on_host{host{.threads = 1}, {sections().begin(), sections().end()}};
    static_cast<void>(on_host.checked<T>(spans, layers, at));
    throw corrupt_message("gradsieve: a delta's bytes have changed during the call");
  }

  device_weights weights_;
  cuda_buffer<cuda_kernels::received_chunk> chunks_;
  cuda_buffer<std::uint32_t> counts_;
  cuda_buffer<std::byte const*> begins_;
  delta_progress known_;  // what `state_` has
};

}  // namespace detail
}  // namespace gradsieve
