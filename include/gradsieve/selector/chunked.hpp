// Top-k inside fixed chunks.
#pragma once

#include <cstdint>

#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve {

/// Sends the largest entries of each chunk of `size` elements, ties to the smaller index; the chunks share out k
/// evenly, so that all of them together give exactly k, and the rest that does not divide goes round. A chunk that has
/// fewer than its share besides zeros gives those, and no other chunk gives more for it. Chunks are counted from a
/// segment's first element; layers that pass through end them. The same entries on every machine and for any number of
/// threads. Indices inside a chunk are short: see `fixed_width`. When not: where layers differ in scale, as a chunk of
/// small values sends as many as one of large ones, or are mostly zeros, as embeddings are; with k below the number of
/// chunks each has to wait for its turn. Cost: the accumulate pass, and two reads of each chunk while it is in the
/// cache. Memory: 8 bytes an element of a chunk and thread, and address space for 8 bytes an element, touched as used.
/// Source: DeMo (Peng et al. 2024), as trainers over the internet use it.
struct chunked {
  static constexpr char const* name = "chunked";
  static constexpr auto fields() { return std::tuple{field<&chunked::size>{"size", between(1, longest)}}; }
  static constexpr std::uint32_t longest = 65536;

  std::uint32_t size = 4096;  ///< in [1, 65536]

  [[nodiscard]] std::uint32_t bin_length(layer const&) const noexcept { return size; }

  GRADSIEVE_EITHER_SPACE
  template <class Bin>
  [[nodiscard]] GRADSIEVE_HD threshold threshold_of(Bin const& bin) const noexcept {
    return bin.kth_largest(bin.budget());
  }

  friend bool operator==(chunked const&, chunked const&) = default;
};
static_assert(bin_selector<chunked>);

}  // namespace gradsieve
