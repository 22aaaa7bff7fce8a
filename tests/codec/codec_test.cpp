// Messages: the way there and back, their bytes, and everything that is not a message.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <gradsieve/gradsieve.hpp>
#include <limits>
#include <string>
#include <vector>

#include "data.hpp"
#include "messages.hpp"

namespace gs = gradsieve;
using namespace messages;

namespace lacking {  // what the concept turns away

struct no_decode {
  [[nodiscard]] std::uint64_t max_bytes(std::uint64_t, std::uint64_t, std::uint64_t) const { return 0; }
  [[nodiscard]] std::uint64_t encode(gs::message_info, gs::selection_view, std::span<std::byte>) const { return 0; }
  friend bool operator==(no_decode const&, no_decode const&) = default;
};

}  // namespace lacking

namespace {

bytes encoded(gs::message_info info, content const& from) { return messages::encoded(gs::coo{}, info, from); }
content decoded(gs::message_info info, std::span<std::byte const> from, std::uint64_t capacity) {
  return messages::decoded(gs::coo{}, info, from, capacity);
}
std::string verdict(gs::message_info info, std::span<std::byte const> from, std::uint64_t capacity) {
  return messages::verdict(gs::coo{}, info, from, capacity);
}

gs::message_info const small_info{10, 0x1122'3344'5566'7788u, 1};
content const small_content{{1, 9}, {1.0f, -2.0f}, {0.5f}};

static_assert(gs::codec<gs::coo> && !gs::codec<lacking::no_decode> && !gs::codec<int>);

}  // namespace

TEST_CASE("what is encoded is decoded") {
  data::generator random{1};
  for (std::uint64_t const n : {0u, 1u, 2u, 77u, 5000u})
    for (std::uint64_t const passthrough : {0u, 1u, 13u})
      for (std::uint64_t const k : {std::uint64_t{0}, std::min<std::uint64_t>(n, 1), n / 3, n}) {
        gs::message_info const info{n, random.bits(), passthrough};
        content from;
        auto const values = data::make(data::law::laplace, n + passthrough, k);
        auto const chosen = data::top_k(std::span{values}.first(n), k);
        from.indices = chosen.indices;
        from.values = chosen.values;
        from.passthrough.assign(values.begin() + static_cast<std::ptrdiff_t>(n), values.end());
        CAPTURE(n);
        CAPTURE(k);
        CAPTURE(passthrough);
        auto const message = encoded(info, from);
        CHECK(message.size() == 48 + 8 * k + 4 * passthrough);
        CHECK(decoded(info, message, k) == from);
        CHECK(decoded(info, message, n + 5) == from);
      }
}

TEST_CASE("values arrive bit by bit") {
  content const from{
      {0, 1, 2, 3, 4}, {0x1p-149f, -0x1p-149f, std::numeric_limits<float>::max(), -0x1p-126f, 0.0f}, {-0.0f}};
  auto const got = decoded({5, 0, 1}, encoded({5, 0, 1}, from), 5);
  CHECK(got == from);
  CHECK(std::signbit(got.passthrough[0]));
  content const ends{{0, 4'294'967'294u}, {1, 2}, {}};
  CHECK(decoded({4'294'967'295u, 0, 0}, encoded({4'294'967'295u, 0, 0}, ends), 2) == ends);
}

TEST_CASE("the bytes of a message") {
  CHECK(hex(encoded(small_info, small_content)) ==
        "47 52 53 56 02 00 01 00 0a 00 00 00 00 00 00 00 "  // GRSV, version, codec, n
        "88 77 66 55 44 33 22 11 02 00 00 00 00 00 00 00 "  // layout hash, entries
        "01 00 00 00 00 00 00 00 30 fd e5 71 4b d1 6a 7f "  // passthrough, checksum
        "01 00 00 00 09 00 00 00 00 00 80 3f 00 00 00 c0 "  // indices, values
        "00 00 00 3f");                                     // passthrough values
}

TEST_CASE("a message may stand at any address") {
  auto const message = encoded(small_info, small_content);
  for (std::size_t shift = 0; shift < 9; ++shift) {
    bytes moved(shift + message.size() + 8, std::byte{0x5A});
    auto const place = std::span{moved}.subspan(shift, message.size());
    CHECK(gs::coo{}.encode(small_info, small_content.view(), place) == message.size());
    CHECK(std::equal(place.begin(), place.end(), message.begin()));
    CHECK(decoded(small_info, place, 2) == small_content);
    CHECK(std::count(moved.begin(), moved.end(), std::byte{0x5A}) >= static_cast<std::ptrdiff_t>(shift + 8));
  }
}

TEST_CASE("encode writes as many bytes as it says") {
  gs::coo const codec;
  bytes to(codec.max_bytes(10, 2, 1) + 64, std::byte{0x5A});
  auto const used = codec.encode(small_info, small_content.view(), to);
  CHECK(used == 68);
  CHECK(std::all_of(to.begin() + 68, to.end(), [](std::byte b) { return b == std::byte{0x5A}; }));
}

TEST_CASE("every changed byte is noticed") {
  auto const message = encoded(small_info, small_content);
  for (std::size_t at = 0; at < message.size(); ++at)
    for (unsigned change = 1; change < 256; ++change) {
      auto damaged = message;
      damaged[at] ^= static_cast<std::byte>(change);
      CAPTURE(at);
      CAPTURE(change);
      if (verdict(small_info, damaged, 10).empty()) FAIL("a damaged message was taken");
    }
}

TEST_CASE("every missing and every additional byte is noticed") {
  auto const message = encoded(small_info, small_content);
  for (std::size_t size = 0; size < message.size(); ++size) {
    bytes const truncated(message.begin(),
                          message.begin() + static_cast<std::ptrdiff_t>(size));  // its own block: overreads show
    CAPTURE(size);
    CHECK(verdict(small_info, truncated, 10) != "");
  }
  for (std::size_t more = 1; more < 20; ++more) {
    auto longer = message;
    longer.resize(message.size() + more);
    CHECK(verdict(small_info, longer, 10) != "");
    reseal(longer);
    CHECK(verdict(small_info, longer, 10) ==
          "gradsieve: message size is " + std::to_string(68 + more) + ", expected 68");
  }
  CHECK(verdict(small_info, bytes(20), 10) == "gradsieve: message size is 20, expected at least 48");
}

TEST_CASE("two words that changed places are noticed") {
  gs::message_info const info{100, 0, 0};
  content const from{{1, 2, 3, 4}, {1, 2, 3, 4}, {}};
  auto message = encoded(info, from);
  std::swap_ranges(message.begin() + 64, message.begin() + 72, message.begin() + 72);  // values 1, 2 and 3, 4
  CHECK(verdict(info, message, 4).find("checksum") != std::string::npos);
}

TEST_CASE("the same bit turned in two words is noticed") {
  gs::message_info const info{100, 0, 24};
  content from{{}, {}, std::vector<float>(24)};  // many words are equal
  for (gs::index_type i = 0; i < 40; ++i) from.indices.push_back(2 * i), from.values.push_back(i < 20 ? 1.0f : -0.5f);
  CHECK(unnoticed_flips(gs::coo{}, info, encoded(info, from), 40) == 0);
}

TEST_CASE("a header that lies, under a right checksum") {
  auto const original = encoded(small_info, small_content);
  auto const altered = [&](std::size_t at, auto value) {
    auto message = original;
    poke(message, at, value);
    reseal(message);
    return verdict(small_info, message, 10);
  };
  CHECK(altered(0, std::uint32_t{0x5653'5247}) == "");  // the right magic number
  CHECK(altered(0, std::uint32_t{0x4752'5356}).starts_with("gradsieve: message magic number is 1196577622"));
  CHECK(altered(4, std::uint16_t{3}) == "gradsieve: message version is 3, expected 2");
  CHECK(altered(4, std::uint16_t{1}) == "gradsieve: message version is 1, expected 2");
  CHECK(altered(6, std::uint16_t{9}) == "gradsieve: message codec is 9, expected 1");
  CHECK(altered(8, std::uint64_t{11}) == "gradsieve: message gradient size is 11, expected 10");
  CHECK(altered(16, std::uint64_t{5}) == "gradsieve: message layout hash is 5, expected 1234605616436508552");
  for (std::uint64_t const count :
       {std::uint64_t{11}, std::uint64_t{1} << 32, std::uint64_t{1} << 61, ~std::uint64_t{0}})
    CHECK(altered(24, count) == "gradsieve: message entry count is " + std::to_string(count) + ", expected at most 10");
  for (std::uint64_t const count : {0u, 1u, 3u, 10u})
    CHECK(altered(24, count).starts_with("gradsieve: message size is 68"));
  for (std::uint64_t const passthrough :
       {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{1} << 62, ~std::uint64_t{0}})
    CHECK(altered(32, passthrough) ==
          "gradsieve: message passthrough count is " + std::to_string(passthrough) + ", expected 1");
}

TEST_CASE("a payload that lies, under a right checksum") {
  float const inf = std::numeric_limits<float>::infinity();
  float const nan = std::numeric_limits<float>::quiet_NaN();
  auto const taken = [](content const& from) { return verdict(small_info, encoded(small_info, from), 10); };
  CHECK(taken(small_content) == "");
  CHECK(taken({{9, 1}, {1, 2}, {0}}) == "gradsieve: message indices do not rise strictly: 9 stands before 1");
  CHECK(taken({{4, 4}, {1, 2}, {0}}) == "gradsieve: message indices do not rise strictly: 4 stands before 4");
  CHECK(taken({{4'294'967'295u, 0}, {1, 2}, {0}}) ==
        "gradsieve: message indices do not rise strictly: 4294967295 stands before 0");
  CHECK(taken({{1, 10}, {1, 2}, {0}}) == "gradsieve: message index 10 is not below 10");
  CHECK(taken({{4'294'967'295u}, {1}, {0}}) == "gradsieve: message index 4294967295 is not below 10");
  for (float const bad : {inf, -inf, nan, -nan}) {
    CHECK(taken({{1, 2}, {1, bad}, {0}}) == "gradsieve: message holds a value that is not finite");
    CHECK(taken({{1, 2}, {bad, 1}, {0}}) == "gradsieve: message holds a value that is not finite");
    CHECK(taken({{1, 2}, {1, 1}, {bad}}) == "gradsieve: message holds a value that is not finite");
  }
}

TEST_CASE("coo is read where it lies, where its address allows that") {
  auto const message = encoded(small_info, small_content);
  for (std::size_t shift = 0; shift < 8; ++shift) {
    alignas(8) std::array<std::byte, 96> memory{};
    std::copy(message.begin(), message.end(), memory.begin() + static_cast<std::ptrdiff_t>(shift));
    auto const seen = gs::coo{}.view(small_info, std::span{memory}.subspan(shift, message.size()), 2);
    REQUIRE(seen.has_value() == (shift % 4 == 0));
    if (!seen) continue;
    CHECK(static_cast<void const*>(seen->indices.data()) == memory.data() + shift + 48);
    CHECK(std::ranges::equal(seen->indices, small_content.indices));
    CHECK(std::ranges::equal(seen->values, small_content.values));
    CHECK(std::ranges::equal(seen->passthrough, small_content.passthrough));
  }
  auto const refused = [](content const& from, std::uint64_t most, char const* text) {
    CHECK_THROWS_WITH_AS(static_cast<void>(gs::coo{}.view(small_info, encoded(small_info, from), most)), text,
                         gs::corrupt_message);
  };
  float const inf = std::numeric_limits<float>::infinity();
  refused(small_content, 1, "gradsieve: message entry count is 2, expected at most 1");
  refused({{9, 1}, {1, 2}, {0}}, 2, "gradsieve: message indices do not rise strictly: 9 stands before 1");
  refused({{1, 10}, {1, 2}, {0}}, 2, "gradsieve: message index 10 is not below 10");
  refused({{1, 2}, {1, inf}, {0}}, 2, "gradsieve: message holds a value that is not finite");
  refused({{1, 2}, {1, 2}, {inf}}, 2, "gradsieve: message holds a value that is not finite");
  auto damaged = message;
  damaged[50] ^= std::byte{1};
  CHECK_THROWS_WITH_AS(static_cast<void>(gs::coo{}.view(small_info, damaged, 2)),
                       "gradsieve: message checksum does not match: the bytes are damaged", gs::corrupt_message);
}

TEST_CASE("a message for another receiver") {
  auto const message = encoded(small_info, small_content);
  CHECK(verdict({11, small_info.layout_hash, 1}, message, 10) != "");
  CHECK(verdict({10, 0, 1}, message, 10) != "");
  CHECK(verdict({10, small_info.layout_hash, 0}, message, 10) != "");
  CHECK(verdict(small_info, message, 1) == "gradsieve: message entry count is 2, expected at most 1");
  CHECK(verdict(small_info, message, 2) == "");
}

TEST_CASE("any bytes at all") {
  data::generator random{99};
  auto const original = encoded(small_info, small_content);
  int taken = 0;
  for (int i = 0; i < 100'000; ++i) {
    bytes message(random.below(120));
    for (auto& each : message) each = static_cast<std::byte>(random.bits());
    if (i % 2 == 0) {  // half of them: our own header, a few changed bytes, a right checksum
      auto const tail = message.size() / 4 * 4;
      message.insert(message.begin(), original.begin(), original.begin() + 48);
      message.resize(i % 4 == 0 ? original.size() : 48 + tail);
      if (i % 4 == 0) std::copy(original.begin() + 48, original.end(), message.begin() + 48);
      for (auto changes = random.below(3); changes > 0; --changes)
        message[random.below(message.size())] ^= static_cast<std::byte>(1u << random.below(8));
      if (i % 3 != 0) reseal(message);
    }
    taken += verdict(small_info, message, 10).empty() ? 1 : 0;
  }
  CHECK(taken > 0);
  CHECK(taken < 50'000);
}

TEST_CASE("a compressor's own messages") {
  auto const layers = gs::layout{{"w", 5000}, {"bias", 20}};
  gs::compressor sender{gs::host{2}, layers, gs::recipe{}};
  auto const gradient = data::make(data::law::laplace, 5020);
  auto const view = sender.compress(std::span<float const>{gradient});
  content const sent{{view.indices.begin(), view.indices.end()},
                     {view.values.begin(), view.values.end()},
                     {view.passthrough.begin(), view.passthrough.end()}};
  CHECK(sent.indices.size() == 50);
  CHECK(sent.passthrough.size() == 20);
  CHECK(decoded({5020, layers.hash(), 20}, sender.encode(view), 50) == sent);
  CHECK(sender.report().bytes_sent == 48 + 8 * 50 + 4 * 20);
}
