// The 16-bit formats and the order of keys.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <gradsieve/gradsieve.hpp>
#include <limits>
#include <vector>

#include "data.hpp"

namespace gs = gradsieve;

namespace {

/// A 16-bit format by its definition: the value of a positive finite pattern.
struct half_format {
  using type = gs::float16;
  static constexpr std::uint32_t infinite = 0x7C00;
  static double value(std::uint32_t bits) {
    auto const exponent = static_cast<int>(bits >> 10);
    auto const fraction = static_cast<double>(bits & 0x3FFu);
    return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  }
};
struct bfloat_format {
  using type = gs::bfloat16;
  static constexpr std::uint32_t infinite = 0x7F80;
  static double value(std::uint32_t bits) {
    auto const exponent = static_cast<int>(bits >> 7);
    auto const fraction = static_cast<double>(bits & 0x7Fu);
    return exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  }
};

/// The pattern nearest to x, ties to even, by search. Infinity counts as the next value above the largest.
template <class Format>
std::uint32_t nearest(float x) {
  std::uint32_t const sign = std::signbit(x) ? 0x8000u : 0u;
  auto const size = std::fabs(static_cast<double>(x));
  std::uint32_t low = 0;
  std::uint32_t high = Format::infinite;
  if (size >= Format::value(high)) return sign | high;
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (Format::value(middle) <= size ? low : high) = middle;
  }
  double const down = size - Format::value(low);
  double const up = Format::value(high) - size;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern becomes the float that it stands for", Format, half_format, bfloat_format) {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    float const x = gs::to_float(typename Format::type{static_cast<std::uint16_t>(bits)});
    std::uint32_t const magnitude = bits & 0x7FFFu;
    bool good = std::signbit(x) == (bits > 0x7FFF);
    if (magnitude > Format::infinite)
      good = good && std::isnan(x);
    else if (magnitude == Format::infinite)
      good = good && std::isinf(x);
    else
      good = good && std::fabs(static_cast<double>(x)) == Format::value(magnitude);
    wrong += good ? 0 : 1;
  }
  CHECK(wrong == 0);
#if defined(__FLT16_MAX__)
  if constexpr (std::is_same_v<Format, half_format>)
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      auto const pattern = static_cast<std::uint16_t>(bits);
      auto const x = static_cast<float>(std::bit_cast<_Float16>(pattern));
      wrong += x == gs::to_float(gs::float16{pattern}) || std::isnan(x) ? 0 : 1;
    }
  CHECK(wrong == 0);
#endif
}

