// Values in 2, 4 and 8 bits with a shared exponent.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gradsieve/gradsieve.hpp>
#include <random>
#include <span>
#include <vector>

namespace gs = gradsieve;

namespace {

gs::message_info const none{0, 0, 0, nullptr, {}};

template <class Codec>
std::vector<float> quantised(Codec const& codec, std::vector<float> values) {
  codec.quantise(none, {}, values);
  return values;
}

template <class Codec>
std::vector<std::byte> encoded(Codec const& codec, std::vector<float> const& values) {
  std::vector<std::byte> bytes(codec.max_bytes(values.size()));
  codec.encode(none, {}, values, bytes);
  return bytes;
}

template <class Codec>
std::vector<float> decoded(Codec const& codec, std::vector<std::byte> const& bytes, std::size_t count) {
  std::vector<float> values(count);
  codec.decode(none, {}, bytes, values);
  return values;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return std::ranges::equal(
      a, b, {}, [](float x) { return gs::bit_cast<std::uint32_t>(x); },
      [](float x) { return gs::bit_cast<std::uint32_t>(x); });
}

/// Calls f(codec, m), m being the largest q.
template <class F>
void for_each_codec(F const& f) {
  for (std::uint32_t const block : {1u, 7u, 64u, 1000u}) {
    CAPTURE(block);
    f(gs::int8{block}, 127);
    f(gs::int4{block}, 7);
    f(gs::int2{block}, 1);
  }
}

}  // namespace

TEST_CASE("what is decoded is what was rounded, and that is rounded to itself, within the error of a block") {
  std::mt19937 random{5};
  for_each_codec([&](auto codec, int most) {
    for (int const scale : {0, -126, -140, 100}) {
      CAPTURE(scale);
      for (std::size_t const count : {0u, 1u, 63u, 64u, 129u, 1500u}) {
        std::vector<float> values(count);
        for (auto& x : values) x = std::ldexp(std::normal_distribution<float>{}(random), scale);
        auto const expected = quantised(codec, values);
        auto const bytes = encoded(codec, expected);
        REQUIRE(same_bits(decoded(codec, bytes, count), expected));
        REQUIRE(same_bits(quantised(codec, expected), expected));
        REQUIRE(encoded(codec, values) == bytes);
        for (std::size_t first = 0; first < count; first += codec.block) {
          auto const end = std::min<std::size_t>(count, first + codec.block);
          double largest = 0;
          for (auto i = first; i < end; ++i) largest = std::max(largest, std::abs(static_cast<double>(values[i])));
          for (auto i = first; i < end; ++i) {
            double const error = std::abs(static_cast<double>(values[i]) - static_cast<double>(expected[i]));
            REQUIRE(error <= std::max(largest / most, 0x1p-150));
          }
        }
      }
    }
  });
}

TEST_CASE("bytes: exponents first, then codes, the first in the lowest bits") {
  auto const bytes = [](std::initializer_list<int> all) {
    std::vector<std::byte> result;
    for (int const each : all) result.push_back(static_cast<std::byte>(each));
    return result;
  };
  // 7 = 7 * 2^0 and 2^0 = 2^(149 - 149); codes 14, 0, 7 + 1, 7 + 0, and ties to even: 2.5 -> 2, 3.5 -> 4
  CHECK(encoded(gs::int4{}, {7, -7, 1, 0.5f, 2.5f, 3.5f}) == bytes({149, 0x0E, 0x78, 0xB9}));
  CHECK(encoded(gs::int4{2}, {7, 1, 0.5f}) == bytes({149, 146, 0x8E, 0x0B}));  // 0.5 = 4 * 2^(146 - 149)
  CHECK(encoded(gs::int8{}, {-254, 127}) == bytes({150, 0, 191}));             // 127 / 2 = 63.5 -> 64
  CHECK(encoded(gs::int2{}, {3, -3, 1, 2, 4}) == bytes({151, 0x52, 0x02}));    // in units of 4: 1, -1, 0, 0 (tie), 1
  CHECK(encoded(gs::int4{}, {0, 0}) == bytes({0, 0x77}));
}

TEST_CASE("the largest value, beyond it, and subnormal numbers") {
  for_each_codec([](auto codec, int most) {
    CHECK(codec.largest() == std::ldexp(static_cast<float>(most), 106));
    CHECK(quantised(codec, {codec.largest()})[0] == codec.largest());
    CHECK(quantised(codec, {3e38f})[0] == codec.largest());
    CHECK(quantised(codec, {0x1p-149f})[0] == 0x1p-149f);
    CHECK(quantised(codec, {-0x1p-126f})[0] == -0x1p-126f);
  });
}

TEST_CASE("codes and bits that no value has are refused") {
  auto bytes = encoded(gs::int4{}, {7, -7, 1});
  CHECK_NOTHROW(decoded(gs::int4{}, bytes, 3));
  auto code = bytes;
  code[1] = std::byte{0xFE};
  CHECK_THROWS_WITH_AS(decoded(gs::int4{}, code, 3), "gradsieve: message value in a block is 15, expected at most 14",
                       gs::corrupt_message);
  auto padding = bytes;
  padding[2] |= std::byte{0x10};
  CHECK_THROWS_AS(decoded(gs::int4{}, padding, 3), gs::corrupt_message);
  auto scale = bytes;
  scale[1] = std::byte{0x78};  // 1, 0, 1: an exponent less by two would do
  CHECK_THROWS_WITH_AS(decoded(gs::int4{}, scale, 3), "gradsieve: message exponent of a block is 149, expected 147",
                       gs::corrupt_message);
}

TEST_CASE("a compressor: the residual has what rounding takes off") {
  std::uint64_t const n = 20'000;
  auto const check = [&](auto codec) {
    gs::recipe const recipe{.density = 0.05, .codec = codec};
    gs::compressor reducer{gs::host{2}, gs::layout::flat(n), recipe};
    gs::averager averager{gs::host{2}, reducer.layers(), recipe};
    std::vector<double> came(n);
    std::vector<double> went(n);
    std::mt19937 random{3};
    for (int step = 0; step < 8; ++step) {
      std::vector<float> gradient(n);
      for (auto& x : gradient) x = std::normal_distribution<float>{}(random);
      for (std::size_t i = 0; i < n; ++i) came[i] += static_cast<double>(gradient[i]);
      auto const message = reducer.encode(reducer.compress(std::span<float const>{gradient}));
      std::vector<std::span<std::byte const>> const received{message};
      std::vector<float> update(n);
      averager.apply(std::span{received}, std::span{update});
      for (std::size_t i = 0; i < n; ++i) went[i] += static_cast<double>(update[i]);
    }
    auto const left = reducer.residual();
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(came[i] - went[i] - static_cast<double>(left[i])));
    CHECK(worst < 1e-5);
  };
  check(gs::packed{.indices = gs::delta{}, .values = gs::int8{}});
  check(gs::packed{.values = gs::int4{}});
  check(gs::packed{.indices = gs::fixed_width{}, .values = gs::int2{.block = 16}});
}
