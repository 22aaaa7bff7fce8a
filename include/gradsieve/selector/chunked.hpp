// Top-k within fixed chunks.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Sends the largest entries of each chunk of `size` elements, ties to the smaller index. The chunks divide k evenly
/// and send exactly k in all; if k does not divide, other chunks send one more in each step. A chunk with fewer nonzero
/// elements than its share sends those, and no other chunk sends more instead. Chunks are counted from a segment's
/// first element and end at passthrough layers. The entries are the same on every machine and for any number of
/// threads. Positions inside a chunk take few bits: see `fixed_width`.
/// When not: if layers differ in scale, as a chunk of small values sends as many as one of large ones; if they are
/// mostly zeros, as embeddings; with k below the number of chunks, as each then sends only in some steps.
/// Cost: the accumulate pass, which collects candidates, and O(k). On a device, and if a chunk's threshold is much
/// below the previous one, two more reads of the chunk, in the cache.
/// Memory: 12 bytes per element of a chunk and thread, and address space for 8 bytes per element, touched as used.
/// Source: DeMo (Peng et al. 2024), without its transform.
struct chunked {
  static constexpr char const* name = "chunked";
  static constexpr auto fields() { return std::tuple{field<&chunked::size>{"size", between(1, longest)}}; }
  static constexpr std::uint32_t longest = 65536;  ///< elements in a chunk, at most

  std::uint32_t size = 4096;  ///< in [1, 65536]

  [[nodiscard]] std::uint32_t bin_length(layer const&) const noexcept { return size; }

  GRADSIEVE_EITHER_SPACE
  template <class Bin>
  [[nodiscard]] GRADSIEVE_INLINE GRADSIEVE_HD threshold threshold_of(Bin const& bin) const noexcept {
    return bin.kth_largest(bin.budget());
  }

  friend bool operator==(chunked const&, chunked const&) = default;
};
static_assert(bin_selector<chunked>);

}  // namespace gradsieve
