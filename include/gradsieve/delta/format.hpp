// The format of weight deltas, and the weights that they are made from.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/codec/index/bitmap.hpp>
#include <gradsieve/codec/index/elias_fano.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/wire.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A format of weights that deltas transmit by their bits: float, float16, bfloat16, and 8 bits as std::uint8_t,
/// std::int8_t or std::byte (fp8).
template <class T>
concept weight_value = gradient_value<T> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> ||
                       std::same_as<T, std::byte>;

/// The version of the weights that a delta starts from, and the one that it leads to: numbers of the caller's, such as
/// steps, or fingerprints of the weights (weights_fingerprint()).
struct delta_versions {
  std::uint64_t from = 0;  ///< of the weights that the delta is applied to
  std::uint64_t to = 1;    ///< of these weights afterwards
  friend bool operator==(delta_versions const&, delta_versions const&) = default;
};

/// A chunk's first bytes, little-endian, without padding: magic u32 | version u16 | format u16 | bytes u64 | n u64 |
/// layout hash u64 | from u64 | to u64 | first section u32 | sections u32 | checksum u64. Then a bit for each section,
/// set if it changed, the lowest first, padded to a byte; the number of entries minus 1 of each changed section, u16;
/// and these sections' bytes: indices by the shorter of `elias_fano` and `bitmap`, then values. A section that would
/// take as many bytes as its elements has all of them, without indices.
struct delta_header {
  static constexpr std::uint32_t magic = 0x4453'5247;  ///< "GRSD"
  static constexpr std::uint16_t version = 1;          ///< of the format
  static constexpr std::size_t bytes = 64;             ///< of the header
  static constexpr std::size_t checksum_at = 56;       ///< where the checksum is

  std::uint16_t format = 0;       ///< 1: float, 2: float16, 3: bfloat16, 4: 8 bits
  std::uint64_t size = 0;         ///< bytes of the chunk
  std::uint64_t n = 0;            ///< weights of the model
  std::uint64_t layout_hash = 0;  ///< layout::hash()
  delta_versions versions;        ///< of the whole delta
  std::uint32_t first = 0;        ///< the chunk's first section
  std::uint32_t sections = 0;     ///< the chunk's sections
};

namespace detail {

/// A header's number of a format of weights.
template <weight_value T>
inline constexpr std::uint16_t weight_format =
    std::same_as<T, float> ? 1 : std::same_as<T, float16> ? 2 : std::same_as<T, bfloat16> ? 3 : 4;

/// The name of a format, for errors.
[[nodiscard]] inline char const* weight_format_name(std::uint16_t format) noexcept {
  return format == 1 ? "float" : format == 2 ? "float16" : format == 3 ? "bfloat16" : format == 4 ? "8-bit" : "unknown";
}

/// Consecutive elements of one layer, at most `most`: what a delta leaves out, or sends by its own indices.
struct delta_section {
  static constexpr std::uint32_t most = 65'536;

  std::uint64_t first;
  std::uint32_t size;

  /// Bytes of the indices of `count` < size entries.
  [[nodiscard]] std::uint64_t index_bytes(std::uint64_t count) const noexcept {
    return smaller(bitmap{}.max_bytes(size, count), elias_fano{}.max_bytes(size, count));
  }
  /// Bytes of `count` entries with values of `width` bytes.
  [[nodiscard]] std::uint64_t bytes(std::uint64_t count, std::uint64_t width) const noexcept {
    return (count == size ? 0 : index_bytes(count)) + count * width;
  }
  /// True if `count` entries and their indices take fewer bytes than all elements.
  [[nodiscard]] bool is_sparse(std::uint64_t count, std::uint64_t width) const noexcept {
    return count < size && bytes(count, width) < std::uint64_t{size} * width;
  }

  /// Writes indices that are relative to `first`.
  void encode(std::span<index_type const> indices, std::span<std::byte> to) const noexcept {
    message_info const info{size, 0};
    if (index_bytes(indices.size()) == elias_fano{}.max_bytes(size, indices.size()))
      static_cast<void>(elias_fano{}.encode(info, indices, to));
    else
      static_cast<void>(bitmap{}.encode(info, indices, to));
  }
  /// Reads indices, unchecked except for what reading them needs. @throws corrupt_message
  void decode(std::span<std::byte const> from, std::span<index_type> indices) const {
    message_info const info{size, 0};
    if (index_bytes(indices.size()) == elias_fano{}.max_bytes(size, indices.size()))
      static_cast<void>(elias_fano{}.decode(info, from, indices));
    else
      static_cast<void>(bitmap{}.decode(info, from, indices));
  }
};

/// The sections of all layers, in order.
[[nodiscard]] inline std::vector<delta_section> sections_of(layout const& layers) {
  std::vector<delta_section> all;
  for (std::size_t l = 0; l < layers.count(); ++l)
    for (std::uint64_t at = 0; at < layers[l].size; at += delta_section::most)
      all.push_back({layers.offset(l) + at, static_cast<std::uint32_t>(smaller<std::uint64_t>(
                                                delta_section::most, layers[l].size - at))});
  return all;
}

/// Copies values between memory and a message, which has them little-endian.
template <std::size_t Width>
GRADSIEVE_INLINE void copy_value(std::byte const* from, std::byte* to) noexcept {
  if constexpr (std::endian::native == std::endian::little || Width == 1)
    std::memcpy(to, from, Width);
  else
    for (std::size_t b = 0; b < Width; ++b) to[b] = from[Width - 1 - b];
}
template <std::size_t Width>
void copy_values(std::byte const* from, std::uint64_t count, std::byte* to) noexcept {
  if constexpr (std::endian::native == std::endian::little || Width == 1)
    std::memcpy(to, from, count * Width);
  else
    for (std::uint64_t i = 0; i < count; ++i) copy_value<Width>(from + i * Width, to + i * Width);
}

/// A caller's weights: a vector, array, span, or pieces. @throws invalid_argument if they are not those of the layout
template <class Weights>
[[nodiscard]] auto checked_weights(Weights& weights, layout const& layers) {
  auto const made = [&] {
    if constexpr (is_pieces<std::remove_cv_t<Weights>>)
      return gradient_ref{weights}.in(layers);
    else
      return gradient_ref{std::span{weights}};
  }();
  static_assert(weight_value<typename decltype(made)::value_type>,
                "weights are of float, gradsieve::float16, gradsieve::bfloat16, std::uint8_t, std::int8_t or std::byte");
  if (made.in_one_piece() && made.size() != layers.size())
    throw invalid_argument("gradsieve: " + std::to_string(made.size()) + " weights, the layout has " +
                           std::to_string(layers.size()) + " elements");
  made.check(layers);
  return made;
}

/// A section's elements as bytes, if they are contiguous; null if not.
template <class T>
[[nodiscard]] auto contiguous(gradient_ref<T> const& weights, delta_section const& at) noexcept {
  using bytes = std::conditional_t<std::is_const_v<T>, std::byte const, std::byte>;
  auto const run = weights.run(at.first);
  return run.size() < at.size ? nullptr : reinterpret_cast<bytes*>(run.data());
}

}  // namespace detail
}  // namespace gradsieve