TEST_CASE_TEMPLATE("every 16-bit pattern survives the way to float and back", Format, half_format, bfloat_format) {
  using type = typename Format::type;
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    type const x{static_cast<std::uint16_t>(bits)};
    auto const back = gs::from_float<type>(gs::to_float(x));
    bool const nan = (bits & 0x7FFFu) > Format::infinite;
    wrong += nan ? !std::isnan(gs::to_float(back)) : back != x;
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("from_float rounds to the nearest, ties to even", Format, half_format, bfloat_format) {
  using type = typename Format::type;
  std::uint32_t wrong = 0;
  auto const check = [&](float x) {
    for (float const y : {x, -x}) {
      auto const got = gs::from_float<type>(y);
      wrong += got.bits != nearest<Format>(y) ? 1u : 0u;
#if defined(__FLT16_MAX__)
      if constexpr (std::is_same_v<Format, half_format>)
        wrong += got.bits != std::bit_cast<std::uint16_t>(static_cast<_Float16>(y)) ? 1u : 0u;
#endif
    }
  };
  float const largest = std::numeric_limits<float>::max();
  for (std::uint32_t bits = 0; bits < Format::infinite;
       ++bits) {  // each value, each half-way point, and both neighbours
    auto const here = static_cast<float>(Format::value(bits));
    double const middle = (Format::value(bits) + Format::value(bits + 1)) / 2;
    for (float const x : {here, static_cast<float>(middle)}) {
      check(x);
      check(std::nextafter(x, 0.0f));
      check(std::nextafter(x, largest));
    }
  }
  data::generator random{7};
  for (int i = 0; i < 300'000; ++i) {
    auto const x = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (!std::isnan(x)) check(x);
  }
  for (float const x :
       {0.0f, largest, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()})
    check(x);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("NaN stays NaN, with its sign, whatever its payload", Format, half_format, bfloat_format) {
  for (std::uint32_t const payload : {1u, 0x1000u, 0x7FFFu, 0x8000u, 0xFFFFu, 0x1'0000u, 0x40'0000u, 0x7F'FFFFu})
    for (std::uint32_t const sign : {0u, 0x8000'0000u}) {
      auto const x = std::bit_cast<float>(sign | 0x7F80'0000u | payload);
      auto const got = gs::to_float(gs::from_float<typename Format::type>(x));
      CHECK(std::isnan(got));
      CHECK(std::signbit(got) == (sign != 0));
    }
}

TEST_CASE("a residual's bfloat16: exact in the mean, never infinite, never another value than a neighbour") {
  auto const stored = [](float x, std::uint32_t noise) { return gs::to_float(gs::to_stored<gs::bfloat16>(x, noise)); };
  for (float const x : {1.0f + 0x1p-12f, -3.14159f, 0x1.234566p-130f, 1e-45f, 65504.0f, -0.3f}) {
    double sum = 0;
    float const toward_zero = stored(x, 0);
    float const away =
        gs::to_float(gs::bfloat16{static_cast<std::uint16_t>(gs::to_stored<gs::bfloat16>(x, 0).bits + 1)});
    bool neighbours = true;
    for (std::uint32_t noise = 0; noise < 65536; ++noise) {
      float const rounded = stored(x, noise);
      neighbours = neighbours && (rounded == toward_zero || rounded == away);
      sum += static_cast<double>(rounded);
    }
    CHECK(neighbours);
    CHECK(sum / 65536 == static_cast<double>(x));
  }
  for (std::uint32_t const noise : {0u, 1u, 0x8000u, 0xFFFFu}) {
    for (float const x : {0.0f, -0.0f, 1.0f, -0x1p-133f, gs::to_float(gs::bfloat16{0x7F7F})})
      CHECK(std::bit_cast<std::uint32_t>(stored(x, noise)) == std::bit_cast<std::uint32_t>(x));
    CHECK(stored(std::numeric_limits<float>::max(), noise) == gs::to_float(gs::bfloat16{0x7F7F}));
    CHECK(stored(-std::numeric_limits<float>::max(), noise) == -gs::to_float(gs::bfloat16{0x7F7F}));
    CHECK(stored(-std::numeric_limits<float>::infinity(), noise) == -std::numeric_limits<float>::infinity());
  }
  CHECK(gs::to_stored<float>(0.1f) == 0.1f);
}

TEST_CASE("known 16-bit values") {
  CHECK(gs::from_float<gs::float16>(1.0f).bits == 0x3C00);
  CHECK(gs::from_float<gs::float16>(65519.99f).bits == 0x7BFF);
  CHECK(gs::from_float<gs::float16>(65520.0f).bits == 0x7C00);
  CHECK(gs::from_float<gs::float16>(-0x1p-24f).bits == 0x8001);
  CHECK(gs::from_float<gs::float16>(0x1p-25f).bits == 0);
  CHECK(gs::from_float<gs::bfloat16>(1.0f).bits == 0x3F80);
  CHECK(gs::from_float<gs::bfloat16>(std::numeric_limits<float>::max()).bits == 0x7F80);
  static_assert(gs::from_float<gs::float16>(gs::to_float(gs::float16{0x0001})).bits == 0x0001);
}

TEST_CASE("keys order floats as their magnitudes") {
  float const inf = std::numeric_limits<float>::infinity();
  float const nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(gs::magnitude_key(0.0f) == 0);
  CHECK(gs::magnitude_key(-0.0f) == 0);
  CHECK(gs::magnitude_key(-inf) == gs::infinite_key);
  CHECK(gs::magnitude_key(nan) > gs::infinite_key);
  CHECK(gs::magnitude_key(-nan) > gs::infinite_key);
  CHECK(gs::magnitude_key(-1.5f) == gs::magnitude_key(1.5f));
  CHECK(gs::magnitude_of(gs::magnitude_key(-1.5f)) == 1.5f);
  CHECK(gs::abs(-0x1p-149f) == 0x1p-149f);

  data::generator random{3};
  std::vector<float> values{0.0f, 0x1p-149f, 0x1p-148f, 0x1.fffffcp-127f, 0x1p-126f, 1.0f, inf};
  while (values.size() < 4000) {
    auto const bits = static_cast<std::uint32_t>(random.bits());
    auto const x = std::bit_cast<float>(values.size() % 4 == 0 ? bits & 0x807F'FFFFu : bits);  // a quarter subnormal
    if (!std::isnan(x)) values.push_back(x);
  }
  std::uint32_t wrong = 0;
  for (float const a : values)
    for (float const b : values)
      wrong += (std::fabs(a) < std::fabs(b)) != (gs::magnitude_key(a) < gs::magnitude_key(b));
  CHECK(wrong == 0);
  for (float const x : values) wrong += gs::is_finite(x) != std::isfinite(x) || gs::is_finite(nan);
  for (int n = 0; n < 4000; ++n) {
    auto const bits = random.bits();
    auto const x = std::bit_cast<double>(n % 4 == 0 ? bits | 0x7FF0'0000'0000'0000u : bits);  // a quarter not finite
    wrong += gs::is_finite(x) != std::isfinite(x);
  }
  for (double const x : {0.0, -0x1p-1074, -0x1.fffffffffffffp1023, std::numeric_limits<double>::infinity()})
    wrong += gs::is_finite(x) != std::isfinite(x);
  CHECK(wrong == 0);
}
