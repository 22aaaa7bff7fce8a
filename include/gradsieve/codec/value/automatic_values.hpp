// The shortest value codec whose error stays within a bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradsieve/codec/layer_scale.hpp>
#include <gradsieve/codec/value/block_scaled.hpp>
#include <gradsieve/codec/value/fp32.hpp>
#include <gradsieve/codec/value/half.hpp>
#include <gradsieve/concepts.hpp>
#include <gradsieve/core/fields.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// Rounds values with the first of `int2`, `int4`, `int8`, `fp16`, `bf16` and `fp32`, in blocks of 64, whose error is
/// at most `max_error`: the L2 norm of the rounding errors divided by that of the values. The message is written by the
/// first of them that does not change the rounded values; it holds that codec's id, and the step's report names it. A
/// receiver reads any of them. The error is computed in whole numbers and rounded up, so that it stays below the bound
/// and all machines choose the same codec. Encoding does not round; values that are quantised a second time may be
/// rounded once more, with a shorter codec. Each rank chooses for its own values. A residual keeps the rounding error,
/// so a larger `max_error` suffices with one.
/// When not: with `index_union` and `leader`, which sum values one by one and refuse it at compile time; on a device,
/// where messages have a fixed size and it is refused; if every step would choose the same codec: name that one.
/// Cost: up to six passes over the values to quantise and up to six to encode, most of which end early, and one each to
/// write.
struct automatic_values {
  static constexpr char const* name = "automatic_values";
  static constexpr auto fields() { return std::tuple{field<&automatic_values::max_error>{"max_error", between(0, 1)}}; }
  float max_error = 0.01f;  ///< fraction of the values' L2 norm, in [0, 1]; 0: lossless

  [[nodiscard]] constexpr std::uint64_t max_bytes(std::uint64_t count) const noexcept { return 4 * count; }
  /// The number of values that this many bytes can hold; see counting_value_codec.
  [[nodiscard]] constexpr std::uint64_t most_count(std::uint64_t bytes) const noexcept {
    return int2{}.most_count(bytes);
  }

  /// Calls f with the codec of this id; returns whether it is one of those above. See choosing_value_codec.
  template <class F>
  static constexpr bool with(std::uint16_t id, F const& f) {
    return call_if(id, f, int2{}) || call_if(id, f, int4{}) || call_if(id, f, int8{}) || call_if(id, f, fp16{}) ||
           call_if(id, f, bf16{}) || call_if(id, f, fp32{});
  }

  void quantise(message_info const& info, std::span<index_type const> indices, std::span<float> values) const noexcept {
    key_type largest = 0;
    for (float const x : values) largest = larger(largest, magnitude_key(x));
    unsigned const top = larger(largest >> 23, 1u) + 1;  // a value may be rounded to the next power of two
    squares sum;
    for (float const x : values) sum.add(wire::in_units(magnitude_key(x), top));
    float const most = multiply(multiply(max_error, max_error), sum.value());
    with(first([&](auto const& codec) {
           squares error;
           return all_of_blocks(
               codec, values,
               [&](float x, float rounded) {
                 auto const key = magnitude_key(x);
                 auto const rounded_key = magnitude_key(rounded);
                 auto const a = wire::in_units(key, top);
                 auto const b = wire::in_units(rounded_key, top);
                 if (key != rounded_key) error.add(larger(a, b) - smaller(a, b) + 1);
               },
               [&] { return error.is_zero() || magnitude_key(error.value()) <= magnitude_key(most); });
         }),
         [&](auto const& codec) {
           if constexpr (quantises<decltype(codec)>) codec.quantise(info, indices, values);
         });
  }

  /// The id of the codec that writes these values; see choosing_value_codec.
  [[nodiscard]] std::uint16_t choose(message_info const&, std::span<index_type const>,
                                     std::span<float const> values) const noexcept {
    return first([&](auto const& codec) {
      bool same = true;
      return all_of_blocks(
          codec, values,
          [&](float x, float rounded) {
            same = same && gradsieve::bit_cast<std::uint32_t>(x) == gradsieve::bit_cast<std::uint32_t>(rounded);
          },
          [&] { return same; });
    });
  }

  friend bool operator==(automatic_values const&, automatic_values const&) = default;

 private:
  /// A sum of up to 2^32 squares of numbers up to 2^32 - 1.
  class squares {
   public:
    void add(std::uint64_t x) noexcept {
      std::uint64_t const square = x * x;
      high_ += square >> 32;
      low_ += square & 0xFFFF'FFFFu;
    }
    [[nodiscard]] bool is_zero() const noexcept { return high_ == 0 && low_ == 0; }
    /// The sum, with a relative error of 2^-24.
    [[nodiscard]] float value() const noexcept {
      return static_cast<float>(static_cast<double>(high_) * 0x1p32 + static_cast<double>(low_));
    }

   private:
    std::uint64_t high_ = 0;  // in units of 2^32
    std::uint64_t low_ = 0;
  };

  template <class F, class Codec>
  static constexpr bool call_if(std::uint16_t id, F const& f, Codec const& codec) {
    if (id != Codec::id) return false;
    f(codec);
    return true;
  }

  /// The first codec for which `does` holds.
  template <class Does>
  static std::uint16_t first(Does const& does) noexcept {
    if (does(int2{})) return int2::id;
    if (does(int4{})) return int4::id;
    if (does(int8{})) return int8::id;
    if (does(fp16{})) return fp16::id;
    if (does(bf16{})) return bf16::id;
    return fp32::id;
  }

  /// Calls take(value, rounded) for all values, and is_good() after each block until that is false. Returns
  /// it.
  template <class Codec, class Take, class IsGood>
  static bool all_of_blocks(Codec const& codec, std::span<float const> values, Take const& take,
                            IsGood const& is_good) noexcept {
    std::array<float, int2{}.block> rounded;
    for (std::size_t at = 0; at < values.size(); at += rounded.size()) {
      auto const here = values.subspan(at, smaller(rounded.size(), values.size() - at));
      for (std::size_t i = 0; i < here.size(); ++i) rounded[i] = here[i];
      codec.quantise({}, {}, std::span{rounded}.first(here.size()));
      for (std::size_t i = 0; i < here.size(); ++i) take(here[i], rounded[i]);
      if (!is_good()) return false;
    }
    return true;
  }
};
static_assert(choosing_value_codec<automatic_values>);

}  // namespace gradsieve
