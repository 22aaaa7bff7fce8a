// The format of weight deltas, and what both ends of one share.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradsieve/codec/index/bitmap.hpp>
#include <gradsieve/codec/index/elias_fano.hpp>
#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/layout.hpp>
#include <gradsieve/core/pieces.hpp>
#include <gradsieve/core/types.hpp>
#include <gradsieve/core/wire.hpp>
#include <gradsieve/host/buffer.hpp>
#include <gradsieve/host/space.hpp>
#include <gradsieve/host/team.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Formats of weights: float, float16, bfloat16, and 8 bits (fp8) as std::uint8_t, std::int8_t or std::byte.
template <class T>
concept weight_value =
    gradient_value<T> || std::same_as<T, std::uint8_t> || std::same_as<T, std::int8_t> || std::same_as<T, std::byte>;

/// The version of the weights that a delta is applied to, and the one that it leads to: numbers of the caller's, such
/// as steps, or fingerprints (weights_fingerprint()).
struct delta_versions {
  std::uint64_t from = 0;  ///< before
  std::uint64_t to = 1;    ///< afterwards
  friend bool operator==(delta_versions const&, delta_versions const&) = default;
};

namespace detail {

/// A header's number of a format of weights; 4 is 8 bits.
template <weight_value T>
inline constexpr std::uint16_t weight_format = std::same_as<T, float>      ? 1
                                               : std::same_as<T, float16>  ? 2
                                               : std::same_as<T, bfloat16> ? 3
                                                                           : 4;
[[nodiscard]] inline std::string weight_format_name(std::uint64_t format) {
  return format == 1 ? "float" : format == 2 ? "float16" : format == 3 ? "bfloat16" : format == 4 ? "8-bit" : "unknown";
}

/// A chunk's first 64 bytes, little-endian. Then a bit for each section, set if it changed, the lowest first, padded to
/// a byte; the number of entries minus 1 of each changed section, u16; and these sections' bytes: indices by the
/// shorter of `elias_fano` and `bitmap`, then values, or all elements if that takes no more bytes.
struct delta_header {
  static constexpr std::uint64_t bytes = 64;
  static constexpr std::uint64_t magic = 0x4453'5247;  // "GRSD"
  static constexpr std::uint64_t version = 1;          // of the format

  std::uint64_t kind;  // magic | version << 32 | weight_format << 48
  std::uint64_t size;  // bytes of the chunk
  std::uint64_t n;
  std::uint64_t layout_hash;
  delta_versions versions;
  std::uint64_t sections;  // the first | their number << 32
  std::uint64_t checksum = 0;

  /// Bytes of a chunk of sections, `changed` of them with entries of `payload` bytes.
  [[nodiscard]] GRADSIEVE_HD static std::uint64_t chunk_bytes(std::uint64_t sections, std::uint64_t changed,
                                                              std::uint64_t payload) noexcept {
    return bytes + (sections + 7) / 8 + 2 * changed + payload;
  }
  /// What all chunks of weights with these layers have.
  template <class T>
  [[nodiscard]] static delta_header of(layout const& layers) {
    return {magic | version << 32 | std::uint64_t{weight_format<T>} << 48, 0, layers.size(), layers.hash(), {}, 0};
  }
  void store(std::span<std::byte> to) const noexcept {
    wire::store(to, std::span<std::uint64_t const>{std::bit_cast<std::array<std::uint64_t, 8>>(*this)});
  }
  [[nodiscard]] static delta_header load(std::span<std::byte const> from) noexcept {
    std::array<std::uint64_t, 8> words;
    wire::load(std::span<std::uint64_t>{words}, from.first(bytes));
    return std::bit_cast<delta_header>(words);
  }
  /// The checksum of a chunk, of which the header's last word holds it.
  [[nodiscard]] static std::uint64_t sum(std::span<std::byte const> chunk) noexcept {
    return wire::checksum_around(chunk, bytes - 8);
  }
};

/// Consecutive elements of one layer, which a delta leaves out or sends with indices of their own.
struct delta_section {
  static constexpr std::uint32_t most = 65'536;

  std::uint64_t first;
  std::uint32_t size;

