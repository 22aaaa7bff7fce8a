// Codecs made of two parts: what they carry, how large it is, what becomes of values, and everything that is not one
// of their messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include <gradsieve/gradsieve.hpp>
#include <gradsieve/published.hpp>

#include "data.hpp"
#include "messages.hpp"
#include "sanitized.hpp"

namespace gs = gradsieve;
using namespace messages;

namespace {

constexpr std::uint64_t largest_n = 4'294'967'295u;
constexpr std::size_t payload = 52;  // behind header and ids

/// Calls f(an index codec). Bitmaps and short chunks only where n bits are not too many.
template <class F>
void for_each_index_codec(std::uint64_t n, F const& f) {
  f(gs::raw32{});
  f(gs::delta{});
  f(gs::elias_fano{});
  f(gs::automatic{});
  f(gs::fixed_width{.chunk = 65536});
  if (n > 1'000'000) return;
  f(gs::bitmap{});
  f(gs::fixed_width{});
  f(gs::fixed_width{.chunk = 2});
  f(gs::fixed_width{.chunk = 64});
}

template <class F>
void for_each_value_codec(F const& f) {
  f(gs::fp32{});
  f(gs::fp16{});
  f(gs::bf16{});
  f(gs::ternary{});
  f(gs::int4{});
  f(gs::sign{});
  f(gs::qsgd{});
}

template <class F>
void for_each_packed(std::uint64_t n, F const& f) {
  for_each_index_codec(n, [&](auto indices) {
    f(gs::packed{.indices = indices, .values = gs::fp16{}});
    f(gs::packed{.indices = indices, .values = gs::ternary{}});
  });
  for_each_value_codec([&](auto values) { f(gs::packed{.indices = gs::raw32{}, .values = values}); });
}

template <class Policy>
std::string name_of(Policy const& policy) {
  std::ostringstream text;
  text << policy;
  return text.str();
}

/// Values for these indices, of either sign and many sizes.
content with_values(std::vector<gs::index_type> indices, std::uint64_t passthrough = 0) {
  data::generator random{indices.size() + 1};
  content made{std::move(indices), {}, {}};
  for (std::size_t i = 0; i < made.indices.size(); ++i)
    made.values.push_back(static_cast<float>(random.laplace() * std::pow(10.0, 4 * random.uniform() - 2)));
  for (std::uint64_t i = 0; i < passthrough; ++i) made.passthrough.push_back(static_cast<float>(random.gauss()));
  return made;
}

std::vector<gs::index_type> iid(std::uint64_t n, double density, std::uint64_t seed = 1) {
  data::generator random{seed};
  std::vector<gs::index_type> indices;
  double const scale = density < 1 ? 1 / std::log1p(-density) : 0;
  for (double at = 0;; at += 1) {
    at += std::floor(std::log(random.uniform()) * scale);
    if (at >= static_cast<double>(n)) return indices;
    indices.push_back(static_cast<gs::index_type>(at));
  }
}

template <class Codec>
content quantised(Codec const& codec, gs::message_info const& info, content from) {
  if constexpr (requires { codec.quantise(info, from.indices, std::span{from.values}); })
    codec.quantise(info, from.indices, std::span{from.values});
  return from;
}

bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 4 * a.size()) == 0);
}

/// There and back, for every codec that this n allows.
void check_there_and_back(gs::message_info const& info, content const& from) {
  for_each_packed(info.n, [&](auto const& codec) {
    auto const expected = quantised(codec, info, from);
    auto const message = encoded(codec, info, expected);
    auto const got = decoded(codec, info, message, from.indices.size());
    INFO(name_of(codec) << ", n " << info.n << ", " << from.indices.size() << " entries");
    bool const same = got == expected && same_bits(got.values, expected.values);
    if (!same) FAIL_CHECK("another selection arrived");
    if (encoded(codec, info, from) != message) FAIL_CHECK("quantised values make another message");
  });
}

template <class... Parts>
constexpr bool all_codecs = (gs::codec<gs::packed<Parts>> && ...);
static_assert(all_codecs<gs::raw32, gs::delta, gs::elias_fano, gs::bitmap, gs::fixed_width, gs::automatic>);
static_assert(!gs::index_codec<gs::fp32> && !gs::value_codec<gs::delta> && !gs::index_codec<int>);
static_assert(std::is_trivially_copyable_v<gs::packed<gs::fixed_width, gs::ternary>>);

gs::layout const three_layers{{"a", 40}, {"empty", 0}, {"b", 1}, {"c", 59}};

}  // namespace

// ---- There and back ----------------------------------------------------------------------------------------

