// Packed fields of a few bits, for index codecs and signs.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include <gradsieve/codec/message.hpp>
#include <gradsieve/core/simd.hpp>
#include <gradsieve/core/types.hpp>

namespace gradsieve::inline GRADSIEVE_ABI::wire {

/// Bytes of `count` fields of `width` bits. @pre count < 2^58
[[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t packed_bytes(std::uint64_t count, unsigned width) noexcept {
  return (count * width + 7) / 8;
}

/// The number of blocks of `size` entries each, of which the last may be shorter; and block b of a list.
[[nodiscard]] constexpr std::uint64_t block_count(std::uint64_t count, std::uint64_t size) noexcept {
  return (count + size - 1) / size;
}
template <class T>
[[nodiscard]] constexpr std::span<T> block_of(std::span<T> list, std::size_t b, std::size_t size) noexcept {
  return list.subspan(b * size, smaller(size, list.size() - b * size));
}

[[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t low_bits(unsigned width) noexcept {
  return width == 0 ? 0 : 0xFFFF'FFFFu >> (32 - width);
}

/// 64 bits of eight fields of Width bits, from bit 64 * Word on.
template <unsigned Width, unsigned Word>
[[nodiscard]] GRADSIEVE_INLINE std::uint64_t packed_word(std::uint32_t const* fields) noexcept {
  return [&]<int... Field>(std::integer_sequence<int, Field...>) {
    auto const part = [&]<int Bit>(std::integral_constant<int, Bit>, std::uint64_t field) -> std::uint64_t {
      if constexpr (Bit <= -32 || Bit >= 64)
        return 0;
      else if constexpr (Bit < 0)
        return field >> -Bit;
      else
        return field << Bit;
    };
    return (part(std::integral_constant<int, Field* int{Width} - 64 * int{Word}>{}, fields[Field]) | ...);
  }
  (std::make_integer_sequence<int, 8>{});
}

/// Writes `count` groups of eight fields, Width bytes each, with constant shifts. @pre Width, rounded up to a multiple
/// of eight, bytes can be written where the last group begins
template <unsigned Width>
void pack_eights(std::uint32_t const* fields, std::byte* to, std::size_t count) noexcept {
  for (std::size_t e = 0; e < count; ++e, fields += 8, to += Width)
    [&]<unsigned... Word>(std::integer_sequence<unsigned, Word...>) {
      (store_one({to + 8 * Word, 8}, packed_word<Width, Word>(fields)), ...);
    }
  (std::make_integer_sequence<unsigned, (Width + 7) / 8>{});
}

/// pack_eights() of each width from 0 to 32.
inline constexpr auto pack_widths = []<unsigned... Width>(std::integer_sequence<unsigned, Width...>) {
  return std::array{&pack_eights<Width>...};
}
(std::make_integer_sequence<unsigned, 33>{});

/// Writes fields of `width` <= 32 bits, the lowest bit first; the rest of the last byte is zero. Returns the number of
/// bytes; bytes behind them may be changed. @pre every field fits its width, and `to` holds packed_bytes() bytes
inline std::uint64_t pack(std::span<std::uint32_t const> fields, unsigned width, std::span<std::byte> to) noexcept {
  if (width == 0) return 0;
  std::size_t const reach = (width + 7) / 8 * 8;  // of eight fields
  std::size_t const eights = to.size() < reach ? 0 : smaller(fields.size() / 8, (to.size() - reach) / width + 1);
  pack_widths[width](fields.data(), to.data(), eights);
  std::uint64_t pending = 0;
  unsigned bits = 0;  // of `pending`, below 8 between fields
  std::size_t at = eights * width;
  for (auto const field : fields.subspan(8 * eights)) {
    pending |= std::uint64_t{field} << bits;
    for (bits += width; bits >= 8; bits -= 8, pending >>= 8) to[at++] = static_cast<std::byte>(pending & 0xFFu);
  }
  if (bits > 0) to[at++] = static_cast<std::byte>(pending & 0xFFu);
  return at;
}

/// Reads `count` groups of eight fields, Width bytes each. @pre eight bytes can be read where the last group begins
template <unsigned Width>
void unpack_eights(std::byte const* from, std::uint32_t* out, std::size_t count) noexcept {
  for (std::size_t e = 0; e < count; ++e, from += Width, out += 8)
    [&]<unsigned... Field>(std::integer_sequence<unsigned, Field...>) {
      ((out[Field] =
            static_cast<std::uint32_t>(load_one<std::uint64_t>({from + Field * Width / 8, 8}) >> (Field * Width % 8)) &
            low_bits(Width)),
       ...);
    }
  (std::make_integer_sequence<unsigned, 8>{});
}

/// unpack_eights() of each width from 0 to 32.
inline constexpr auto unpack_widths = []<unsigned... Width>(std::integer_sequence<unsigned, Width...>) {
  return std::array{&unpack_eights<Width>...};
}
(std::make_integer_sequence<unsigned, 33>{});

/// Reads fields that pack() wrote. @pre width <= 32 and from.size() >= packed_bytes(out.size(), width)
inline void unpack(std::span<std::byte const> from, unsigned width, std::span<std::uint32_t> out) noexcept {
  auto const mask = low_bits(width);
  auto const field = [&](std::byte const* bytes, std::size_t bit) {
    return static_cast<std::uint32_t>(load_one<std::uint64_t>({bytes + bit / 8, 8}) >> (bit % 8)) & mask;
  };
  if (width == 0) {
    for (auto& each : out) each = 0;
    return;
  }
  std::size_t const reach = 7 * width / 8 + 8;  // of eight fields
  std::size_t const eights = from.size() < reach ? 0 : smaller(out.size() / 8, (from.size() - reach) / width + 1);
  unpack_widths[width](from.data(), out.data(), eights);
  // First the fields whose eight bytes all lie in `from`; the others from a zero-padded copy.
  std::size_t const whole = from.size() < 8 ? 0 : (from.size() - 7) * 8;
  std::size_t const fast = smaller(out.size(), (whole + width - 1) / width);
  for (std::size_t i = 8 * eights; i < fast; ++i) out[i] = field(from.data(), i * width);
  if (fast == out.size()) return;
  std::size_t const start = fast * width / 8;
  std::size_t const end = packed_bytes(out.size(), width);
  std::array<std::byte, 16> last{};
  std::memcpy(last.data(), from.data() + start, smaller(end - start, last.size()));
  for (std::size_t i = fast; i < out.size(); ++i) out[i] = field(last.data(), i * width - start * 8);
}

/// True if the padding behind `count` fields of `width` bits is zero. @pre from.size() >= packed_bytes(count, width)
[[nodiscard]] inline bool padding_is_zero(std::span<std::byte const> from, std::uint64_t count,
                                          unsigned width) noexcept {
  std::uint64_t const bits = count * width;
  return bits % 8 == 0 || (std::to_integer<unsigned>(from[bits / 8]) >> (bits % 8)) == 0;
}

/// The largest key of some values.
[[nodiscard]] inline key_type largest_key(std::span<float const> values) noexcept {
  return host_kernels::run_best([=]() GRADSIEVE_LAMBDA_INLINE {
    std::int32_t largest = 0;  // keys fit 31 bits, and signed maxima vectorise everywhere
    for (std::size_t i = 0; i < values.size(); ++i)
      largest = larger(largest, static_cast<std::int32_t>(magnitude_key(values[i])));
    return static_cast<key_type>(largest);
  });
}

[[nodiscard]] inline bool is_negative(float x) noexcept { return gradsieve::bit_cast<std::uint32_t>(x) >> 31 != 0; }

/// Writes a bit for each value, 1 if it is negative, the lowest bit first; the last byte is padded with zeros.
inline void pack_signs(std::span<float const> values, std::span<std::byte> to) noexcept {
  for (std::size_t i = 0, at = 0; i < values.size(); i += 8) {
    unsigned signs = 0;
    for (std::size_t b = 0; b < smaller<std::size_t>(8, values.size() - i); ++b)
      signs |= (is_negative(values[i + b]) ? 1u : 0u) << b;
    to[at++] = static_cast<std::byte>(signs);
  }
}

/// True if pack_signs() wrote value i as negative.
[[nodiscard]] inline bool is_negative(std::span<std::byte const> signs, std::size_t i) noexcept {
  return (std::to_integer<unsigned>(signs[i / 8]) >> (i % 8) & 1u) != 0;
}

[[nodiscard]] inline float signed_value(key_type magnitude, bool negative) noexcept {
  return gradsieve::bit_cast<float>(magnitude | (negative ? 0x8000'0000u : 0u));
}

/// Reads a magnitude. @throws corrupt_message unless it is finite
[[nodiscard]] inline key_type load_scale(std::span<std::byte const> from, char const* what) {
  auto const scale = load_one<std::uint32_t>(from);
  expect(scale < infinite_key, what, scale, "below ", infinite_key);
  return scale;
}

/// Calls f(64 bits, position of the first) for every word of a bit row; the lowest bit of each byte comes first.
template <class F>
GRADSIEVE_INLINE void for_each_word(std::span<std::byte const> row, F const& f) {
  std::size_t at = 0;
  for (; at + 8 <= row.size(); at += 8) f(load_one<std::uint64_t>(row.subspan(at)), std::uint64_t{8} * at);
  std::uint64_t last = 0;
  for (std::size_t b = at; b < row.size(); ++b) last |= std::to_integer<std::uint64_t>(row[b]) << (8 * (b - at));
  f(last, std::uint64_t{8} * at);
}

/// Calls f(position) for every set bit of a row, in order.
template <class F>
GRADSIEVE_INLINE void for_each_bit(std::span<std::byte const> row, F const& f) {
  for_each_word(row, [&](std::uint64_t word, std::uint64_t first) GRADSIEVE_LAMBDA_INLINE {
    for (; word != 0; word &= word - 1) f(first + static_cast<unsigned>(std::countr_zero(word)));
  });
}

/// The number of set bits of a row. Only some processors count them in one instruction.
[[nodiscard]] inline std::uint64_t count_bits(std::span<std::byte const> row) noexcept {
  return host_kernels::run_best([=]() GRADSIEVE_LAMBDA_INLINE {
    std::uint64_t set = 0;
    for_each_word(row, [&](std::uint64_t word, std::uint64_t)
                           GRADSIEVE_LAMBDA_INLINE { set += static_cast<unsigned>(std::popcount(word)); });
    return set;
  });
}

/// Writes the positions of all set bits of a row, in order. @pre `to` has count_bits(row) elements
inline void list_bits(std::span<std::byte const> row, std::span<std::uint32_t> to) noexcept {
  host_kernels::run_best([=]() GRADSIEVE_LAMBDA_INLINE {
    auto* at = to.data();
    for_each_bit(row, [&](std::uint64_t bit) GRADSIEVE_LAMBDA_INLINE { *at++ = static_cast<std::uint32_t>(bit); });
  });
}

}  // namespace gradsieve::wire