  /// Bytes of the indices of `count` < size entries.
  [[nodiscard]] GRADSIEVE_HD std::uint64_t index_bytes(std::uint64_t count) const noexcept {
    return smaller(bitmap{}.max_bytes(size, count), elias_fano{}.max_bytes(size, count));
  }
  /// Bytes of `count` entries with values of `width` bytes.
  [[nodiscard]] GRADSIEVE_HD std::uint64_t bytes(std::uint64_t count, std::uint64_t width) const noexcept {
    return (count == size ? 0 : index_bytes(count)) + count * width;
  }
  /// True if `count` entries and their indices take fewer bytes than all elements.
  [[nodiscard]] GRADSIEVE_HD bool is_sparse(std::uint64_t count, std::uint64_t width) const noexcept {
    return count < size && bytes(count, width) < std::uint64_t{size} * width;
  }
  /// Calls body(index codec, message_info) with the codec of the indices of `count` entries.
  template <class Body>
  void with_codec(std::uint64_t count, Body const& body) const {
    message_info const info{size, 0};
    if (index_bytes(count) == elias_fano{}.max_bytes(size, count))
      body(elias_fano{}, info);
    else
      body(bitmap{}, info);
  }
};

[[nodiscard]] inline std::vector<delta_section> sections_of(layout const& layers) {
  std::vector<delta_section> all;
  for (std::size_t l = 0; l < layers.count(); ++l)
    for (std::uint64_t at = 0; at < layers[l].size; at += delta_section::most)
      all.push_back({layers.offset(l) + at,
                     static_cast<std::uint32_t>(smaller<std::uint64_t>(delta_section::most, layers[l].size - at))});
  return all;
}

/// What a space does for weights: span_of(a caller's memory).
template <class Space>
struct weight_memory;
template <>
struct weight_memory<host> {
  template <class Weights>
  [[nodiscard]] static auto span_of(Weights& weights) {
    return std::span{weights};
  }
};

/// A caller's weights: a vector, array, span, or pieces. @throws invalid_argument if they are not those of the layout
template <class Space, class Weights>
[[nodiscard]] auto checked_weights(Weights& weights, layout const& layers) {
  auto const made = [&] {
    if constexpr (is_pieces<std::remove_cv_t<Weights>>)
      return gradient_ref{weights}.in(layers);
    else
      return gradient_ref{weight_memory<Space>::span_of(weights)};
  }();
  static_assert(
      weight_value<typename decltype(made)::value_type>,
      "weights are of float, gradsieve::float16, gradsieve::bfloat16, std::uint8_t, std::int8_t or std::byte");
  if (made.in_one_piece() && made.size() != layers.size())
    throw invalid_argument("gradsieve: " + std::to_string(made.size()) + " weights, the layout has " +
                           std::to_string(layers.size()) + " elements");
  made.check(layers);
  return made;
}

/// A section's elements; a copy in `scratch` if they lie in several pieces.
template <class T>
[[nodiscard]] T* readable(gradient_ref<T> const& weights, delta_section const& at, host_buffer<std::byte>& scratch) {
  if (auto const run = weights.run(at.first); run.size() >= at.size) return run.data();
  if (scratch.size() == 0) scratch = host_buffer<std::byte>(std::size_t{delta_section::most} * 4);
  auto* const copy = reinterpret_cast<std::remove_const_t<T>*>(scratch.data());
  weights.read(at.first, at.size, copy);
  return copy;
}

/// A team whose threads have memory of their own, and may throw.
template <class Memory>
class delta_team {
 public:
  explicit delta_team(host where) : team_{where.threads}, workers_(static_cast<std::size_t>(team_.size())) {}

  /// Calls body(memory of the thread, i) for all i below `count`. @throws what the first part's body throws, at the end
  template <class Body>
  void run(std::uint64_t work, std::uint64_t count, Body const& body) {
    if (workers_.empty()) throw invalid_argument("gradsieve: this object was moved from");
    team_.run(work, [&](int w) {
      auto& [memory, failure] = workers_[static_cast<std::size_t>(w)];
      try {
        auto const [begin, end] = team_.part(count, w);
        for (auto i = begin; i < end; ++i) body(memory, i);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    std::exception_ptr first;
    for (auto& each : workers_)
      if (auto failure = std::exchange(each.failure, nullptr); failure && !first) first = std::move(failure);
    if (first) std::rethrow_exception(first);
  }

  [[nodiscard]] auto& workers() noexcept { return workers_; }

 private:
  struct alignas(128) worker {
    Memory memory;
    std::exception_ptr failure;
  };
  host_team team_;
  std::vector<worker> workers_;
};

}  // namespace detail
}  // namespace gradsieve