TEST_CASE("what is packed is unpacked: gaps of every width") {
  std::vector<gs::index_type> indices;
  for (unsigned width = 0; width < 31; ++width)  // gaps of 2^w - 1, 2^w and 2^w + 1, and one run of 1 between them
    for (std::uint64_t const gap : {(1u << width) - 1, 1u << width, (1u << width) + 1, 1u}) {
      std::uint64_t const next = (indices.empty() ? 0 : indices.back()) + gap;
      if (gap > 0 && next < largest_n) indices.push_back(static_cast<gs::index_type>(next));
    }
  check_there_and_back({largest_n, 1, 0}, with_values(indices));
  check_there_and_back({largest_n, 1, 3}, with_values({0, 1, 0x8000'0000u, 0xFFFF'FFFEu}, 3));
  check_there_and_back({largest_n, 1, 0}, with_values({0xFFFF'FFFEu}));
  check_there_and_back({largest_n, 1, 0}, with_values({0x7FFF'FFFFu, 0xFFFF'FFFDu, 0xFFFF'FFFEu}));
  check_there_and_back({largest_n, 1, 0}, with_values({}));
}

TEST_CASE("what is packed is unpacked: none, one, some, all") {
  for (std::uint64_t const n : {0u, 1u, 2u, 7u, 8u, 9u, 63u, 64u, 65u, 127u, 128u, 129u, 383u, 384u, 385u, 5000u})
    for (std::uint64_t const passthrough : {0u, 1u, 13u})
      for (std::uint64_t const k : {std::uint64_t{0}, std::min<std::uint64_t>(n, 1), n / 3, n - n / 8, n}) {
        auto const values = data::make(data::law::laplace, n, k);
        auto chosen = data::top_k(values, k);
        gs::layout const layers{{"a", n / 2}, {"b", 0}, {"c", n - n / 2}};
        check_there_and_back({n, 5, passthrough, &layers}, with_values(chosen.indices, passthrough));
      }
}

TEST_CASE("what is packed is unpacked: random positions") {
  for (double const density : {0.9, 0.5, 0.1, 0.01, 0.0003})
    for (std::uint64_t const n : {1000u, 70'000u}) check_there_and_back({n, 5, 2}, with_values(iid(n, density, n), 2));
}

TEST_CASE("the room that delta asks for is what the worst gaps take") {
  // In each block one gap, of 2^(w - 1) elements or in the first `wider` blocks of 2^w, and nothing else left out.
  for (unsigned const w : {1u, 2u, 9u, 20u})
    for (std::size_t const wider : {0u, 1u, 6u, 7u}) {
      std::vector<gs::index_type> indices;
      gs::index_type next = 0;
      for (std::size_t b = 0; b < 7; ++b)
        for (std::size_t i = 0; i < gs::delta::block; ++i, ++next) {
          if (i == 31 * b % gs::delta::block) next += 1u << (b < wider ? w : w - 1);
          indices.push_back(next);
        }
      std::vector<std::byte> room(gs::delta{}.max_bytes(next - indices.size(), indices.size()));
      CHECK(gs::delta{}.encode({next, 0, 0}, indices, room) == room.size());
      CHECK(gs::delta{}.max_bytes(largest_n, indices.size()) > room.size());
    }
  CHECK(gs::delta{}.max_bytes(5000, 0) == 0);
}

TEST_CASE("room for many entries is room for fewer") {
  constexpr std::uint64_t n = 5000;
  for_each_packed(n, [&](auto const& codec) {
    INFO(name_of(codec));
    std::uint64_t most = 0;
    for (std::uint64_t count = 0; count <= n; ++count) {
      auto const room = codec.max_bytes(n, count, 3);
      if (room < most) FAIL_CHECK(count << " entries have " << room << " bytes, one less has " << most);
      most = room;
    }
    for (std::uint64_t const left_out : {1u, 20u, 150u, 1000u}) {
      std::vector<gs::index_type> indices;
      for (std::uint64_t i = 0; i < n; ++i)
        if (i % (n / left_out) != 0) indices.push_back(static_cast<gs::index_type>(i));
      gs::message_info const info{n, 1, 3};
      CHECK(encoded(codec, info, with_values(indices, 3)).size() <= codec.max_bytes(n, n, 3));
    }
  });
}

TEST_CASE("fields of every width, in memory that ends with them or soon behind") {
  data::generator random{1};
  for (unsigned width = 0; width <= 32; ++width)
    for (std::size_t count = 0; count <= 40; ++count)
      for (std::size_t const behind : {0u, 1u, 7u, 8u, 9u, 40u}) {
        std::vector<std::uint32_t> fields(count);
        for (auto& each : fields) each = static_cast<std::uint32_t>(random.bits()) & gs::wire::low_bits(width);
        auto const size = gs::wire::packed_bytes(count, width);
        bytes to(size + behind, std::byte{0xFF});  // overreads show under AddressSanitizer
        if (gs::wire::pack(fields, width, to) != size) FAIL_CHECK("another size");
        if (!gs::wire::padding_is_zero(to, count, width)) FAIL_CHECK("padding is not zero");
        std::vector<std::uint32_t> got(count);
        gs::wire::unpack(to, width, got);
        if (got != fields) FAIL_CHECK("width " << width << ", " << count << " fields, " << behind << " bytes behind");
      }
}

TEST_CASE("a packed message may stand at any address") {
  gs::message_info const info{5000, 1, 1};
  auto const from = with_values(iid(5000, 0.1), 1);
  for_each_packed(info.n, [&](auto const& codec) {
    auto const expected = quantised(codec, info, from);
    auto const message = encoded(codec, info, expected);
    for (std::size_t shift = 0; shift < 9; ++shift) {
      bytes moved(shift + codec.max_bytes(5000, from.indices.size(), 1));
      auto const size = codec.encode(info, expected.view(), std::span{moved}.subspan(shift));
      auto const place = std::span{moved}.subspan(shift, size);
      INFO(name_of(codec) << ", shifted by " << shift);
      CHECK(std::equal(place.begin(), place.end(), message.begin(), message.end()));
      CHECK(decoded(codec, info, place, from.indices.size()) == expected);
    }
  });
}

// ---- Sizes -------------------------------------------------------------------------------------------------

TEST_CASE("bits an index, for random positions") {
  struct row {
    double density, raw, by_bitmap, by_delta, by_elias_fano;
  };
  // raw u32, bitmap and 128-gap bit-packing: entropy coding would take 2.00 to 14.73
  constexpr std::array table{row{0.5, 32, 2, 3.5, 3.0},         row{0.25, 32, 4, 4.8, 4.0},
                             row{0.125, 32, 8, 5.9, 5.0},       row{0.0625, 32, 16, 7.0, 6.0},
                             row{1.0 / 32, 32, 32, 8.0, 7.0},   row{0.01, 32, 100, 9.6, 8.56},
                             row{0.003, 32, 333, 11.3, 10.3},   row{0.001, 32, 1000, 13.0, 11.95},
                             row{0.0003, 32, 3333, 14.6, 13.6}, row{0.0001, 32, 1e4, 16.3, 15.2}};
  for (auto const& expected : table) {
    std::uint64_t const n = expected.density > 0.01 ? 200'000 : 20'000'000;
    auto const indices = iid(n, expected.density);
    gs::message_info const info{n, 0, 0};
    auto const count = static_cast<double>(indices.size());
    bytes to(n / 8 + 4 * indices.size() + n);
    auto const bits = [&](auto const& codec) {
      return 8 * static_cast<double>(codec.encode(info, indices, to)) / count;
    };
    CAPTURE(expected.density);
    CHECK(bits(gs::raw32{}) == 32);
    CHECK(bits(gs::bitmap{}) == doctest::Approx(expected.by_bitmap).epsilon(0.05));
    CHECK(bits(gs::delta{}) == doctest::Approx(expected.by_delta).epsilon(0.05));
    CHECK(bits(gs::elias_fano{}) == doctest::Approx(expected.by_elias_fano).epsilon(0.02));
    auto const exact = [&](auto const& codec) {
      CHECK(codec.bytes(info, indices) == codec.encode(info, indices, to));
      return static_cast<double>(codec.bytes(info, indices));
    };
    CHECK(bits(gs::automatic{}) ==
          8 * (1 + std::min({exact(gs::raw32{}), exact(gs::bitmap{}), exact(gs::delta{}), exact(gs::elias_fano{})})) /
              count);
    if (expected.density == 0.001) CHECK(bits(gs::fixed_width{}) == doctest::Approx(12 + 13 / 4.096).epsilon(0.02));
  }
}

TEST_CASE("elias_fano has the narrowest low part of those with the fewest bytes") {
  auto const same_as_all_widths = [](std::uint64_t n, std::uint64_t count) {
    auto const found = gs::elias_fano::split(n, count);
    unsigned best = 0;
    auto const bytes = [&](unsigned width) { return (count * width + 7) / 8 + (count + ((n - 1) >> width) + 7) / 8; };
    for (unsigned width = 1; width <= 31; ++width)
      if (bytes(width) < bytes(best)) best = width;
    return found.width == best && found.bytes() == bytes(best);
  };
  for (std::uint64_t n = 1; n < 600; ++n)
    for (std::uint64_t count = 1; count <= n; ++count)
      if (!same_as_all_widths(n, count)) FAIL("n " << n << ", count " << count);
  std::mt19937 random{5};
  for (int trial = 0; trial < 200'000; ++trial) {
    std::uint64_t const n = 1 + ((random() % largest_n) >> random() % 31);
    std::uint64_t const count = 1 + (random() % n >> random() % 32);
    if (!same_as_all_widths(n, count)) FAIL("n " << n << ", count " << count);
  }
}

TEST_CASE("automatic takes the smallest, and reports which") {
  auto const chosen = [](std::uint64_t n, std::vector<gs::index_type> const& indices) {
    gs::packed const codec{};
    gs::message_info const info{n, 0, 0};
    auto const from = with_values(indices);
    auto const message = encoded(codec, info, from);
    auto const breakdown = codec.breakdown(info, from.view(), {}, message);
    CHECK(breakdown.kind_count == 0);
    return std::string{breakdown.index_codec};
  };
  CHECK(chosen(10'000, iid(10'000, 0.5)) == "bitmap");
  CHECK(chosen(10'000, iid(10'000, 0.1)) == "elias_fano");
  CHECK(chosen(1'000'000, {70, 71, 73, 74, 75, 76, 78, 79}) == "delta");
  CHECK(chosen(largest_n, {0xFFFF'FFF0u}) == "raw32");  // a width byte more than the index itself
  CHECK(chosen(largest_n, {}) == "delta");
}

TEST_CASE("automatic writes all elements, and all but a few, as runs") {
  gs::packed const codec{};
  gs::message_info const info{10'000, 7, 0};
  std::vector<gs::index_type> all(10'000);
  std::iota(all.begin(), all.end(), 0u);
  auto const with_holes = [&] {
    auto some = all;
    some.erase(some.begin() + 500, some.begin() + 516);
    some.erase(some.begin());
    return some;
  }();
  constexpr auto runs = payload + 1;  // behind the id
  for (auto const& indices : {all, with_holes}) {
    bool const whole = indices.size() == 10'000;
    auto const from = with_values(indices);
    auto const message = encoded(codec, info, from);
    CHECK(message.size() == runs + (whole ? 8 : 16) + 4 * indices.size());
    CHECK(decoded(codec, info, message, 10'000) == from);
    CHECK(codec.breakdown(info, from.view(), {}, message).index_codec == std::string{"runs"});
    auto const changed = [&](std::size_t at, unsigned to) {
      auto damaged = message;
      damaged[runs + at] = static_cast<std::byte>(to);
      reseal(damaged);
      return verdict(codec, info, damaged, 10'000);
    };
    auto const says = [](std::string const& said, char const* what) { return said.find(what) != said.npos; };
    CHECK(says(changed(4, 0xFF), "length of a run"));
    CHECK((whole ? !changed(0, 1).empty() : says(changed(8, 0), "gap between runs is 0")));
  }
}

// ---- Bytes -------------------------------------------------------------------------------------------------

TEST_CASE("the bytes of packed messages") {
  gs::message_info const info{100, 0x1122'3344'5566'7788u, 1, &three_layers};
  content const from{{1, 9, 40, 99}, {1.0f, -2.0f, -0.5f, 4.0f}, {0.5f}};
  auto const tail = [&](auto const& codec) {
    auto const message = encoded(codec, info, from);
    CHECK(hex(std::span{message}.first(40)) ==
          "47 52 53 56 02 00 02 00 64 00 00 00 00 00 00 00 "  // GRSV, version, codec, n
          "88 77 66 55 44 33 22 11 04 00 00 00 00 00 00 00 "  // layout hash, entries
          "01 00 00 00 00 00 00 00");                         // passthrough; then the checksum
    return hex(std::span{message}.subspan(48));
  };
  std::string const half = "00 00 00 3f ";  // the passthrough element
  CHECK(tail(gs::packed{.indices = gs::raw32{}, .values = gs::fp32{}}) ==
        "01 00 01 00 " + half + "01 00 00 00 09 00 00 00 28 00 00 00 63 00 00 00 " +
            "00 00 80 3f 00 00 00 c0 00 00 00 bf 00 00 80 40");
  // gaps 1, 7, 30, 58: six bits each, 0b111010'011110'000111'000001
  CHECK(tail(gs::packed{.indices = gs::delta{}, .values = gs::fp16{}}) ==
        "02 00 02 00 " + half + "06 c1 e1 e9 00 3c 00 c0 00 b8 00 44");
  CHECK(tail(gs::packed{.indices = gs::bitmap{}, .values = gs::bf16{}}) ==
        "03 00 03 00 " + half + "02 02 00 00 00 01 00 00 00 00 00 00 08 80 3f 00 c0 00 bf 80 40");
  // chunks of 64: counts 3 and 1 in 7 bits, offsets 1, 9, 40, 35 in 6 bits; scales 1.5, 0.5 and 4, signs 0110
  CHECK(tail(gs::packed{.indices = gs::fixed_width{.chunk = 64}, .values = gs::ternary{}}) ==
        "04 00 04 00 " + half + "06 83 00 41 82 8e 00 00 c0 3f 00 00 00 3f 00 00 80 40 06");
  CHECK(tail(gs::packed{}) ==
        "05 00 01 00 " + half + "02 06 c1 e1 e9 " + "00 00 80 3f 00 00 00 c0 00 00 00 bf 00 00 80 40");
}

// ---- Values ------------------------------------------------------------------------------------------------

TEST_CASE("16-bit values stay finite") {
  float const most = std::numeric_limits<float>::max();
  auto const through = [](auto const& how, float x) {
    content const from{{0}, {x}, {}};
    gs::packed const codec{.indices = gs::raw32{}, .values = how};
    return decoded(codec, {1, 0, 0}, encoded(codec, {1, 0, 0}, from), 1).values[0];
  };
  CHECK(through(gs::fp16{}, most) == 65504.0f);
  CHECK(through(gs::fp16{}, -65520.0f) == -65504.0f);
  CHECK(through(gs::fp16{}, 65519.0f) == 65504.0f);
  CHECK(through(gs::fp16{}, 2049.0f) == 2048.0f);  // ties to even
  CHECK(through(gs::fp16{}, 0x1p-24f) == 0x1p-24f);
  CHECK(through(gs::fp16{}, 0x1p-26f) == 0.0f);
  CHECK(through(gs::bf16{}, most) == gs::to_float(gs::bfloat16{0x7F7F}));
  CHECK(through(gs::bf16{}, -most) == -gs::to_float(gs::bfloat16{0x7F7F}));
  CHECK(through(gs::bf16{}, 257.0f) == 256.0f);
  CHECK(through(gs::bf16{}, 0x1p-133f) == 0x1p-133f);
  CHECK(std::signbit(through(gs::fp16{}, -0x1p-30f)));
}

TEST_CASE("a layer's magnitude") {
  std::vector<float> values;
  CHECK(gs::detail::mean_magnitude(values) == 0.0f);
  for (float const each : {0.1f, 1.0f / 3, 0x1p-149f, 3 * 0x1p-149f, 0x1.fffffep-127f, 0x1.fffffep127f, 0.0f, 1e-30f})
    for (std::size_t const count : {1u, 2u, 3u, 7u, 1000u, 100'003u}) {  // equal magnitudes: exactly that one
      values.assign(count, each);
      for (std::size_t i = 0; i < count; i += 3) values[i] = -each;
      CHECK(gs::detail::mean_magnitude(values) == each);
    }
  CHECK(gs::detail::mean_magnitude(std::vector{1.0f, -2.0f, 6.0f}) == 3.0f);
  CHECK(gs::detail::mean_magnitude(std::vector{0x1p-149f, 0.0f, 0x1p-149f, 0.0f}) ==
        0.0f);  // half of the smallest: to even
  CHECK(gs::detail::mean_magnitude(std::vector{0x1p-149f, 0x1p127f}) == 0x1p126f);
  auto const some = data::make(data::law::student3, 100'000);
  double sum = 0;
  for (float const x : some) sum += std::fabs(static_cast<double>(x));
  CHECK(gs::detail::mean_magnitude(some) == doctest::Approx(sum / 1e5).epsilon(1e-6));
  auto turned = some;
  std::reverse(turned.begin(), turned.end());
  CHECK(gs::detail::mean_magnitude(turned) == gs::detail::mean_magnitude(some));  // the order does not matter
}

TEST_CASE("ternary values: one magnitude for each layer, exact where there is one already") {
  gs::packed const codec{.indices = gs::delta{}, .values = gs::ternary{}};
  gs::message_info const info{100, 0, 0, &three_layers};
  auto const through = [&](content const& from) {
    return decoded(codec, info, encoded(codec, info, from), from.indices.size()).values;
  };
  CHECK(through({{0, 39, 40, 41, 99}, {1, -2, 7, 0.1f, -0.1f}, {}}) ==
        std::vector<float>{1.5f, -1.5f, 7.0f, 0.1f, -0.1f});
  CHECK(through({{39, 99}, {-3, 5}, {}}) == std::vector<float>{-3, 5});
  CHECK(encoded(codec, info, {{0, 39, 40, 41, 99}, {1, -2, 7, 0.1f, -0.1f}, {}}).size() == payload + 1 + 4 + 12 + 1);
  CHECK(encoded(codec, info, {{41, 99}, {1, -2}, {}}).size() == payload + 1 + 2 + 4 + 1);
  gs::message_info const flat{100, 0, 0};  // no layers: one
  CHECK(encoded(codec, flat, {{0, 39, 40, 41, 99}, {1, -2, 7, 0.1f, -0.1f}, {}}).size() == payload + 1 + 4 + 4 + 1);
}

TEST_CASE("quantising once is quantising twice") {
  gs::layout const layers{{"a", 30'000}, {"b", 70'000}};
  gs::message_info const info{100'000, 0, 0, &layers};
  for (auto const which : data::all_laws) {
    auto const all = data::make(which, 100'000);
    auto const chosen = data::top_k(all, 5000);
    content const from{chosen.indices, chosen.values, {}};
    for_each_value_codec([&](auto const& how) {
      auto const once = quantised(how, info, from);
      CHECK(same_bits(quantised(how, info, once).values, once.values));
    });
  }
}

// ---- What is not a message ---------------------------------------------------------------------------------

namespace {

/// The smallest messages in which everything occurs.
content const few{{0, 1, 5, 40, 41, 99}, {1.0f, -2.0f, 0.5f, 3.0f, -0.25f, 8.0f}, {0.5f}};

}  // namespace

TEST_CASE("a packed message that is cut or goes on") {
  gs::message_info const info{100, 7, 1, &three_layers};
  for_each_packed(info.n, [&](auto const& codec) {
    auto const message = encoded(codec, info, few);
    INFO(name_of(codec));
    for (std::size_t size = 0; size < message.size(); ++size) {
      bytes truncated(message.begin(),
                      message.begin() + static_cast<std::ptrdiff_t>(size));  // its own block: overreads show
      if (verdict(codec, info, truncated, 10).empty()) FAIL_CHECK("taken without a byte");
      if (size < 48) continue;
      reseal(truncated);
      if (verdict(codec, info, truncated, 10).empty()) FAIL_CHECK("taken, sealed anew, with " << size << " bytes");
    }
    for (std::size_t more = 1; more < 10; ++more) {
      auto longer = message;
      longer.resize(message.size() + more);
      reseal(longer);
      if (verdict(codec, info, longer, 10).empty()) FAIL_CHECK("taken with " << more << " bytes too many");
    }
  });
}

TEST_CASE("every changed byte is noticed, or is another message") {
  gs::message_info const info{100, 7, 1, &three_layers};
  for_each_packed(info.n, [&](auto const& codec) {
    auto const message = encoded(codec, info, few);
    bool const one_form = !std::is_same_v<decltype(codec.indices), gs::automatic>;
    INFO(name_of(codec));
    for (std::size_t at = 0; at < message.size(); ++at)
      for (unsigned change = 1; change < 256; change += sanitized ? 7 : 1) {
        auto damaged = message;
        damaged[at] ^= static_cast<std::byte>(change);
        if (std::has_single_bit(change) && verdict(codec, info, damaged, 10).empty())
          FAIL("a damaged message was taken, byte " << at);
        if (at < 48) continue;
        reseal(damaged);
        if (!verdict(codec, info, damaged, 10).empty()) continue;
        auto const got = decoded(codec, info, damaged, 10);
        bool const same_codec = !requires { codec.indices.chunk; } || damaged[payload + 4] == message[payload + 4];
        if (one_form && same_codec && encoded(codec, info, got) != damaged)
          FAIL_CHECK("taken, but encode() writes something else: byte " << at << " changed by " << change);
      }
  });
}

TEST_CASE("the same bit turned in two words is noticed") {
  gs::message_info const info{100, 1, 16, &three_layers};
  for_each_packed(info.n, [&](auto const& codec) {
    auto const message = encoded(codec, info, quantised(codec, info, with_values(iid(100, 0.3), 16)));
    INFO(name_of(codec));
    CHECK(unnoticed_flips(codec, info, message, 100) == 0);
  });
}

TEST_CASE("parts that lie, under a right checksum") {
  gs::message_info const info{100, 7, 1, &three_layers};
  auto const altered = [&](auto const& codec, std::size_t at, auto value) {
    auto message = encoded(codec, info, few);
    poke(message, at, value);
    reseal(message);
    return verdict(codec, info, message, 10);
  };
  std::string const start = "gradsieve: message ";
  constexpr std::size_t parts = payload + 4;
  auto const byte = [](unsigned x) { return static_cast<std::uint8_t>(x); };
  SUBCASE("ids") {
    CHECK(altered(gs::packed{.indices = gs::delta{}}, 48, std::uint16_t{3}) == start + "index codec is 3, expected 2");
    CHECK(altered(gs::packed{.indices = gs::delta{}}, 50, std::uint16_t{2}) == start + "value codec is 2, expected 1");
    CHECK(altered(gs::packed{.indices = gs::delta{}}, 6, std::uint16_t{1}) == start + "codec is 1, expected 2");
    CHECK(altered(gs::packed{}, parts, byte(4)) == start + "index codec is 4, expected one of 1, 2, 3, 6, 7");
    CHECK(altered(gs::packed{}, parts, byte(0)) == start + "index codec is 0, expected one of 1, 2, 3, 6, 7");
  }
  SUBCASE("elias_fano") {  // low parts 0, 1, 5, 8, 9, 3 of 4 bits; bits 0, 1, 2, 5, 6, 11
    gs::packed const codec{.indices = gs::elias_fano{}};
    CHECK(altered(codec, parts, byte(0x10)) == "");
    CHECK(altered(codec, parts + 1, byte(0x85)) == "");
    CHECK(altered(codec, parts + 2, byte(0x39)) == "");
    CHECK(altered(codec, parts + 3, byte(0x67)) == "");
    CHECK(altered(codec, parts + 4, byte(0x08)) == "");
    CHECK(altered(codec, parts, byte(0x01)) == start + "indices do not rise strictly: 1 stands before 0");
    CHECK(altered(codec, parts + 3, byte(0x66)) == start + "number of bits set is 5, expected 6");
    CHECK(altered(codec, parts + 4, byte(0x18)) == start + "number of bits set is 7, expected 6");
    CHECK(altered(codec, parts + 4, byte(0x10)) == start + "index 115 is not below 100");
    CHECK(altered(codec, parts + 4, byte(0x80)) == start + "index 163 is not below 100");
    gs::message_info const huge{largest_n, 7, 0};  // low parts of 30 bits; bits 2 and 4
    auto message = encoded(codec, huge, with_values({0x8000'0000u, 0xFFFF'FFFEu}));
    CHECK(verdict(codec, huge, message, 2) == "");
    poke(message, payload + 8, byte(0x84));  // leads behind all numbers
    reseal(message);
    CHECK(verdict(codec, huge, message, 2) == start + "index 4294967295 is not below 4294967295");
  }
  SUBCASE("delta") {  // gaps 0, 0, 3, 34, 0, 57: 6 bits
    gs::packed const codec{.indices = gs::delta{}};
    CHECK(altered(codec, parts, byte(6)) == "");
    CHECK(altered(codec, parts, byte(33)) == start + "index width is 33, expected at most 32");
    CHECK(altered(codec, parts, byte(255)) == start + "index width is 255, expected at most 32");
    CHECK(altered(codec, parts, byte(32)).starts_with(start + "indices do not rise strictly: "));
    CHECK(altered(codec, parts + 5, byte(0xEF)) == start + "padding of indices is 1, expected 0");
    CHECK(altered(codec, parts + 4, byte(0xFF)) == start + "index 164 is not below 100");
    // one bit more than the gaps need
    auto wide = encoded(codec, info, few);
    wide.insert(wide.begin() + parts + 1, std::byte{0});
    wide[parts] = std::byte{7};
    std::array<std::uint32_t, 6> const gaps{0, 0, 3, 34, 0, 57};
    gs::wire::pack(gaps, 7, std::span{wide}.subspan(parts + 1));
    reseal(wide);
    CHECK(verdict(codec, info, wide, 10) == start + "index width is 7, expected 6");
    gs::message_info const huge{largest_n, 7, 0};  // a gap that leads around the end of all numbers
    auto round = encoded(codec, huge, with_values({0x8000'0000u, 0xFFFF'FFFEu}));
    CHECK(verdict(codec, huge, round, 2) == "");
    poke(round, payload + 1, std::uint32_t{0xFFFF'FFFEu});
    reseal(round);
    CHECK(verdict(codec, huge, round, 2) ==
          start + "indices do not rise strictly: 4294967294 stands before 2147483644");
    poke(round, payload + 1, std::uint32_t{0xFFFF'FFFFu});
    poke(round, payload + 5, std::uint32_t{0});
    reseal(round);
    CHECK(verdict(codec, huge, round, 2) == start + "indices do not rise strictly: 4294967295 stands before 0");
  }
  SUBCASE("bitmap") {
    gs::packed const codec{.indices = gs::bitmap{}};
    CHECK(altered(codec, parts, byte(0x23)) == "");
    CHECK(altered(codec, parts, byte(0x21)) == start + "number of bits set is 5, expected 6");
    CHECK(altered(codec, parts, byte(0xFF)) == start + "number of bits set is 11, expected 6");
    CHECK(altered(codec, parts + 12, byte(0x10)) == start + "index 100 is not below 100");
    CHECK(altered(codec, parts + 12, byte(0x80)) == start + "index 103 is not below 100");
  }
  SUBCASE("fixed_width") {  // chunks of 64: counts 5 and 1
    gs::packed const codec{.indices = gs::fixed_width{.chunk = 64}};
    CHECK(altered(codec, parts, byte(6)) == "");
    CHECK(altered(codec, parts, byte(0)) == start + "offset width is 0, expected 1 to 16");
    CHECK(altered(codec, parts, byte(17)) == start + "offset width is 17, expected 1 to 16");
    CHECK(altered(codec, parts + 1, std::uint16_t{5 + (2 << 7)}) ==
          start + "count of a chunk is 2, expected at most 1");
    CHECK(altered(codec, parts + 1, std::uint16_t{4 + (1 << 7)}) == start + "sum of chunk counts is 5, expected 6");
    CHECK(altered(codec, parts + 1, std::uint16_t{5 + (1 << 7) + (1 << 14)}) ==
          start + "padding of chunk counts is 1, expected 0");
    CHECK(altered(codec, parts + 1, std::uint16_t{127}) == start + "count of a chunk is 127, expected at most 6");
    CHECK(altered(codec, parts + 7, byte(0x18)) == start + "padding of offsets is 1, expected 0");
    CHECK(altered(codec, parts + 3, byte(0x3F)).starts_with(start + "indices do not rise strictly: 63 stands before"));
  }
  SUBCASE("ternary") {
    gs::packed const codec{.indices = gs::raw32{}, .values = gs::ternary{}};
    std::size_t const scales = parts + 24;
    CHECK(altered(codec, scales, 0x3F80'0000u) == "");
    CHECK(altered(codec, scales, 0x7F80'0000u) ==
          start + "scale of a layer, as bits, is 2139095040, expected below 2139095040");
    CHECK(altered(codec, scales + 4, 0x7FC0'0000u).starts_with(start + "scale of a layer, as bits, is "));
    CHECK(altered(codec, scales + 8, 0xBF80'0000u).starts_with(start + "scale of a layer, as bits, is "));
    CHECK(altered(codec, scales + 12, byte(0x52)) == start + "padding of signs is 1, expected 0");
  }
  SUBCASE("values") {
    std::string const bad = start + "holds a value that is not finite";
    std::size_t const values = parts + 24;
    CHECK(altered(gs::packed{.indices = gs::raw32{}, .values = gs::fp16{}}, values, std::uint16_t{0x7C00}) == bad);
    CHECK(altered(gs::packed{.indices = gs::raw32{}, .values = gs::bf16{}}, values, std::uint16_t{0xFFC0}) == bad);
    CHECK(altered(gs::packed{.indices = gs::raw32{}}, values + 20, 0xFF80'0000u) == bad);
    CHECK(altered(gs::packed{.indices = gs::raw32{}}, payload, 0x7FC0'0000u) == bad);  // a passthrough one
  }
  SUBCASE("counts") {
    for_each_packed(info.n, [&](auto const& codec) {
      INFO(name_of(codec));
      for (std::uint64_t const count :
           {std::uint64_t{11}, std::uint64_t{1} << 32, std::uint64_t{1} << 61, ~std::uint64_t{0}})
        CHECK(altered(codec, 24, count) == start + "entry count is " + std::to_string(count) + ", expected at most 10");
      for (std::uint64_t const count : {0u, 1u, 5u, 7u, 10u}) CHECK(altered(codec, 24, count) != "");
      for (std::uint64_t const passthrough : {std::uint64_t{0}, std::uint64_t{1} << 62, ~std::uint64_t{0}})
        CHECK(altered(codec, 32, passthrough) ==
              start + "passthrough count is " + std::to_string(passthrough) + ", expected 1");
    });
  }
}

TEST_CASE("any bytes behind a good header") {
  gs::layout const layers{{"a", 300}, {"b", 700}};
  gs::message_info const info{1000, 7, 1, &layers};
  data::generator random{5};
  for_each_packed(info.n, [&](auto const& codec) {
    auto const good = encoded(codec, info, with_values(iid(1000, 0.2), 1));
    int taken = 0;
    for (int i = 0; i < 2000; ++i) {
      auto message = good;
      if (i % 2 == 0)
        for (std::size_t b = payload; b < message.size(); ++b) message[b] = static_cast<std::byte>(random.bits());
      if (i % 3 == 0) message.resize(48 + random.below(message.size() - 48));
      if (message.size() < payload) continue;
      for (auto changes = 1 + random.below(3); changes > 0; --changes)
        message[48 + random.below(message.size() - 48)] ^= static_cast<std::byte>(1u << random.below(8));
      if (i % 5 == 0) poke(message, 24, random.below(1001));
      reseal(message);
      taken += verdict(codec, info, message, 1000).empty() ? 1 : 0;
    }
    INFO(name_of(codec));
    CHECK(taken < 1000);
  });
}

TEST_CASE("parts check their values") {
  auto const made = [](std::uint32_t chunk) {
    try {
      gs::check(gs::packed{.indices = gs::fixed_width{.chunk = chunk}});
    } catch (gs::invalid_argument const& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  for (std::uint32_t const good : {2u, 4096u, 65536u}) CHECK(made(good) == "");
  for (std::uint32_t const bad : {0u, 1u, 3u, 4095u, 131'072u})
    CHECK(made(bad) ==
          "gradsieve: fixed_width's chunk is " + std::to_string(bad) + ", expected a power of two from 2 to 65536");
}
