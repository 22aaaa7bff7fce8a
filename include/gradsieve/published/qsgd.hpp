// Values rounded at random to a few levels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradsieve/codec/bits.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/error.hpp>
#include <gradsieve/core/fields.hpp>
#include <gradsieve/core/random.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Values rounded at random to a few levels: s * q / levels, where s is the largest magnitude of the value's block and
/// q, from -levels to levels, is rounded up or down at random without bias. bit_width(levels) + 1 + 32 / block bits per
/// value. The random number is a hash of the seed, the layout, the step, the rank, and the entry's index and value: the
/// same on every machine and in every run, and independent between steps and ranks, so that their errors average out.
/// Rounding again does not change values, whatever the random numbers: a receiver needs none. The residual keeps the
/// rounding error. `levels` 1 is TernGrad's form: -s, 0 or s.
/// When not: with a residual, where `int4` and `int8` have the smaller error in as many bits; with `index_union` and
/// `leader`, which sum values one by one and refuse it at compile time.
/// Payload: s for each block of `block` entries, binary32; then all q + levels in bit_width(levels) + 1 bits each, the
/// first in the lowest, padded with zero bits to a byte.
/// Cost: two passes over the values to quantise or encode, with a hash of each; `levels` more steps per block.
/// Source: QSGD (Alistarh et al. 2017) with the largest magnitude instead of the norm; TernGrad (Wen et al. 2017).
struct qsgd {
  static constexpr char const* name = "qsgd";
  static constexpr auto fields() {
    return std::tuple{field<&qsgd::levels>{"levels"}, field<&qsgd::block>{"block", between(1, 1u << 20)},
                      field<&qsgd::seed>{"seed"}};
  }
  static constexpr std::uint16_t id = 10;
  std::uint32_t levels = 4;   ///< a power of two from 1 to 64
  std::uint32_t block = 256;  ///< entries that share a magnitude, in [1, 2^20]
  std::uint32_t seed = 0;     ///< of the random numbers; equal on all ranks

  void check() const {
    if (levels < 1 || levels > 64 || (levels & (levels - 1)) != 0)
      throw invalid_argument("gradsieve: qsgd's levels is " + std::to_string(levels) +
                             ", expected a power of two from 1 to 64");
  }

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept {
    return 4 * wire::block_count(count, block) + wire::packed_bytes(count, width());
  }
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept { return 8 * bytes / width(); }
  [[nodiscard]] std::uint64_t bytes(message_info const&, std::span<index_type const> indices) const noexcept {
    return max_bytes(indices.size());
  }

