// Values in few bits: with a shared exponent, a sign and a mean, or rounded at random.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gradsieve/comm/threads.hpp>
#include <gradsieve/core/float_environment.hpp>
#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>
#include <initializer_list>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace gs = gradsieve;

namespace {

gs::message_info const none{0, 0, 0, nullptr, {}};

std::vector<std::byte> bytes(std::initializer_list<int> all) {
  std::vector<std::byte> result;
  for (int const each : all) result.push_back(static_cast<std::byte>(each));
  return result;
}

/// The places 0, 3, 6...
std::vector<gs::index_type> places(std::size_t count) {
  std::vector<gs::index_type> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<gs::index_type>(3 * i);
  return made;
}

template <class Codec>
std::vector<float> quantised(Codec const& codec, std::vector<float> values) {
  codec.quantise(none, places(values.size()), values);
  return values;
}

template <class Codec>
std::vector<std::byte> encoded(Codec const& codec, std::vector<float> const& values) {
  std::vector<std::byte> message(codec.max_bytes(values.size()));
  codec.encode(none, places(values.size()), values, message);
  return message;
}

template <class Codec>
std::vector<float> decoded(Codec const& codec, std::vector<std::byte> const& message, std::size_t count) {
  std::vector<float> values(count);
  codec.decode(none, places(count), message, values);
  return values;
}

std::vector<float> normal(std::size_t count, int scale, unsigned seed = 5) {
  std::mt19937 random{seed};
  std::vector<float> values(count);
  for (auto& x : values) x = std::ldexp(std::normal_distribution<float>{}(random), scale);
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
        auto const message = encoded(codec, expected);
        REQUIRE(same_bits(decoded(codec, message, count), expected));
        REQUIRE(same_bits(quantised(codec, expected), expected));
        REQUIRE(encoded(codec, values) == message);
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

TEST_CASE("every code and exponent of a block give q times the power of two") {
  gs::float_environment const mode;  // what is expected has subnormal numbers
  for_each_codec([](auto codec, int most) {
    for (std::uint32_t exponent = 0; exponent <= 255; ++exponent)
      for (int q = -most; q <= most; ++q) {
        auto const expected = static_cast<float>(std::ldexp(static_cast<double>(q), static_cast<int>(exponent) - 149));
        auto const is = codec.value_of(static_cast<std::uint32_t>(q + most), exponent);
        REQUIRE(gs::bit_cast<std::uint32_t>(is) == gs::bit_cast<std::uint32_t>(expected));
      }
  });
}

TEST_CASE("a block's values are coded and read as each one alone is") {
  std::mt19937 random{8};
  auto const check = [&](auto codec) {
    CAPTURE(std::string{codec.name});
    CAPTURE(codec.block);
    auto const scale_bytes = codec.scale_bytes;
    for (int const scale : {0, -126, -140, -148, 100}) {
      std::vector<float> values(1501);
      for (auto& x : values)
        x = std::ldexp(std::normal_distribution<float>{}(random), scale - static_cast<int>(random() % 8));
      auto const message = encoded(codec, values);
      std::size_t const blocks = (values.size() + codec.block - 1) / codec.block;
      std::vector<std::uint32_t> codes(values.size());
      gs::wire::unpack(std::span{message}.subspan(scale_bytes * blocks), codec.width(), codes);
      auto const read = decoded(codec, message, values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        std::size_t const first = i / codec.block * codec.block;
        gs::key_type largest = 0;
        for (std::size_t j = first; j < std::min<std::size_t>(first + codec.block, values.size()); ++j)
          largest = std::max(largest, gs::magnitude_key(values[j]));
        auto const by = codec.scale_of(largest);
        auto const index = static_cast<gs::index_type>(3 * i);
        if constexpr (requires { codec.stream_of(0, 0, 0); })
          REQUIRE(codes[i] == codec.code_of(values[i], index, by, codec.stream_of(0, 0, 0)));
        else
          REQUIRE(codes[i] == codec.code_of(values[i], index, by));
        auto const alone = codec.value_of(codes[i], by);
        REQUIRE(gs::bit_cast<std::uint32_t>(read[i]) == gs::bit_cast<std::uint32_t>(alone));
      }
    }
  };
  for_each_codec([&](auto codec, int) { check(codec); });
  for (std::uint32_t const levels : {1u, 2u, 8u, 64u})
    for (std::uint32_t const block : {1u, 7u, 100u, 256u}) check(gs::qsgd{.levels = levels, .block = block, .seed = 3});
}

TEST_CASE("bytes: exponents first, then codes, the first in the lowest bits") {
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

TEST_CASE("sign and qsgd: what is decoded is what was rounded, and that is rounded to itself") {
  std::mt19937 random{5};
  auto const check = [&](auto codec) {
    CAPTURE(std::string{codec.name});
    for (int const scale : {0, -126, -140, -148, 100})
      for (std::size_t const count : {0u, 1u, 63u, 64u, 129u, 1500u}) {
        CAPTURE(scale);
        CAPTURE(count);
        std::vector<float> values(count);
        for (auto& x : values) x = std::ldexp(std::normal_distribution<float>{}(random), scale);
        auto const expected = quantised(codec, values);
        auto const message = encoded(codec, expected);
        REQUIRE(same_bits(decoded(codec, message, count), expected));
        REQUIRE(same_bits(quantised(codec, expected), expected));
        REQUIRE(encoded(codec, values) == message);
      }
    for (float const extreme : {3e38f, -0.0f, 0x1p-149f, -0x1p-149f, 0x1.8p-148f}) {
      std::vector<float> const values{extreme, 0.0f, 0x1p-149f, extreme};
      auto const expected = quantised(codec, values);
      CHECK(same_bits(decoded(codec, encoded(codec, values), 4), expected));
      CHECK(same_bits(quantised(codec, expected), expected));
    }
  };
  for (std::uint32_t const block : {1u, 7u, 256u}) check(gs::sign{block});
  for (std::uint32_t const levels : {1u, 2u, 4u, 64u})
    for (std::uint32_t const block : {1u, 7u, 256u}) check(gs::qsgd{.levels = levels, .block = block, .seed = 9});
}

TEST_CASE("sign: means by hand, and its size") {
  CHECK(quantised(gs::sign{2}, {1, -3, 5, 5, -0.5f}) == std::vector<float>{2, -2, 5, 5, -0.5f});
  CHECK(encoded(gs::sign{2}, {1, -3, 5, 5, -0.5f}) == bytes({0, 0, 0, 0x40, 0, 0, 0xA0, 0x40, 0, 0, 0, 0x3F, 0b10010}));
  CHECK(gs::sign{}.max_bytes(1024) == 16 + 128);
  // With elias_fano's 12 bits an index at a density of 0.1 %: fewer than 16 in all.
  CHECK(8.0 * static_cast<double>(gs::elias_fano{}.max_bytes(10'000'000, 10'000) + gs::sign{}.max_bytes(10'000)) <
        16.0 * 10'000);
}

TEST_CASE("qsgd: a level's neighbours, whose mean is the value; levels by hand, and their size") {
  CHECK(encoded(gs::qsgd{.levels = 4}, {2, 0.5f, -1, 0, -2}) == bytes({0, 0, 0, 0x40, 0x58, 0x42, 0x00}));
  CHECK(gs::qsgd{.levels = 1, .block = 1024}.max_bytes(1024) == 4 + 256);
  CHECK(gs::qsgd{.levels = 64, .block = 1024}.max_bytes(1024) == 4 + 1024);
  std::size_t const count = 40'000;
  for (std::uint32_t const seed : {0u, 7u}) {
    gs::qsgd const codec{.levels = 4, .block = 1u << 20, .seed = seed};
    std::vector<float> values(count, 0.3f);
    values[0] = 1;
    auto const found = quantised(codec, values);
    double sum = 0;
    for (std::size_t i = 1; i < count; ++i) {
      REQUIRE((found[i] == 0.25f || found[i] == 0.5f));
      sum += static_cast<double>(found[i]);
    }
    CHECK(sum / (count - 1) == doctest::Approx(0.3).epsilon(0.005));  // 0.0005 is one standard deviation of the mean
  }
  CHECK_THROWS_WITH_AS(gs::check(gs::qsgd{.levels = 3}),
                       "gradsieve: qsgd's levels is 3, expected a power of two from 1 to 64", gs::invalid_argument);
}

namespace {

/// How far the mean of what the ranks send in some steps is from what they have, relative to that. All of them have the
/// same gradient in all steps, and keep no residual.
template <class Exchange>
double error_of_mean(Exchange const& exchange, int world, std::uint64_t steps, gs::qsgd const values) {
  gs::layout const layers{{"a", 1000}, {"b", 3000}};
  std::mt19937 random{11};
  std::vector<float> gradient(layers.size());
  for (float& x : gradient) x = std::normal_distribution<float>{}(random);
  std::vector<double> sums(layers.size());
  std::mutex guard;
  gs::threads::run(world, [&](gs::threads::communicator_ref comm) {
    gs::recipe const recipe{.density = 0.5,
                            .residual = gs::none{},
                            .codec = gs::packed{.indices = gs::raw32{}, .values = values},
                            .exchange = exchange};
    gs::compressor compressor{gs::host{.threads = 1}, layers, recipe};
    for (std::uint64_t step = 0; step < steps; ++step) {
      auto update = gradient;
      compressor.exchange(comm, std::span{update});
      std::scoped_lock const lock{guard};
      bool const shards = std::is_same_v<Exchange, gs::reduce_scatter>;
      if (shards || comm.rank() == 0)
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(update[i]);
    }
  });
  auto sizes = gradient;
  for (float& x : sizes) x = std::abs(x);
  std::ranges::nth_element(sizes, sizes.begin() + 2000);  // the largest half is sent
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (std::abs(gradient[i]) < sizes[2000]) continue;
    auto const x = static_cast<double>(gradient[i]);
    error += (sums[i] / static_cast<double>(steps) - x) * (sums[i] / static_cast<double>(steps) - x);
    norm += x * x;
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_CASE("qsgd: the mean over steps and over ranks is unbiased, whatever the exchange") {
  auto const check = [](auto exchange) {
    for (std::uint32_t const levels : {1u, 4u}) {
      // Four times the draws, half the error, and so on: rounding alike on each rank, or in each step, leaves it as it
      // is.
      auto const once = error_of_mean(exchange, 1, 1, {.levels = levels});
      auto const ranks = error_of_mean(exchange, 4, 1, {.levels = levels});
      if (!std::is_same_v<decltype(exchange), gs::reduce_scatter>)  // whose blocks are other ones
        CHECK(ranks / once == doctest::Approx(0.5).epsilon(0.03));
      CHECK(error_of_mean(exchange, 4, 100, {.levels = levels}) / ranks == doctest::Approx(0.1).epsilon(0.01));
    }
  };
  SUBCASE("gather") { check(gs::gather{}); }
  SUBCASE("reduce_scatter") { check(gs::reduce_scatter{}); }
}

TEST_CASE("qsgd: ranks, steps, seeds and layouts draw apart; the same again draws alike") {
  std::vector<float> values(10'000, 0.3f);
  values[0] = 1;
  gs::qsgd const codec{.levels = 1, .block = 1u << 20};
  auto const drawn = [&](gs::message_info const& info, gs::qsgd const how) {
    auto rounded = values;
    how.quantise(info, places(values.size()), rounded);
    return rounded;
  };
  gs::message_info const first{.layout_hash = 5, .step = 3, .rank = 2};
  auto const zero = drawn(first, codec);
  CHECK(same_bits(drawn(first, codec), zero));
  auto const apart = [&](std::vector<float> const& other) {
    std::size_t same = 0;
    for (std::size_t i = 1; i < values.size(); ++i) same += other[i] == zero[i] ? 1 : 0;
    CHECK(static_cast<double>(same) / 10'000 == doctest::Approx(0.58).epsilon(0.02));  // 0.3^2 + 0.7^2 by chance
  };
  apart(drawn({.layout_hash = 5, .step = 4, .rank = 2}, codec));
  apart(drawn({.layout_hash = 5, .step = 3, .rank = 3}, codec));
  apart(drawn({.layout_hash = 6, .step = 3, .rank = 2}, codec));
  apart(drawn({.layout_hash = 5, .step = 2, .rank = 3}, codec));
  apart(drawn(first, {.levels = 1, .block = 1u << 20, .seed = 1}));
  // encode() draws as quantise() does, and a reader needs neither step nor rank.
  std::vector<std::byte> message(codec.max_bytes(values.size()));
  codec.encode(first, places(values.size()), values, message);
  CHECK(same_bits(decoded(codec, message, values.size()), zero));
}

TEST_CASE("qsgd: compress() rounds by step and rank, exchange() by the communicator's rank, also after a checkpoint") {
  gs::recipe const recipe{.density = 0.5, .codec = gs::packed{.indices = gs::raw32{}, .values = gs::qsgd{.levels = 1}}};
  auto const layers = gs::layout::flat(2000);
  auto const message = [](auto& compressor, std::vector<float> const& gradient, int rank) {
    auto const bytes = compressor.encode(compressor.compress(gradient, rank));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  gs::compressor a{gs::host{.threads = 1}, layers, recipe};
  gs::compressor b{gs::host{.threads = 1}, layers, recipe};
  gs::compressor c{gs::host{.threads = 1}, layers, recipe};
  for (unsigned step = 0; step < 3; ++step) {
    auto const gradient = normal(2000, 0, step);
    auto const mine = message(a, gradient, 1);
    CHECK(message(b, gradient, 1) == mine);
    CHECK(message(c, gradient, 2) != mine);
    gs::averager mean{gs::host{.threads = 1}, layers, recipe};
    auto update = gradient;
    std::span<std::byte const> const all[] = {mine};
    CHECK(mean.apply(all, update).entries == 1000);
  }
  gs::compressor restored{gs::host{.threads = 1}, layers, recipe};
  restored.restore(a.state());
  auto const gradient = normal(2000, 0, 9);
  CHECK(message(restored, gradient, 1) == message(a, gradient, 1));
  CHECK_THROWS_WITH_AS(static_cast<void>(a.compress(gradient, -1)), "gradsieve: compress() was given the rank -1",
                       gs::invalid_argument);

  // What a rank gives up in an exchange is what compress() gives up with the rank's number.
  gs::threads::run(3, [&](gs::threads::communicator_ref comm) {
    gs::compressor exchanges{gs::host{.threads = 1}, layers, recipe};
    gs::compressor compresses{gs::host{.threads = 1}, layers, recipe};
    bool same = true;
    for (unsigned step = 0; step < 3; ++step) {
      auto update = normal(2000, 0, step);
      static_cast<void>(compresses.compress(update, comm.rank()));
      exchanges.exchange(comm, std::span{update});
      auto const left = exchanges.residual();
      auto const kept = compresses.residual();
      same = same && std::ranges::equal(left, kept);
    }
    static std::mutex guard;
    std::scoped_lock const lock{guard};
    CHECK(same);
  });
}

TEST_CASE("codes and bits that no value has are refused") {
  auto const refused = [](auto codec, std::vector<float> const& values, std::size_t at, unsigned byte) {
    auto message = encoded(codec, values);
    CHECK_NOTHROW(decoded(codec, message, values.size()));
    message[at] = static_cast<std::byte>(byte);
    CHECK_THROWS_AS(decoded(codec, message, values.size()), gs::corrupt_message);
  };
  refused(gs::sign{2}, {1, -3, 5}, 3, 0x7F + 0x80);        // a negative scale
  refused(gs::sign{2}, {1, -3, 5}, 8, 0b1010);             // a sign behind the last
  refused(gs::qsgd{.levels = 4}, {2, 0.5f, -1}, 4, 0x59);  // a code of 9
  refused(gs::qsgd{.levels = 4}, {2, 0.5f, -1}, 4, 0x57);  // none of the largest
  refused(gs::qsgd{.levels = 4}, {2, 0.5f, -1}, 5, 0x12);  // a bit behind the last
  auto const message = encoded(gs::int4{}, {7, -7, 1});
  CHECK_NOTHROW(decoded(gs::int4{}, message, 3));
  auto code = message;
  code[1] = std::byte{0xFE};
  CHECK_THROWS_WITH_AS(decoded(gs::int4{}, code, 3), "gradsieve: message value in a block is 15, expected at most 14",
                       gs::corrupt_message);
  auto padding = message;
  padding[2] |= std::byte{0x10};
  CHECK_THROWS_AS(decoded(gs::int4{}, padding, 3), gs::corrupt_message);
  auto scale = message;
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
  check(gs::packed{.indices = gs::elias_fano{}, .values = gs::sign{}});
  check(gs::packed{.values = gs::qsgd{}});
}