  void quantise(message_info const& info, std::span<index_type const> indices, std::span<float> values) const noexcept {
    auto const random = stream_of(info.layout_hash, info.step, info.rank);
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const here = wire::block_of(values, b, block);
      prepared const scale{*this, wire::largest_key(here), here.size()};
      for (std::size_t i = 0; i < here.size(); ++i)
        here[i] = value_by(code_by(here[i], indices[b * block + i], scale, random), scale);
    }
  }

  void encode(message_info const& info, std::span<index_type const> indices, std::span<float const> values,
              std::span<std::byte> to) const noexcept {
    auto const random = stream_of(info.layout_hash, info.step, info.rank);
    auto const codes = to.subspan(4 * wire::block_count(values.size(), block));
    std::array<std::uint32_t, group> some;
    std::size_t held = 0;
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const here = wire::block_of(values, b, block);
      auto const largest = wire::largest_key(here);
      wire::store_one(to.subspan(4 * b), largest);
      prepared const scale{*this, largest, here.size()};
      for (std::size_t i = b * block; i < b * block + here.size(); ++i) {
        some[held++] = code_by(values[i], indices[i], scale, random);
        if (held < group && i + 1 < values.size()) continue;
        wire::pack({some.data(), held}, width(), codes.subspan((i + 1 - held) * width() / 8));
        held = 0;
      }
    }
  }

  void decode(message_info const&, std::span<index_type const> indices, std::span<std::byte const> from,
              std::span<float> values) const {
    auto const codes = from.subspan(4 * wire::block_count(values.size(), block));
    std::array<std::uint32_t, group> some;
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const here = wire::block_of(values, b, block);
      prepared const scale{*this, wire::load_scale(from.subspan(4 * b), "scale of a block, as bits,"), here.size()};
      for (std::size_t i = b * block; i < b * block + here.size(); ++i) {
        if (i % group == 0)
          wire::unpack(codes.subspan(i * width() / 8), width(), {some.data(), smaller(group, values.size() - i)});
        auto const code = some[i % group];
        wire::expect(code <= 2 * levels, "value in a block", code, "at most ", 2 * levels);
        values[i] = value_by(code, scale);
        auto const same = code_by(values[i], indices[i], scale, 0);  // different if levels coincide
        wire::expect(code == same, "value in a block", code, "", same);
      }
    }
    wire::expect(wire::padding_is_zero(codes, values.size(), width()), "padding of values", 1, "", 0);
    for (std::size_t b = 0; b < wire::block_count(values.size(), block); ++b) {
      auto const scale = wire::load_one<std::uint32_t>(from.subspan(4 * b));
      auto const largest = wire::largest_key(wire::block_of(values, b, block));
      wire::expect(largest == scale, "scale of a block, as bits,", scale, "", largest);
    }
  }

  // The block format, which a device writes and reads: see device_block_values.
  /// @cond internal

  static constexpr unsigned scale_bytes = 4;
  [[nodiscard]] GRADSIEVE_HD constexpr unsigned width() const noexcept { return bit_width(levels) + 1; }
  [[nodiscard]] GRADSIEVE_HD static constexpr std::uint32_t scale_of(key_type largest_key) noexcept {
    return largest_key;
  }
  /// Identifies the random numbers of one message.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t stream_of(std::uint64_t layout_hash, std::uint64_t step,
                                                               std::uint32_t rank) const noexcept {
    return mix(seed ^ mix(step ^ mix(rank ^ mix(layout_hash))));
  }
  /// q + levels. A value that equals a level has the same code for all random numbers.
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t code_of(float x, index_type index, key_type scale,
                                                             std::uint64_t random = 0) const noexcept {
    return code_by(x, index, plain{*this, scale}, random);
  }
  /// @pre code <= 2 * levels, and the scale is finite
  [[nodiscard]] GRADSIEVE_HD constexpr float value_of(std::uint32_t code, key_type scale) const noexcept {
    return value_by(code, plain{*this, scale});
  }
  [[nodiscard]] GRADSIEVE_HD constexpr bool is_code(std::uint32_t code, index_type index,
                                                    key_type scale) const noexcept {
    return scale < infinite_key && code <= 2 * levels && code_of(value_of(code, scale), index, scale) == code;
  }
  /// True if this code can be the largest of a block of this scale. @pre is_code()
  [[nodiscard]] GRADSIEVE_HD constexpr bool fills(std::uint32_t code, key_type scale) const noexcept {
    return level(magnitude_of_code(code), scale) == scale;
  }
  /// @endcond

  friend bool operator==(qsgd const&, qsgd const&) = default;

 private:
  static constexpr std::size_t group = 128;  // codes that are packed at once: they end at a byte

  [[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t magnitude_of_code(std::uint32_t code) const noexcept {
    return code < levels ? levels - code : code - levels;
  }

  /// scale * q / levels, rounded to the nearest, ties to even. q = levels gives scale.
  [[nodiscard]] GRADSIEVE_HD constexpr key_type level(std::uint32_t q, key_type scale) const noexcept {
    auto const [significand, power] = detail::parts_of(scale);
    std::uint64_t const product = significand * q;  // below 2^31, in units of 2^(power - 150) / levels
    if (product == 0) return 0;
    unsigned const size = bit_width(static_cast<std::uint32_t>(product));
    unsigned const shift = bit_width(levels) - 1;  // of levels
    // In units of 2^(drop + power - shift - 150), which leaves 24 bits, or of the subnormal unit if that is larger.
    int const unit = static_cast<int>(power) - 1 - static_cast<int>(shift);
    int const drop = larger(static_cast<int>(size) - 24, -unit);
    std::uint64_t kept = product;
    if (drop > 0) {
      std::uint64_t const half = (std::uint64_t{1} << (drop - 1)) - 1 + (product >> drop & 1);
      kept = (product + half) >> drop;
    } else {
      kept = product << -drop;
    }
    int const exponent = unit + drop;  // kept * 2^(exponent - 149), kept at most 2^24
    // Adding carries into the exponent where needed, which gives the next power of two.
    return static_cast<key_type>(kept) + (static_cast<key_type>(exponent) << 23);
  }

  /// A block's scale as it is.
  struct plain {
    qsgd const& format;
    key_type scale;

    [[nodiscard]] GRADSIEVE_HD constexpr key_type level(std::uint32_t q) const noexcept {
      return format.level(q, scale);
    }
    [[nodiscard]] GRADSIEVE_HD constexpr unsigned exponent() const noexcept { return detail::parts_of(scale).exponent; }
    /// x * 2^32 / the scale's significand, rounded down.
    [[nodiscard]] GRADSIEVE_HD constexpr std::uint64_t divided(std::uint64_t x) const noexcept {
      return (x << 32) / detail::parts_of(scale).significand;
    }
  };

  /// A block's scale for many values on a host: levels from a table, and quotients by a corrected product.
  class prepared {
   public:
    prepared(qsgd const& format, key_type scale, std::size_t values) noexcept
        : plain_{format, scale},
          parts_{detail::parts_of(scale)},
          inverse_{0x1p32 / static_cast<double>(larger(parts_.significand, 1u))} {
      known_ = values > format.levels ? format.levels + 2 : 0;
      for (std::uint32_t q = 0; q < known_; ++q) keys_[q] = plain_.level(q);
    }
    [[nodiscard]] key_type level(std::uint32_t q) const noexcept { return q < known_ ? keys_[q] : plain_.level(q); }
    [[nodiscard]] unsigned exponent() const noexcept { return parts_.exponent; }
    [[nodiscard]] std::uint64_t divided(std::uint64_t x) const noexcept {
      auto const divisor = std::int64_t{parts_.significand};
      auto quotient = static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(x)) * inverse_);
      auto rest = static_cast<std::int64_t>(x << 32) - quotient * divisor;  // 39 bits: the quotient is one off at most
      for (; rest < 0; rest += divisor) --quotient;
      for (; rest >= divisor; rest -= divisor) ++quotient;
      return static_cast<std::uint64_t>(quotient);
    }

   private:
    plain plain_;
    detail::magnitude_parts parts_;
    double inverse_;
    std::uint32_t known_;
    std::array<key_type, 66> keys_;
  };

  GRADSIEVE_EITHER_SPACE
  template <class Scale>
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t code_by(float x, index_type index, Scale const& scale,
                                                             std::uint64_t random) const noexcept {
    auto const q = rounded(x, index, scale, random);
    return gradsieve::bit_cast<std::uint32_t>(x) >> 31 != 0 ? levels - q : levels + q;
  }
  GRADSIEVE_EITHER_SPACE
  template <class Scale>
  [[nodiscard]] GRADSIEVE_HD constexpr float value_by(std::uint32_t code, Scale const& scale) const noexcept {
    auto const magnitude = scale.level(magnitude_of_code(code));
    return gradsieve::bit_cast<float>(magnitude | (code < levels && magnitude != 0 ? 0x8000'0000u : 0u));
  }

  /// The level of |x|: exact if x equals one, otherwise the one below or above, at random.
  GRADSIEVE_EITHER_SPACE
  template <class Scale>
  [[nodiscard]] GRADSIEVE_HD constexpr std::uint32_t rounded(float x, index_type index, Scale const& scale,
                                                             std::uint64_t random) const noexcept {
    auto const key = magnitude_key(x);
    if (key == 0) return 0;
    auto const mine = detail::parts_of(key);
    unsigned const apart = smaller(scale.exponent() - mine.exponent, 60u);
    // |x| * levels / scale with 32 binary places; at most levels, so below 2^39.
    std::uint64_t const ratio = scale.divided(mine.significand * levels) >> apart;
    auto const below = static_cast<std::uint32_t>(ratio >> 32);
    if (scale.level(below) == key) return below;
    if (scale.level(below + 1) == key) return below + 1;
    auto const drawn = mix(mix(random ^ std::uint64_t{index} << 32) ^ gradsieve::bit_cast<std::uint32_t>(x)) >> 32;
    return below + (drawn < (ratio & 0xFFFF'FFFFu) ? 1u : 0u);
  }
};
static_assert(value_codec<qsgd>);

}  // namespace gradsieve
